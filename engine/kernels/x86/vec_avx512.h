/* Sixteen floats of AVX-512, under the names that the shared kernel bodies (ops_vec.h, attention_vec.h) use.
 * Everything is static: AVX-512 code must not leak into objects built for the baseline CPU. */
#ifndef INFCGI_KERNELS_X86_VEC_AVX512_H
#define INFCGI_KERNELS_X86_VEC_AVX512_H

#include "engine/base/compiler.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef __m512 vec;
enum { VEC_LANES = 16 };
#define VEC_TILE                                                                                                       \
    8 /* queries of an attention tile: 8 x 2 sums, 2 widened, 1 broadcast of 32 registers; the preprocessor compares   \
         it */

static inline __mmask16 vec_mask(size_t n) { return n >= 16 ? 0xFFFF : (__mmask16)((1u << n) - 1); }
static inline vec vec_set1(float f) { return _mm512_set1_ps(f); }
static inline vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec vec_load_part(const float *p, size_t n) { return _mm512_maskz_loadu_ps(vec_mask(n), p); }
static inline void vec_store_part(float *p, vec v, size_t n) { _mm512_mask_storeu_ps(p, vec_mask(n), v); }
static inline vec vec_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vec vec_load_f16_part(const uint16_t *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vec_mask(n), p));
}
static inline void vec_store_f16_part(uint16_t *p, vec v, size_t n)
{
    _mm256_mask_storeu_epi16(p, vec_mask(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vec vec_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
static inline vec vec_load_bf16_part(const uint16_t *p, size_t n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vec_mask(n), p)), 16));
}
/* Always inlined: gcc 12 takes a function that only prefetches for one without effect and drops its calls. */
static ALWAYS_INLINE void vec_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
static inline vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
static inline vec vec_abs(vec v) { return _mm512_abs_ps(v); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); } /* a*b + c */
/* A NaN in b is returned; a NaN in a is not. */
static inline vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
static inline vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }

/* Returns v where from <= lane index + first <= last, else `other`. */
static inline vec vec_keep_range(vec v, vec other, int32_t first, int32_t from, int32_t last)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i t = _mm512_add_epi32(lane, _mm512_set1_epi32(first));
    __mmask16 m =
        _mm512_cmple_epi32_mask(t, _mm512_set1_epi32(last)) & _mm512_cmpge_epi32_mask(t, _mm512_set1_epi32(from));
    return _mm512_mask_blend_ps(m, other, v);
}

/* Returns the sum by halves: lanes i and i + 8, then i + 4, i + 2, i + 1. */
static inline float vec_sum(vec v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vec_max_lane(vec v) { return _mm512_reduce_max_ps(v); }

/* Return v rounded to integers, and x * 2^n for integral n in [-127, 127]. */
static inline vec vec_round(vec v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vec vec_scale2(vec x, vec n) { return _mm512_scalef_ps(x, n); }

/* Return v - floor(v) (0 for an infinity), and x * 2^floor(n) for any n. */
static inline vec vec_fraction(vec v) { return _mm512_reduce_ps(v, 0x09); }
static inline vec vec_scale_floor(vec x, vec n) { return _mm512_scalef_ps(x, n); }

static ALWAYS_INLINE vec vec_fold(vec a, vec b, bool sums) { return sums ? vec_add(a, b) : vec_max(a, b); }
static ALWAYS_INLINE vec vec_fold_lanes(const vec *v, bool sums)
{
    vec m[4];
    for (int i = 0; i < 4; i++) { /* a b a b in each quarter */
        m[i] = vec_fold(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]), sums);
    }
    for (int i = 0; i < 2; i++) { /* a b c d in each quarter */
        __m512d x = _mm512_castps_pd(m[2 * i]), y = _mm512_castps_pd(m[2 * i + 1]);
        m[i] = vec_fold(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)), sums);
    }
    vec q = vec_fold(_mm512_shuffle_f32x4(m[0], m[1], 0x88), _mm512_shuffle_f32x4(m[0], m[1], 0xDD), sums);
    q = vec_fold(q, _mm512_shuffle_f32x4(q, q, 0xB1), sums); /* quarters: abcd abcd efgh efgh */
    return _mm512_maskz_shuffle_f32x4(0x00FF, q, q, 0x08);
}

/* Return in lane i < VEC_TILE the largest of v[i], which holds no NaNs, or its sum, in the same order for all; 0 in
 * other lanes. */
static inline vec vec_max_lanes(const vec *v) { return vec_fold_lanes(v, false); }
static inline vec vec_sum_lanes(const vec *v) { return vec_fold_lanes(v, true); }

/* Returns a where x < y, else b. */
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}

/* Returns bit i set if lane i of x is greater than or equal to that of y; not set if either is NaN. */
static inline unsigned vec_at_least(vec x, vec y) { return _mm512_cmp_ps_mask(x, y, _CMP_GE_OQ); }

/* Return even lanes a - b and odd lanes a + b; each pair of lanes swapped; n numbers, each in two adjacent lanes. */
static inline vec vec_addsub(vec a, vec b) { return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0x5555, a, b); }
static inline vec vec_swap_pairs(vec v) { return _mm512_permute_ps(v, 0xB1); }
static inline vec vec_load_doubled(const float *p, size_t n) /* n: numbers to read, up to VEC_LANES / 2 */
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(vec_mask(n < 8 ? n : 8), p));
}

/* Integers: VEC_LANES of 32 bits, or twice as many of 16. */
typedef __m512i ivec;
static inline ivec ivec_set1(int32_t i) { return _mm512_set1_epi32(i); }
static inline ivec ivec_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void ivec_store(void *p, ivec v) { _mm512_storeu_si512(p, v); }
/* Returns acc + a[2i] * b[2i] + a[2i+1] * b[2i+1] of 16-bit numbers in each 32-bit lane. */
static inline ivec ivec_dot16(ivec acc, ivec a, ivec b) { return _mm512_dpwssd_epi32(acc, a, b); }
static inline vec vec_from_int(ivec v) { return _mm512_cvtepi32_ps(v); }
static inline ivec vec_to_int(vec v) { return _mm512_cvtps_epi32(v); } /* nearest even */
/* Returns low | high << 16, for low in 0 .. 65535. */
static inline ivec ivec_pair(ivec low, ivec high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }
static inline ivec ivec_and(ivec a, ivec b) { return _mm512_and_si512(a, b); }
static inline ivec ivec_shift_right4(ivec a) { return _mm512_srli_epi32(a, 4); }
static inline ivec ivec_add(ivec a, ivec b) { return _mm512_add_epi32(a, b); }
static inline ivec ivec_sub16(ivec a, ivec b) { return _mm512_sub_epi16(a, b); }
/* Widen 8 bits: signed to 2 * VEC_LANES of 16 bits; unsigned to VEC_LANES of 32. */
static inline ivec ivec_widen_i8(const void *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(p)); }
static inline ivec ivec_widen_u8(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }

/* Sums of doubles. */
struct vec_sum64 {
    __m512d half[2];
};
static inline struct vec_sum64 vec_sum64_zero(void)
{
    return (struct vec_sum64){{_mm512_setzero_pd(), _mm512_setzero_pd()}};
}
static inline void vec_sum64_add(struct vec_sum64 *s, vec v)
{
    s->half[0] = _mm512_add_pd(s->half[0], _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    s->half[1] = _mm512_add_pd(s->half[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
}
static inline double vec_sum64_total(const struct vec_sum64 *s)
{
    return _mm512_reduce_add_pd(_mm512_add_pd(s->half[0], s->half[1]));
}

#endif
