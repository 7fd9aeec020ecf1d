/* out = rows * panels^T with AMX int8 tiles, quantized kinds: matmul_amx_vec.h over the real instructions. */
#include "engine/kernels/x86/amx_tile.h"

#include "engine/kernels/x86/matmul_amx_vec.h"

void kern_init_amx(struct kern_table *t)
{
    t->tile_rows = TILE_ROWS;
    matmul_amx_init(t);
}
