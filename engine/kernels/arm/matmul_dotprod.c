/* Quantized products with sdot, which multiplies 4 signed bytes by 4 in each 32-bit lane. The second four come from any
 * quarter of a register, so activations need no broadcast. Subtracting 128 makes 8-bit codes signed, and already
 * applies a zero point of 128. */
#include "engine/kernels/isa.h"

enum { CODE_OFFSET = 128, TILE_QUADS = 2 };

#define DOT_LANE(sum, codes, x, lane) vdotq_laneq_s32(sum, vreinterpretq_s8_u8(codes), x, lane)
#include "engine/kernels/arm/matmul_dot_vec.h"

void kern_init_dotprod(struct kern_table *t) { matmul_vec_init(t); }
