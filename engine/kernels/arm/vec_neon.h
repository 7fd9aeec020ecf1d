/* Eight floats of Advanced SIMD in two registers, under the names that the shared kernel bodies (ops_vec.h,
 * attention_vec.h) use. Two registers are as wide as AVX2's vector, so sums have the same order and loops have more
 * work per iteration. Everything is static, as for the other ISAs. */
#ifndef INFCGI_KERNELS_ARM_VEC_NEON_H
#define INFCGI_KERNELS_ARM_VEC_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float32x4_t lo, hi;
} vec;
enum { VEC_LANES = 8 };
#define VEC_TILE                                                                                                       \
    4 /* queries of an attention tile: 4 x 2 sums, 2 widened, 1 broadcast, each but the last two registers, of 32; the \
         preprocessor compares it */

static inline vec vec_set1(float f) { return (vec){vdupq_n_f32(f), vdupq_n_f32(f)}; }
static inline vec vec_load(const float *p) { return (vec){vld1q_f32(p), vld1q_f32(p + 4)}; }
static inline void vec_store(float *p, vec v)
{
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
}
static inline vec vec_load_part(const float *p, size_t n)
{
    if (n >= 8) {
        return vec_load(p);
    }
    float f[8] = {0};
    memcpy(f, p, n * sizeof *f);
    return vec_load(f);
}
static inline void vec_store_part(float *p, vec v, size_t n)
{
    if (n >= 8) {
        vec_store(p, v);
        return;
    }
    float f[8];
    vec_store(f, v);
    memcpy(p, f, n * sizeof *f);
}
static inline vec vec_load_f16(const uint16_t *p)
{
    float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
    return (vec){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
static inline vec vec_load_f16_part(const uint16_t *p, size_t n)
{
    uint16_t h[8] = {0};
    memcpy(h, p, (n >= 8 ? 8 : n) * sizeof *h);
    return vec_load_f16(h);
}
static inline void vec_store_f16_part(uint16_t *p, vec v, size_t n)
{
    uint16_t h[8];
    vst1q_u16(h, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.lo), v.hi)));
    memcpy(p, h, (n >= 8 ? 8 : n) * sizeof *h);
}
static inline vec vec_load_bf16(const uint16_t *p)
{
    uint16x8_t h = vld1q_u16(p);
    return (vec){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                 vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
}
static inline vec vec_load_bf16_part(const uint16_t *p, size_t n)
{
    uint16_t h[8] = {0};
    memcpy(h, p, (n >= 8 ? 8 : n) * sizeof *h);
    return vec_load_bf16(h);
}
static inline void vec_prefetch(const void *p) { __builtin_prefetch(p); }
static inline vec vec_add(vec a, vec b) { return (vec){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
static inline vec vec_sub(vec a, vec b) { return (vec){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
static inline vec vec_mul(vec a, vec b) { return (vec){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
static inline vec vec_div(vec a, vec b) { return (vec){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }
static inline vec vec_abs(vec v) { return (vec){vabsq_f32(v.lo), vabsq_f32(v.hi)}; }
static inline vec vec_fma(vec a, vec b, vec c) /* a*b + c */
{
    return (vec){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

/* Returns a where x < y, else b. */
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    return (vec){vbslq_f32(vcltq_f32(x.lo, y.lo), a.lo, b.lo), vbslq_f32(vcltq_f32(x.hi, y.hi), a.hi, b.hi)};
}

/* Returns bit i set if lane i of x is greater than or equal to that of y; not set if either is NaN. */
static inline unsigned vec_at_least(vec x, vec y)
{
    static const uint16_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t lanes = vmovn_high_u32(vmovn_u32(vcgeq_f32(x.lo, y.lo)), vcgeq_f32(x.hi, y.hi));
    return vaddvq_u16(vandq_u16(lanes, vld1q_u16(bit)));
}

/* A NaN in b is returned; a NaN in a is not. (fmax would return both, fmaxnm neither.) */
static inline vec vec_max(vec a, vec b) { return vec_if_less(b, a, a, b); }
static inline vec vec_min(vec a, vec b) { return vec_if_less(a, b, a, b); }

/* Returns v where from <= lane index + first <= last, else `other`. */
static inline vec vec_keep_range(vec v, vec other, int32_t first, int32_t from, int32_t last)
{
    static const int32_t lane[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32x4_t lo = vaddq_s32(vld1q_s32(lane), vdupq_n_s32(first));
    int32x4_t hi = vaddq_s32(vld1q_s32(lane + 4), vdupq_n_s32(first));
    int32x4_t least = vdupq_n_s32(from), most = vdupq_n_s32(last);
    return (vec){vbslq_f32(vandq_u32(vcgeq_s32(lo, least), vcleq_s32(lo, most)), v.lo, other.lo),
                 vbslq_f32(vandq_u32(vcgeq_s32(hi, least), vcleq_s32(hi, most)), v.hi, other.hi)};
}

/* Returns the sum by halves: lanes i and i + 4, then i + 2, i + 1. */
static inline float vec_sum(vec v)
{
    float32x4_t b = vaddq_f32(v.lo, v.hi);
    return vpadds_f32(vadd_f32(vget_low_f32(b), vget_high_f32(b)));
}

static inline float vec_max_lane(vec v) { return vmaxnmvq_f32(vmaxnmq_f32(v.lo, v.hi)); }

/* Return v rounded to integers, and x * 2^n for integral n in [-126, 127]. */
static inline vec vec_round(vec v) { return (vec){vrndnq_f32(v.lo), vrndnq_f32(v.hi)}; }
static inline float32x4_t vec_power2(float32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline vec vec_scale2(vec x, vec n)
{
    return (vec){vmulq_f32(x.lo, vec_power2(n.lo)), vmulq_f32(x.hi, vec_power2(n.hi))};
}

/* Return v - floor(v), and x * 2^floor(n) for n from -126 to 127. */
static inline vec vec_floor(vec v) { return (vec){vrndmq_f32(v.lo), vrndmq_f32(v.hi)}; }
static inline vec vec_fraction(vec v) { return vec_sub(v, vec_floor(v)); }
static inline vec vec_scale_floor(vec x, vec n) { return vec_scale2(x, vec_floor(n)); }

/* Returns the largest of v[i] in lane i < VEC_TILE, and 0 in other lanes. v holds no NaNs. */
static inline vec vec_max_lanes(const vec *v)
{
    float32x4_t a = vmaxq_f32(v[0].lo, v[0].hi), b = vmaxq_f32(v[1].lo, v[1].hi);
    float32x4_t c = vmaxq_f32(v[2].lo, v[2].hi), d = vmaxq_f32(v[3].lo, v[3].hi);
    return (vec){vpmaxq_f32(vpmaxq_f32(a, b), vpmaxq_f32(c, d)), vdupq_n_f32(0)};
}

/* Returns the sum of v[i] in lane i < VEC_TILE, in the same order for all, and 0 in other lanes. */
static inline vec vec_sum_lanes(const vec *v)
{
    float32x4_t a = vaddq_f32(v[0].lo, v[0].hi), b = vaddq_f32(v[1].lo, v[1].hi);
    float32x4_t c = vaddq_f32(v[2].lo, v[2].hi), d = vaddq_f32(v[3].lo, v[3].hi);
    return (vec){vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)), vdupq_n_f32(0)};
}

/* Return even lanes a - b and odd lanes a + b; each pair of lanes swapped; n numbers, each in two adjacent lanes. */
static inline vec vec_addsub(vec a, vec b)
{
    const uint32x4_t bits = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000)); /* sign of even lanes */
    float32x4_t lo = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(b.lo), bits));
    float32x4_t hi = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(b.hi), bits));
    return (vec){vaddq_f32(a.lo, lo), vaddq_f32(a.hi, hi)}; /* a + -b is a - b to the bit */
}
static inline vec vec_swap_pairs(vec v) { return (vec){vrev64q_f32(v.lo), vrev64q_f32(v.hi)}; }
static inline vec vec_load_doubled(const float *p, size_t n) /* n: numbers to read, up to VEC_LANES / 2 */
{
    float f[4] = {0};
    memcpy(f, p, (n < 4 ? n : 4) * sizeof *f);
    float32x4_t v = vld1q_f32(f);
    return (vec){vzip1q_f32(v, v), vzip2q_f32(v, v)};
}

/* Integers: VEC_LANES of 32 bits, or 2 * VEC_LANES of 16. */
typedef struct {
    int32x4_t lo, hi;
} ivec;
static inline ivec ivec_set1(int32_t i) { return (ivec){vdupq_n_s32(i), vdupq_n_s32(i)}; }
static inline ivec ivec_load(const void *p) { return (ivec){vld1q_s32(p), vld1q_s32((const int32_t *)p + 4)}; }
static inline void ivec_store(void *p, ivec v)
{
    vst1q_s32(p, v.lo);
    vst1q_s32((int32_t *)p + 4, v.hi);
}
/* Returns acc + a[2i] * b[2i] + a[2i+1] * b[2i+1] of 16-bit numbers in each 32-bit lane. */
static inline int32x4_t ivec_dot16_half(int32x4_t acc, int32x4_t a32, int32x4_t b32)
{
    int16x8_t a = vreinterpretq_s16_s32(a32), b = vreinterpretq_s16_s32(b32);
    return vaddq_s32(acc, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
}
static inline ivec ivec_dot16(ivec acc, ivec a, ivec b)
{
    return (ivec){ivec_dot16_half(acc.lo, a.lo, b.lo), ivec_dot16_half(acc.hi, a.hi, b.hi)};
}
static inline vec vec_from_int(ivec v) { return (vec){vcvtq_f32_s32(v.lo), vcvtq_f32_s32(v.hi)}; }
static inline ivec vec_to_int(vec v) { return (ivec){vcvtnq_s32_f32(v.lo), vcvtnq_s32_f32(v.hi)}; } /* nearest even */
/* Returns low | high << 16, for low in 0 .. 65535. */
static inline ivec ivec_pair(ivec low, ivec high)
{
    return (ivec){vsliq_n_s32(low.lo, high.lo, 16), vsliq_n_s32(low.hi, high.hi, 16)};
}
static inline ivec ivec_and(ivec a, ivec b) { return (ivec){vandq_s32(a.lo, b.lo), vandq_s32(a.hi, b.hi)}; }
static inline int32x4_t ivec_shift_half(int32x4_t a)
{
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), 4));
}
static inline ivec ivec_shift_right4(ivec a) { return (ivec){ivec_shift_half(a.lo), ivec_shift_half(a.hi)}; }
static inline ivec ivec_add(ivec a, ivec b) { return (ivec){vaddq_s32(a.lo, b.lo), vaddq_s32(a.hi, b.hi)}; }
static inline int32x4_t ivec_sub16_half(int32x4_t a, int32x4_t b)
{
    return vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
static inline ivec ivec_sub16(ivec a, ivec b)
{
    return (ivec){ivec_sub16_half(a.lo, b.lo), ivec_sub16_half(a.hi, b.hi)};
}
/* Widen 8 bits: signed to 2 * VEC_LANES of 16 bits; unsigned to VEC_LANES of 32. */
static inline ivec ivec_widen_i8(const void *p)
{
    int8x16_t v = vld1q_s8(p);
    return (ivec){vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(v))), vreinterpretq_s32_s16(vmovl_high_s8(v))};
}
static inline ivec ivec_widen_u8(const void *p)
{
    uint16x8_t v = vmovl_u8(vld1_u8(p));
    return (ivec){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(v))), vreinterpretq_s32_u32(vmovl_high_u16(v))};
}

/* Sums of doubles, in lanes 0 1, 2 3, 4 5, 6 7. */
struct vec_sum64 {
    float64x2_t pairs[4];
};
static inline struct vec_sum64 vec_sum64_zero(void)
{
    float64x2_t zero = vdupq_n_f64(0);
    return (struct vec_sum64){{zero, zero, zero, zero}};
}
static inline void vec_sum64_add(struct vec_sum64 *s, vec v)
{
    s->pairs[0] = vaddq_f64(s->pairs[0], vcvt_f64_f32(vget_low_f32(v.lo)));
    s->pairs[1] = vaddq_f64(s->pairs[1], vcvt_high_f64_f32(v.lo));
    s->pairs[2] = vaddq_f64(s->pairs[2], vcvt_f64_f32(vget_low_f32(v.hi)));
    s->pairs[3] = vaddq_f64(s->pairs[3], vcvt_high_f64_f32(v.hi));
}
static inline double vec_sum64_total(const struct vec_sum64 *s)
{
    return vaddvq_f64(vaddq_f64(vaddq_f64(s->pairs[0], s->pairs[2]), vaddq_f64(s->pairs[1], s->pairs[3])));
}

#endif
