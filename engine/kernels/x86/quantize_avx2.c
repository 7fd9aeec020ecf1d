/* Quantizes activation rows to two 8-bit terms, 256-bit. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"
#include "engine/kernels/x86/vec_avx2.h"

enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF, QUANTIZE_VECS = PANEL_BLOCK / VEC_LANES };

static uint32_t largest_bits(const vec *x)
{
    __m256i most = _mm256_setzero_si256();
    UNROLL_FULLY
    for (int i = 0; i < QUANTIZE_VECS; i++) {
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), _mm256_set1_epi32(SIGN_OFF)));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static int32_t store_bytes(const ivec *v, int8_t *to, int32_t *half)
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

#include "engine/kernels/vec/quantize_vec.h"

void kern_quantize_row_avx2(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    quantize_row(x, k, fine, row);
}
