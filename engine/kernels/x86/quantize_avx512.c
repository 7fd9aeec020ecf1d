/* Quantizes activation rows to two 8-bit terms, 512-bit. Bit for bit equal to ref: integer comparison of the bits finds
 * the largest magnitude (a NaN or infinity is the largest), and division, product and rounding are IEEE operations.
 * Scales are computed for 16 blocks at a time, sums from the stored bytes. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF };

static __mmask16 lanes_of(size_t left) { return left >= 16 ? 0xFFFF : (__mmask16)((1u << left) - 1); }

/* Returns inputs 16*half .. of block b, zero beyond K. */
static __m512 load(const float *x, size_t k, size_t b, size_t half)
{
    size_t from = b * PANEL_BLOCK + 16 * half;
    return _mm512_maskz_loadu_ps(from < k ? lanes_of(k - from) : 0, x + from);
}

/* Returns the largest magnitudes of n <= 16 blocks, from block `first` on. */
static __m512 find_largest(const float *x, size_t k, size_t first, size_t n)
{
    const __m512i sign_off = _mm512_set1_epi32(SIGN_OFF);
    _Alignas(64) uint32_t bits[16] = {0};
    for (size_t b = 0; b < n; b++) {
        __m512i low = _mm512_and_si512(_mm512_castps_si512(load(x, k, first + b, 0)), sign_off);
        __m512i high = _mm512_and_si512(_mm512_castps_si512(load(x, k, first + b, 1)), sign_off);
        bits[b] = _mm512_reduce_max_epu32(_mm512_max_epu32(low, high));
    }
    return _mm512_load_ps(bits);
}

/* Writes d, and its inverse to s until quantize_block. Returns the d^2 above which a block is fine. */
static float find_scales(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    size_t n_blocks = kern_qrow_blocks(k);
    __m512 sum = _mm512_setzero_ps();
    for (size_t first = 0; first < n_blocks; first += 16) {
        size_t n = MIN_OF(n_blocks - first, (size_t)16);
        __m512 amax = find_largest(x, k, first, n);
        __mmask16 finite = _mm512_cmplt_epi32_mask(_mm512_castps_si512(amax), _mm512_set1_epi32(INFINITY_BITS));
        __mmask16 big = _mm512_mask_cmp_ps_mask(finite, amax, _mm512_set1_ps(KERN_AMAX_LEAST), _CMP_GE_OQ);
        __m512 d = _mm512_maskz_div_ps(big, amax, _mm512_set1_ps(127.0f));
        d = _mm512_mask_blend_ps(finite, _mm512_set1_ps(NAN), d);
        sum = _mm512_add_ps(sum, _mm512_mul_ps(d, d));
        _Alignas(64) float scales[16], inverses[16];
        _mm512_store_ps(scales, d);
        _mm512_store_ps(inverses, _mm512_maskz_div_ps(big, _mm512_set1_ps(127.0f), amax));
        for (size_t b = 0; b < n; b++) {
            row[first + b].d = scales[b];
            row[first + b].s = inverses[b];
        }
    }
    __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    by4 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    float total = _mm_cvtss_f32(_mm_add_ss(by4, _mm_movehdup_ps(by4)));
    return fine * fine * (total / (float)n_blocks);
}

/* Stores 2 x 16 bytes; returns -8 times their sums, each in all 32-bit lanes of its 128 bits. */
static __m256i store_bytes(int8_t *to, __m512i low, __m512i high)
{
    __m256i bytes = _mm256_set_m128i(_mm512_cvtsepi32_epi8(high), _mm512_cvtsepi32_epi8(low));
    _mm256_store_si256((__m256i *)(void *)to, bytes);
    __m256i t = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(8), bytes);
    t = _mm256_add_epi32(t, _mm256_shuffle_epi32(t, 0x4E));
    t = _mm256_add_epi32(t, _mm256_shuffle_epi32(t, 0xB1));
    return _mm256_sub_epi32(_mm256_setzero_si256(), t);
}

/* Stores the sums of both halves to half[2]; returns their sum. */
static int32_t store_halves(int32_t *half, __m256i sums)
{
    half[0] = _mm256_cvtsi256_si32(sums);
    half[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    return half[0] + half[1];
}

/* Computes both terms of block b. d and fine are set, and s holds the inverse of d. */
static void quantize_block(const float *x, size_t k, size_t b, struct kern_qblock *q)
{
    __mmask16 keep = q->s != 0 ? 0xFFFF : 0; /* 0 * infinity is not 0 */
    __m512 inverse = _mm512_set1_ps(q->s);
    __m512 x_low = load(x, k, b, 0), x_high = load(x, k, b, 1);
    __m512i low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x_low, inverse));
    __m512i high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x_high, inverse));
    q->zero = store_halves(q->half, store_bytes(q->hi, low, high));
    if (q->fine == 0) {
        memset(q->lo, 0, sizeof q->lo);
        q->zero_lo = q->half_lo[0] = q->half_lo[1] = 0;
    } else {
        __m512 d = _mm512_set1_ps(q->d), finer = _mm512_mul_ps(inverse, _mm512_set1_ps(256.0f));
        __m512 rest_low = _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(low), x_low);
        __m512 rest_high = _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(high), x_high);
        q->zero_lo =
            store_halves(q->half_lo, store_bytes(q->lo, _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(rest_low, finer)),
                                                 _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(rest_high, finer))));
    }
    q->s = q->d * ((float)((-256 * q->zero - q->zero_lo) / 8) * (1.0f / 256));
}

void kern_quantize_row_avx512(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    float limit = find_scales(x, k, fine, row);
    for (size_t b = 0; b < kern_qrow_blocks(k); b++) {
        row[b].fine = row[b].d * row[b].d > limit;
        quantize_block(x, k, b, &row[b]);
    }
}
