/* Products of 8-bit codes with usdot, unsigned times signed: it uses the panels' codes directly and saves one
 * instruction per 16 codes. Shorter codes and tables would gain nothing and stay with dotprod.
 *
 * The extension's matrix instruction (usmmla, 2 rows times 2 lanes, 8 inputs deep) is not used. It halves the
 * multiplications, but needs 8 adjacent inputs per lane and produces 2 x 2 results. For 8 rows, 4 lanes and a block of
 * 32 inputs it needs 96 instructions: 32 multiplications, 8 for 4-bit codes, 24 to interleave codes and activations,
 * and 32 for results and scales. sdot needs 96 too: 64, 8 and 24. */
#include "engine/kernels/isa.h"

enum { CODE_OFFSET = 0, TILE_QUADS = 2 };

#define DOT_LANE vusdotq_laneq_s32
#include "engine/kernels/arm/matmul_dot_vec.h"

void kern_init_i8mm(struct kern_table *t) { t->matmul[PANEL_U8] = matmul_u8; }
