/* Products of 8-bit codes with usdot, unsigned times signed: the panels' codes as they are, an instruction less for
 * each 16 of them. 4-bit codes gain nothing and stay with dotprod.
 *
 * The extension's matrix instruction (usmmla, 2 rows times 2 lanes, 8 inputs deep) is not used. It halves the
 * multiplications, but wants 8 inputs of a lane side by side and leaves 2 x 2 results: for 8 rows, 4 lanes and a block
 * of 32 inputs it takes 32 multiplications, 32 instructions to interleave codes and activations, 8 to take 4-bit codes
 * apart and 32 for results and scales, 104 in all; sdot 64, 8 and 24, that is 96. */
#include "engine/kernels/isa.h"

enum { CODE_OFFSET = 0 };

#include "engine/kernels/arm/matmul_vec.h"

static ALWAYS_INLINE void dot(const unsigned char *codes, const int8_t *const *q, int n, int quads, int bits,
                              bool is_lo, int32x4_t (*acc)[QUADS])
{
    (void)is_lo;
    int8x16_t x[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        x[r] = vld1q_s8(q[r]);
    }
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        uint8x16_t c[4];
        UNROLL_FULLY
        for (int i = 0; i < 4; i++) {
            c[i] = operand(codes + 16 * v, bits, i);
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r][v] = vusdotq_laneq_s32(acc[r][v], c[0], x[r], 0);
            acc[r][v] = vusdotq_laneq_s32(acc[r][v], c[1], x[r], 1);
            acc[r][v] = vusdotq_laneq_s32(acc[r][v], c[2], x[r], 2);
            acc[r][v] = vusdotq_laneq_s32(acc[r][v], c[3], x[r], 3);
        }
    }
}

void kern_matmul_init_i8mm(struct kern_table *t) { matmul_init_8_bit(t); }
