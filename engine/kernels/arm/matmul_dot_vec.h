/* Quantized products with an instruction that multiplies 4 bytes by 4 in each 32-bit lane; the second four come from any
 * quarter of a register. The includer defines, with the enumerators of matmul_vec.h:
 *   DOT_LANE(sum, codes, x, lane)   sum + the products of codes and quarter `lane` (a literal) of x */
#ifndef INFCGI_KERNELS_ARM_MATMUL_DOT_VEC_H
#define INFCGI_KERNELS_ARM_MATMUL_DOT_VEC_H

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
            acc[v][r] = DOT_LANE(acc[v][r], c[0], x[r], 0);
            acc[v][r] = DOT_LANE(acc[v][r], c[1], x[r], 1);
            acc[v][r] = DOT_LANE(acc[v][r], c[2], x[r], 2);
            acc[v][r] = DOT_LANE(acc[v][r], c[3], x[r], 3);
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

#endif
