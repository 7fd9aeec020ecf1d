/* Eight floats of AVX2 with FMA and F16C, under the names that the shared kernel bodies (ops_vec.h, attention_vec.h)
 * use. Everything is static: AVX2 code must not leak into objects built for the baseline CPU. */
#ifndef INFCGI_KERNELS_X86_VEC_AVX2_H
#define INFCGI_KERNELS_X86_VEC_AVX2_H

#include "engine/base/compiler.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef __m256 vec;
enum { VEC_LANES = 8 };
#define VEC_TILE                                                                                                       \
    4 /* queries of an attention tile: 4 x 2 sums, 2 widened, 1 broadcast of 16 registers; the preprocessor compares   \
         it */

static inline __m256i vec_mask(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n >= 8 ? 8 : (int)n), lane);
}
static inline vec vec_set1(float f) { return _mm256_set1_ps(f); }
static inline vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
/* Masked stores are slow (add of 1536 floats: 740 ns with them, 120 without, Zen 4), so whole vectors use no mask. */
static inline vec vec_load_part(const float *p, size_t n)
{
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vec_mask(n));
}
static inline void vec_store_part(float *p, vec v, size_t n)
{
    if (n >= 8) {
        _mm256_storeu_ps(p, v);
    } else {
        _mm256_maskstore_ps(p, vec_mask(n), v);
    }
}
static inline vec vec_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline vec vec_load_f16_part(const uint16_t *p, size_t n)
{
    uint16_t h[8] = {0};
    memcpy(h, p, (n >= 8 ? 8 : n) * sizeof *h);
    return vec_load_f16(h);
}
static inline void vec_store_f16_part(uint16_t *p, vec v, size_t n)
{
    uint16_t h[8];
    _mm_storeu_si128((__m128i *)h, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    memcpy(p, h, (n >= 8 ? 8 : n) * sizeof *h);
}
static inline vec vec_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
static inline vec vec_load_bf16_part(const uint16_t *p, size_t n)
{
    uint16_t h[8] = {0};
    memcpy(h, p, (n >= 8 ? 8 : n) * sizeof *h);
    return vec_load_bf16(h);
}
/* Always inlined: gcc 12 takes a function that only prefetches for one without effect and drops its calls. */
static ALWAYS_INLINE void vec_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
static inline vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
static inline vec vec_abs(vec v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); } /* a*b + c */
/* A NaN in b is returned; a NaN in a is not. */
static inline vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
static inline vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }

/* Returns v where from <= lane index + first <= last, else `other`. */
static inline vec vec_keep_range(vec v, vec other, int32_t first, int32_t from, int32_t last)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i t = _mm256_add_epi32(lane, _mm256_set1_epi32(first));
    __m256i out =
        _mm256_or_si256(_mm256_cmpgt_epi32(t, _mm256_set1_epi32(last)), _mm256_cmpgt_epi32(_mm256_set1_epi32(from), t));
    return _mm256_blendv_ps(v, other, _mm256_castsi256_ps(out));
}

/* Returns the sum by halves: lanes i and i + 4, then i + 2, i + 1. */
static inline float vec_sum(vec v)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float vec_max_lane(vec v)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* Return v rounded to integers, and x * 2^n for integral n in [-126, 127]. */
static inline vec vec_round(vec v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vec vec_scale2(vec x, vec n)
{
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(power));
}

/* Return v - floor(v), and x * 2^floor(n) for n from -126 to 127. */
static inline vec vec_fraction(vec v) { return _mm256_sub_ps(v, _mm256_floor_ps(v)); }
static inline vec vec_scale_floor(vec x, vec n) { return vec_scale2(x, _mm256_floor_ps(n)); }

static ALWAYS_INLINE vec vec_fold(vec a, vec b, bool sums) { return sums ? vec_add(a, b) : vec_max(a, b); }
static ALWAYS_INLINE vec vec_fold_lanes(const vec *v, bool sums)
{
    vec ab = vec_fold(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]), sums);
    vec cd = vec_fold(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]), sums);
    __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    vec m = vec_fold(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)), sums);
    m = vec_fold(m, _mm256_permute2f128_ps(m, m, 1), sums);
    return _mm256_blend_ps(m, _mm256_setzero_ps(), 0xF0);
}

/* Return in lane i < VEC_TILE the largest of v[i], which holds no NaNs, or its sum, in the same order for all; 0 in
 * other lanes. */
static inline vec vec_max_lanes(const vec *v) { return vec_fold_lanes(v, false); }
static inline vec vec_sum_lanes(const vec *v) { return vec_fold_lanes(v, true); }

/* Returns a where x < y, else b. */
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}

/* Returns bit i set if lane i of x is greater than or equal to that of y; not set if either is NaN. */
static inline unsigned vec_at_least(vec x, vec y)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_GE_OQ));
}

/* Return even lanes a - b and odd lanes a + b; each pair of lanes swapped; n numbers, each in two adjacent lanes. */
static inline vec vec_addsub(vec a, vec b) { return _mm256_addsub_ps(a, b); }
static inline vec vec_swap_pairs(vec v) { return _mm256_permute_ps(v, 0xB1); }
static inline vec vec_load_doubled(const float *p, size_t n) /* n: numbers to read, up to VEC_LANES / 2 */
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(vec_load_part(p, n < 4 ? n : 4), twice);
}

/* Integers: VEC_LANES of 32 bits, or twice as many of 16. */
typedef __m256i ivec;
static inline ivec ivec_set1(int32_t i) { return _mm256_set1_epi32(i); }
static inline ivec ivec_load(const void *p) { return _mm256_loadu_si256(p); }
static inline void ivec_store(void *p, ivec v) { _mm256_storeu_si256(p, v); }
/* Returns acc + a[2i] * b[2i] + a[2i+1] * b[2i+1] of 16-bit numbers in each 32-bit lane. */
static inline ivec ivec_dot16(ivec acc, ivec a, ivec b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
static inline vec vec_from_int(ivec v) { return _mm256_cvtepi32_ps(v); }
static inline ivec vec_to_int(vec v) { return _mm256_cvtps_epi32(v); } /* nearest even */
/* Returns low | high << 16, for low in 0 .. 65535. */
static inline ivec ivec_pair(ivec low, ivec high) { return _mm256_or_si256(low, _mm256_slli_epi32(high, 16)); }
static inline ivec ivec_and(ivec a, ivec b) { return _mm256_and_si256(a, b); }
static inline ivec ivec_shift_right4(ivec a) { return _mm256_srli_epi32(a, 4); }
static inline ivec ivec_add(ivec a, ivec b) { return _mm256_add_epi32(a, b); }
static inline ivec ivec_sub16(ivec a, ivec b) { return _mm256_sub_epi16(a, b); }
/* Widen 8 bits: signed to 2 * VEC_LANES of 16 bits; unsigned to VEC_LANES of 32. */
static inline ivec ivec_widen_i8(const void *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(p)); }
static inline ivec ivec_widen_u8(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }

/* Sums of doubles. */
struct vec_sum64 {
    __m256d half[2];
};
static inline struct vec_sum64 vec_sum64_zero(void)
{
    return (struct vec_sum64){{_mm256_setzero_pd(), _mm256_setzero_pd()}};
}
static inline void vec_sum64_add(struct vec_sum64 *s, vec v)
{
    s->half[0] = _mm256_add_pd(s->half[0], _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    s->half[1] = _mm256_add_pd(s->half[1], _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}
static inline double vec_sum64_total(const struct vec_sum64 *s)
{
    double d[4];
    _mm256_storeu_pd(d, _mm256_add_pd(s->half[0], s->half[1]));
    return (d[0] + d[2]) + (d[1] + d[3]);
}

#endif
