/* out = rows * panels^T with vpdpbusd on 256-bit vectors, quantized kinds: matmul_256_vec.h with the sum of products of
 * that instruction, 4 unsigned codes per lane by 4 activation bytes. The includer defines dot_bytes as the instruction
 * of AVX-VNNI or AVX-512VL. */
#ifndef INFCGI_KERNELS_X86_MATMUL_VNNI_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_VNNI_VEC_H

/* Both halves: 8 chains of sums hide the latency of 4 to 5 cycles and share the broadcast activations. The float sums
 * go to memory between blocks, but this is still a third faster than 4 rows of one half [Zen 4, limited to 16
 * registers]. */
enum { WIDTH = 2 };
#include "engine/kernels/x86/matmul_256_vec.h"

/* Returns acc + codes . bytes, four products per lane. */
static ALWAYS_INLINE __m256i dot_bytes(__m256i acc, __m256i codes, __m256i bytes);

/* Adds codes[h] . the four bytes at q of row r to acc[h][r]. */
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

/* Returns word v of a block's codes, half h; table entries in table kinds. */
static ALWAYS_INLINE __m256i code_words(const unsigned char *codes, __m256i table, int v, int h, struct shape k)
{
    __m256i low = low_bits(codes, v, h, k);
    if (k.bits == 3 || k.bits == 5 || k.bits == 6) {
        return _mm256_or_si256(low, _mm256_slli_epi16(high_bits(codes, v, h, k), k.bits == 3 ? 2 : 4));
    }
    return k.has_table ? _mm256_shuffle_epi8(table, low) : low;
}

static ALWAYS_INLINE void dot_words(const unsigned char *codes, int from, int to, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i acc[WIDTH][TILE_ROWS])
{
    UNROLL_FULLY
    for (int v = from; v < to; v++) {
        __m256i words[WIDTH];
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            words[h] = code_words(codes, table, v, h, k);
        }
        dot_four(words, q + 4 * v, row_bytes, n, acc);
    }
}

#endif
