/* Activation rows to int8, 512-bit. Bit for bit what ref computes: the largest magnitude is found by integer comparison
 * of the bits (so a NaN or infinity comes out on top), and division, product and rounding are IEEE operations. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define AMAX_LEAST 0x1p-119f /* as in ref */
enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF };

static float bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void kern_quantize_row_avx512(const float *x, size_t k, void *row)
{
    unsigned char *p = row;
    float *d = (float *)(void *)(p + kern_qrow_d_offset(k));
    float *s = (float *)(void *)(p + kern_qrow_s_offset(k));
    int32_t *nsum = (int32_t *)(void *)(p + kern_qrow_nsum_offset(k));
    const __m512i sign_off = _mm512_set1_epi32(SIGN_OFF);
    for (size_t b = 0; b * PANEL_BLOCK < k; b++) {
        size_t left = k - b * PANEL_BLOCK;
        uint32_t there = left >= PANEL_BLOCK ? 0xFFFFFFFFu : (1u << left) - 1;
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)there, x + b * PANEL_BLOCK);
        __m512 high = _mm512_maskz_loadu_ps((__mmask16)(there >> 16), x + b * PANEL_BLOCK + 16);
        __m512i magnitudes = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), sign_off),
                                              _mm512_and_si512(_mm512_castps_si512(high), sign_off));
        uint32_t amax_bits = _mm512_reduce_max_epu32(magnitudes);
        float amax = bits_to_float(amax_bits);
        bool finite = amax_bits < INFINITY_BITS;
        bool is_zero = !finite || amax < AMAX_LEAST;
        __m512 inverse = _mm512_set1_ps(is_zero ? 0 : 127.0f / amax);
        __mmask16 keep = is_zero ? 0 : 0xFFFF; /* 0 * infinity is not 0 */
        __m512i q_low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
        __m512i q_high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
        _mm_store_si128((__m128i *)(void *)(p + b * PANEL_BLOCK), _mm512_cvtepi32_epi8(q_low));
        _mm_store_si128((__m128i *)(void *)(p + b * PANEL_BLOCK + 16), _mm512_cvtepi32_epi8(q_high));
        int32_t sum_low = _mm512_reduce_add_epi32(q_low), sum_high = _mm512_reduce_add_epi32(q_high);
        d[b] = !finite ? NAN : is_zero ? 0 : amax / 127.0f;
        s[b] = d[b] * (float)(sum_low + sum_high);
        nsum[2 * b] = -sum_low;
        nsum[2 * b + 1] = -sum_high;
    }
}
