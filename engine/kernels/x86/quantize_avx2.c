/* Activation rows to two 8-bit terms, 256-bit. Bit for bit what ref computes; see quantize_avx512.c. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define AMAX_LEAST 0x1p-110f /* as in ref */
enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF, QUARTERS = PANEL_BLOCK / 8 };

struct block {
    __m256 x[QUARTERS];
};

static struct block load(const float *x, size_t k, size_t b)
{
    float padded[PANEL_BLOCK] = {0};
    const float *from = x + b * PANEL_BLOCK;
    if (k - b * PANEL_BLOCK < PANEL_BLOCK) {
        memcpy(padded, from, (k - b * PANEL_BLOCK) * sizeof *x);
        from = padded;
    }
    struct block out;
    UNROLL_FULLY
    for (int i = 0; i < QUARTERS; i++) {
        out.x[i] = _mm256_loadu_ps(from + 8 * i);
    }
    return out;
}

/* The scale of a block and its inverse. */
static float scale_of(const struct block *x, float *inverse)
{
    __m256i most = _mm256_setzero_si256();
    UNROLL_FULLY
    for (int i = 0; i < QUARTERS; i++) {
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(x->x[i]), _mm256_set1_epi32(SIGN_OFF)));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    uint32_t bits = (uint32_t)_mm_cvtsi128_si32(m);
    float amax = _mm_cvtss_f32(_mm_castsi128_ps(m));
    if (bits >= INFINITY_BITS || amax < AMAX_LEAST) {
        *inverse = 0;
        return bits >= INFINITY_BITS ? NAN : 0;
    }
    *inverse = 127.0f / amax;
    return amax / 127.0f;
}

/* d^2 above which a block is fine. */
static float fine_limit(const struct kern_qblock *row, size_t n_blocks, float fine)
{
    float sums[16] = {0};
    for (size_t b = 0; b < n_blocks; b++) {
        sums[b % 16] += row[b].d * row[b].d;
    }
    for (size_t width = 8; width >= 1; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            sums[i] += sums[i + width];
        }
    }
    return fine * fine * (sums[0] / (float)n_blocks);
}

/* Stores 32 bytes and -8 times their sums over each half; returns both sums together. Values beyond 127 become 127. */
static int32_t store_bytes(const __m256i *v, int8_t *to, int32_t *half)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing works within 128 bits */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, order);
    _mm256_store_si256((__m256i *)(void *)to, bytes);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4E));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xB1));
    half[0] = -8 * _mm256_extract_epi32(fours, 0);
    half[1] = -8 * _mm256_extract_epi32(fours, 4);
    return half[0] + half[1];
}

/* Both terms of a block; d, the inverse in the place of s and fine are there. */
static void quantize_block(const struct block *x, struct kern_qblock *q)
{
    __m256i hi[QUARTERS], lo[QUARTERS];
    float inverse = q->s;
    UNROLL_FULLY
    for (int i = 0; i < QUARTERS; i++) {
        hi[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x->x[i], _mm256_set1_ps(inverse)));
        hi[i] = inverse != 0 ? hi[i] : _mm256_setzero_si256(); /* 0 * infinity is not 0 */
        __m256 rest = _mm256_fnmadd_ps(_mm256_set1_ps(q->d), _mm256_cvtepi32_ps(hi[i]), x->x[i]);
        lo[i] = _mm256_cvtps_epi32(_mm256_mul_ps(rest, _mm256_set1_ps(inverse * 256.0f)));
        lo[i] = q->fine != 0 && inverse != 0 ? lo[i] : _mm256_setzero_si256();
    }
    q->zero = store_bytes(hi, q->hi, q->half);
    q->zero_lo = store_bytes(lo, q->lo, q->half_lo);
    q->s = q->d * ((float)((-256 * q->zero - q->zero_lo) / 8) * (1.0f / 256));
}

void kern_quantize_row_avx2(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    size_t n_blocks = kern_qrow_blocks(k);
    for (size_t b = 0; b < n_blocks; b++) {
        struct block in = load(x, k, b);
        row[b].d = scale_of(&in, &row[b].s); /* s holds the inverse for a while */
    }
    float limit = fine_limit(row, n_blocks, fine);
    for (size_t b = 0; b < n_blocks; b++) {
        struct block in = load(x, k, b);
        row[b].fine = row[b].d * row[b].d > limit;
        quantize_block(&in, &row[b]);
    }
}
