/* Products of 8-bit codes with usdot, unsigned times signed: the panels' codes as they are, an instruction less for
 * each 16 of them. 4-bit codes gain nothing and stay with dotprod.
 *
 * The extension's matrix instruction (usmmla, 2 rows times 2 lanes, 8 inputs deep) is not used. It halves the
 * multiplications, but wants 8 inputs of a lane side by side and leaves 2 x 2 results. For 8 rows, 4 lanes and a block
 * of 32 inputs it takes 32 multiplications, 8 instructions for 4-bit codes, 24 to interleave codes and activations and
 * 32 for results and scales, 96 in all; sdot takes 64, 8 and 24, which is 96 too. */
#include "engine/kernels/isa.h"

enum { CODE_OFFSET = 0, TILE_QUADS = 2 };

#include "engine/kernels/arm/matmul_vec.h"

/* acc[v][r] += codes . q[r] over inputs from .. from+15. */
static ALWAYS_INLINE void dot_16(const unsigned char *codes, uint8x16_t table, const int8_t *const *q, int from, int n,
                                 int quads, struct shape k, int32x4_t (*acc)[TILE_ROWS])
{
    int8x16_t x[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        x[r] = vld1q_s8(q[r] + from);
    }
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        const unsigned char *at = codes + 2 * k.bits * from + 16 * v;
        uint8x16_t c[4];
        UNROLL_FULLY
        for (int i = 0; i < 4; i++) {
            c[i] = operand(at, table, k, i);
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[v][r] = vusdotq_laneq_s32(acc[v][r], c[0], x[r], 0);
            acc[v][r] = vusdotq_laneq_s32(acc[v][r], c[1], x[r], 1);
            acc[v][r] = vusdotq_laneq_s32(acc[v][r], c[2], x[r], 2);
            acc[v][r] = vusdotq_laneq_s32(acc[v][r], c[3], x[r], 3);
        }
    }
}

static ALWAYS_INLINE void dot(const unsigned char *codes, uint8x16_t table, const int8_t *const *q, int inputs, int n,
                              int quads, struct shape k, bool is_lo, int32x4_t (*acc)[TILE_ROWS])
{
    (void)is_lo;
    dot_16(codes, table, q, 0, n, quads, k, acc);
    if (inputs == PANEL_BLOCK) {
        dot_16(codes, table, q, 16, n, quads, k, acc);
    }
}

void kern_matmul_init_i8mm(struct kern_table *t) { matmul_init_8_bit(t); }
