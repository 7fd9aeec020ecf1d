/* Activation rows to int8, 256-bit. Bit for bit what ref computes; see quantize_avx512.c. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define AMAX_LEAST 0x1p-119f /* as in ref */
enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF };

static uint32_t reduce_max(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static int32_t reduce_add(__m256i v)
{
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return _mm_cvtsi128_si32(m);
}

/* One block of 32 finite or other values: codes to q, minus the sums of the halves to nsum; returns d. */
static float quantize_block(const float *x, unsigned char *q, int32_t *nsum)
{
    const __m256i sign_off = _mm256_set1_epi32(SIGN_OFF);
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), sign_off));
    }
    uint32_t amax_bits = reduce_max(most);
    float amax;
    memcpy(&amax, &amax_bits, sizeof amax);
    if (amax_bits >= INFINITY_BITS || amax < AMAX_LEAST) {
        _mm256_store_si256((__m256i *)(void *)q, _mm256_setzero_si256());
        nsum[0] = nsum[1] = 0;
        return amax_bits >= INFINITY_BITS ? NAN : 0;
    }
    __m256 inverse = _mm256_set1_ps(127.0f / amax);
    __m256i c[4];
    for (int i = 0; i < 4; i++) {
        c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    }
    nsum[0] = -reduce_add(_mm256_add_epi32(c[0], c[1]));
    nsum[1] = -reduce_add(_mm256_add_epi32(c[2], c[3]));
    /* the packs work within 128-bit halves; the permutation puts the groups of four back in order */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_store_si256((__m256i *)(void *)q, bytes);
    return amax / 127.0f;
}

void kern_quantize_row_avx2(const float *x, size_t k, void *row)
{
    unsigned char *p = row;
    float *d = (float *)(void *)(p + kern_qrow_d_offset(k));
    float *s = (float *)(void *)(p + kern_qrow_s_offset(k));
    int32_t *nsum = (int32_t *)(void *)(p + kern_qrow_nsum_offset(k));
    for (size_t b = 0; b * PANEL_BLOCK < k; b++) {
        size_t left = k - b * PANEL_BLOCK;
        float padded[PANEL_BLOCK] = {0};
        const float *block = x + b * PANEL_BLOCK;
        if (left < PANEL_BLOCK) {
            memcpy(padded, block, left * sizeof *x);
            block = padded;
        }
        d[b] = quantize_block(block, p + b * PANEL_BLOCK, nsum + 2 * b);
        s[b] = d[b] * (float)-(nsum[2 * b] + nsum[2 * b + 1]);
    }
}
