/* out = rows * panels^T with vpdpbusd on 256-bit vectors, quantised kinds: matmul_256_vec.h with the sum of products
 * that instruction makes, 4 unsigned codes a lane by 4 activation bytes. The includer defines dot_bytes, which hides
 * whether the instruction is AVX-VNNI's or AVX-512VL's. */
#ifndef INFCGI_KERNELS_X86_MATMUL_VNNI_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_VNNI_VEC_H

/* Both halves: 8 chains of sums hide the latency of 4 to 5 cycles, and share the broadcast activations. The float sums
 * go to memory between blocks for it; still a third faster than 4 rows of one half [Zen 4, held to 16 registers]. */
enum { WIDTH = 2 };
#include "engine/kernels/x86/matmul_256_vec.h"

/* acc + codes . bytes, four products a lane. */
static ALWAYS_INLINE __m256i dot_bytes(__m256i acc, __m256i codes, __m256i bytes);

/* acc[h][r] += codes[h] . the four bytes at q of row r. */
static ALWAYS_INLINE void dot_four(const __m256i *codes, const int8_t *q, size_t row_bytes, int n,
                                   __m256i acc[WIDTH][TILE_ROWS])
{
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256i bytes = four_bytes(q + (size_t)r * row_bytes);
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            acc[h][r] = dot_bytes(acc[h][r], codes[h], bytes);
        }
    }
}

static ALWAYS_INLINE void dot_lines(const unsigned char *codes, int n_lines, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i acc[WIDTH][TILE_ROWS])
{
    const __m256i mask = _mm256_set1_epi8(15);
    UNROLL_FULLY
    for (int j = 0; j < n_lines; j++) {
        __m256i line[WIDTH], high[WIDTH];
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            line[h] = line_of(codes, j, h);
            if (k.bits == 4) {
                high[h] = _mm256_and_si256(_mm256_srli_epi16(line[h], 4), mask);
                line[h] = _mm256_and_si256(line[h], mask);
                high[h] = k.has_table ? _mm256_shuffle_epi8(table, high[h]) : high[h];
                line[h] = k.has_table ? _mm256_shuffle_epi8(table, line[h]) : line[h];
            }
        }
        if (k.bits == 4) {
            dot_four(line, q + 8 * j, row_bytes, n, acc);
            dot_four(high, q + 8 * j + 4, row_bytes, n, acc);
        } else {
            dot_four(line, q + 4 * j, row_bytes, n, acc);
        }
    }
}

#endif
