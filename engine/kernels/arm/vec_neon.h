/* Eight floats of Advanced SIMD in two registers, under the names that the shared kernel bodies (ops_vec.h,
 * attention_vec.h) use. Two registers and not one: as wide as AVX2's vector, so that sums are taken in the same order
 * and loops have twice as much to do at a time. Everything is static, as for the other ISAs. */
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
static inline void vec_prefetch(const void *p) { __builtin_prefetch(p); }
static inline vec vec_add(vec a, vec b) { return (vec){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
static inline vec vec_sub(vec a, vec b) { return (vec){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)}; }
static inline vec vec_mul(vec a, vec b) { return (vec){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
static inline vec vec_div(vec a, vec b) { return (vec){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)}; }
static inline vec vec_fma(vec a, vec b, vec c) /* a*b + c */
{
    return (vec){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

/* a where x < y, else b. */
static inline vec vec_if_less(vec x, vec y, vec a, vec b)
{
    return (vec){vbslq_f32(vcltq_f32(x.lo, y.lo), a.lo, b.lo), vbslq_f32(vcltq_f32(x.hi, y.hi), a.hi, b.hi)};
}

/* Bit i: lane i of x is at least that of y; not where either is NaN. */
static inline unsigned vec_at_least(vec x, vec y)
{
    static const uint16_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t lanes = vmovn_high_u32(vmovn_u32(vcgeq_f32(x.lo, y.lo)), vcgeq_f32(x.hi, y.hi));
    return vaddvq_u16(vandq_u16(lanes, vld1q_u16(bit)));
}

/* A NaN in b comes through; one in a does not. (fmax would let both through, fmaxnm neither.) */
static inline vec vec_max(vec a, vec b) { return vec_if_less(b, a, a, b); }
static inline vec vec_min(vec a, vec b) { return vec_if_less(a, b, a, b); }

/* v where from <= lane index + first <= last, else `other`. */
static inline vec vec_keep_range(vec v, vec other, int32_t first, int32_t from, int32_t last)
{
    static const int32_t lane[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32x4_t lo = vaddq_s32(vld1q_s32(lane), vdupq_n_s32(first));
    int32x4_t hi = vaddq_s32(vld1q_s32(lane + 4), vdupq_n_s32(first));
    int32x4_t least = vdupq_n_s32(from), most = vdupq_n_s32(last);
    return (vec){vbslq_f32(vandq_u32(vcgeq_s32(lo, least), vcleq_s32(lo, most)), v.lo, other.lo),
                 vbslq_f32(vandq_u32(vcgeq_s32(hi, least), vcleq_s32(hi, most)), v.hi, other.hi)};
}

/* Sum by halves: lanes i and i + 4, then i + 2, i + 1. */
static inline float vec_sum(vec v)
{
    float32x4_t b = vaddq_f32(v.lo, v.hi);
    return vpadds_f32(vadd_f32(vget_low_f32(b), vget_high_f32(b)));
}

static inline float vec_max_lane(vec v) { return vmaxnmvq_f32(vmaxnmq_f32(v.lo, v.hi)); }

/* v rounded to integers, and x * 2^n for integral n in [-126, 127]. */
static inline vec vec_round(vec v) { return (vec){vrndnq_f32(v.lo), vrndnq_f32(v.hi)}; }
static inline float32x4_t vec_power2(float32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline vec vec_scale2(vec x, vec n)
{
    return (vec){vmulq_f32(x.lo, vec_power2(n.lo)), vmulq_f32(x.hi, vec_power2(n.hi))};
}

/* Sums of doubles: lanes 0 1, 2 3, 4 5, 6 7. */
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
