/* out = rows * panels^T with vpdpbusd on 256-bit vectors, quantised kinds: matmul_256_vec.h with the sum of products
 * that instruction makes, 4 unsigned codes a lane by 4 activation bytes. The includer defines dot_bytes, which hides
 * whether the instruction is AVX-VNNI's or AVX-512VL's. */
#ifndef INFCGI_KERNELS_X86_MATMUL_VNNI_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_VNNI_VEC_H

#include "engine/kernels/x86/matmul_256_vec.h"

/* acc + codes . bytes, four products a lane. */
static ALWAYS_INLINE __m256i dot_bytes(__m256i acc, __m256i codes, __m256i bytes);

static ALWAYS_INLINE __m256i load_line(const unsigned char *codes, int j)
{
    return _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * j));
}

static ALWAYS_INLINE void dot_4_bit(const unsigned char *codes, int n_lines, const int8_t *q, size_t row_bytes, int n,
                                    __m256i *acc)
{
    const __m256i mask = _mm256_set1_epi8(15);
    UNROLL_FULLY
    for (int j = 0; j < n_lines; j++) {
        __m256i both = load_line(codes, j);
        __m256i low = _mm256_and_si256(both, mask);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = dot_bytes(acc[r], low, four_bytes(q + (size_t)r * row_bytes + 8 * j));
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = dot_bytes(acc[r], high, four_bytes(q + (size_t)r * row_bytes + 8 * j + 4));
        }
    }
}

static ALWAYS_INLINE void dot_8_bit(const unsigned char *codes, int n_lines, const int8_t *q, size_t row_bytes, int n,
                                    __m256i *acc)
{
    UNROLL_FULLY
    for (int j = 0; j < n_lines; j++) {
        __m256i line = load_line(codes, j);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = dot_bytes(acc[r], line, four_bytes(q + (size_t)r * row_bytes + 4 * j));
        }
    }
}

#endif
