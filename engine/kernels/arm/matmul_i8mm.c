/* Products of 8-bit codes with usdot, unsigned times signed: it uses the panels' codes directly and saves one
 * instruction per 16 codes. Shorter codes and tables would gain nothing and stay with dotprod.
 *
 * The extension's matrix instruction (usmmla, 2 rows times 2 lanes, 8 inputs deep) is not used. It halves the
 * multiplications, but needs 8 adjacent inputs per lane and produces 2 x 2 results. For 8 rows, 4 lanes and a block of
 * 32 inputs it needs 96 instructions: 32 multiplications, 8 for 4-bit codes, 24 to interleave codes and activations,
 * and 32 for results and scales. sdot needs 96 too: 64, 8 and 24. */
#include "engine/kernels/isa.h"

enum { CODE_OFFSET = 0, TILE_QUADS = 2 };

#include "engine/kernels/arm/matmul_vec.h"

/* Adds codes . q[r] over words from .. from+3 to acc[v][r]. */
static ALWAYS_INLINE void dot_16(const unsigned char *codes, int from, uint8x16_t table, const int8_t *const *q, int n,
                                 int quads, struct shape k, int32x4_t (*acc)[TILE_ROWS])
{
    int8x16_t x[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        x[r] = vld1q_s8(q[r] + 4 * from);
    }
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        uint8x16_t c[4];
        UNROLL_FULLY
        for (int i = 0; i < 4; i++) {
            c[i] = code_words(codes + 16 * v, table, from + i, k);
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

static ALWAYS_INLINE void dot(const unsigned char *codes, int from, int to, uint8x16_t table, const int8_t *const *q,
                              int n, int quads, struct shape k, bool is_lo, int32x4_t (*acc)[TILE_ROWS])
{
    (void)is_lo;
    UNROLL_FULLY
    for (int v = from; v < to; v += 4) {
        dot_16(codes, v, table, q, n, quads, k, acc);
    }
}

void kern_matmul_init_i8mm(struct kern_table *t) { t->matmul[PANEL_U8] = matmul_u8; }
