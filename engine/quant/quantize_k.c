/* K blocks: 256 values in 8 or 16 parts, whose scales (and minimums) are small integers in units of the block. First
 * each part is fitted separately, then units are chosen for the scales of all parts. Then, twice, integers near the
 * rounded ones are tried and judged by their part's real error, and least squares updates the units. Layouts:
 * ggml-common.h, llama.cpp b11434. */
#include "engine/quant/quantize_internal.h"

#include <math.h>

enum { LANES = QUANTIZE_LANES, SUPER = QUANTIZE_SUPER, MAX_PARTS = 16, ROUNDS = 1 };

/* Returns a unit, as a half, so that value[i] ~ unit * integer, |integer| <= `high`, with the least sum of weight *
 * squared error. The largest value gets an integer near `high`. */
static float choose_unit(const float *value, const float *weight, int n, float high)
{
    float peak = 0, best = INFINITY, unit = 0;
    for (int i = 0; i < n; i++) {
        peak = fabsf(value[i]) > fabsf(peak) ? value[i] : peak;
    }
    if (peak == 0) {
        return 0;
    }
    for (int k = 0; k < 24; k++) {
        float u = quantize_half(peak / (high * (1 - (float)k / 64))), lost = 0;
        for (int i = 0; i < n && u != 0; i++) {
            float off = value[i] - u * quantize_code(value[i] / u, -fabsf(high), fabsf(high));
            lost += weight[i] * off * off;
        }
        if (u != 0 && lost < best) {
            best = lost;
            unit = u;
        }
    }
    return unit;
}

/* --- fitting ------------------------------------------------------------------------------------------------------ */

/* What a type stores of a block; a constant, which is folded into a copy of the functions below. */
struct form {
    int parts, part;         /* number of parts, values of one */
    int low, high;           /* range of codes */
    int low_step, high_step; /* of integers for scales; for minimums 0..high_step */
    bool has_min;
};

struct k_block {
    float d, dmin; /* halves; d of either sign without minimums, else >= 0 */
    int scale[MAX_PARTS], min[MAX_PARTS];
    uint8_t codes[SUPER];
    float lost;
};

static ALWAYS_INLINE struct quantize_line line_of(const struct form *f, const struct k_block *b, int scale, int min)
{
    return (struct quantize_line){.scale = b->d * (float)scale, .min = f->has_min ? -(b->dmin * (float)min) : 0};
}

static ALWAYS_INLINE struct quantize_values part_of(const struct quantize_values *v, const struct form *f, int part)
{
    return (struct quantize_values){v->x + f->part * part, v->w + f->part * part, f->part};
}

static ALWAYS_INLINE void make_codes(const struct quantize_values *v, const struct form *f, struct k_block *b)
{
    b->lost = 0;
    for (int j = 0; j < f->parts; j++) {
        b->lost += quantize_codes(part_of(v, f, j), f->low, f->high, line_of(f, b, b->scale[j], b->min[j]),
                                  b->codes + f->part * j);
    }
}

static ALWAYS_INLINE int limit(int v, int low, int high) { return MIN_OF(MAX_OF(v, low), high); }

/* Sets the integers of one part to the best near the current ones: of 16 scales, or of three scales and five
 * minimums. */
static ALWAYS_INLINE void settle_part(const struct quantize_values *v, const struct form *f, struct k_block *b,
                                      int part)
{
    float scale[LANES], min[LANES], err[LANES];
    int best = 0, s[LANES], m[LANES];
    const struct quantize_values values = part_of(v, f, part);
    for (int l = 0; l < LANES; l++) {
        int off = f->has_min ? (l % 15) / 5 - 1 : (l + 1) / 2 * (l % 2 == 0 ? 1 : -1); /* nearest first */
        s[l] = limit(b->scale[part] + off, f->low_step, f->high_step);
        m[l] = f->has_min ? limit(b->min[part] + (l % 15) % 5 - 2, 0, f->high_step) : 0;
        struct quantize_line line = line_of(f, b, s[l], m[l]);
        scale[l] = line.scale;
        min[l] = line.min;
    }
    quantize_try_lines(&values, f->low, f->high, scale, min, err);
    for (int l = 1; l < LANES; l++) {
        best = err[l] < err[best] ? l : best;
    }
    b->scale[part] = s[best];
    b->min[part] = m[best];
}

/* Computes d and dmin for the current codes and integers. */
static ALWAYS_INLINE void settle_units(const struct quantize_values *v, const struct form *f, struct k_block *b)
{
    float uu = 0, um = 0, mm = 0, ux = 0, mx = 0; /* x ~ d u + dmin m */
    for (int i = 0, j = 0; j < f->parts; j++) {
        float m = -(float)b->min[j];
        for (int end = i + f->part; i < end; i++) {
            float u = (float)(b->scale[j] * ((int)b->codes[i] + f->low));
            uu += v->w[i] * u * u;
            um += v->w[i] * u * m;
            mm += v->w[i] * m * m;
            ux += v->w[i] * u * v->x[i];
            mx += v->w[i] * m * v->x[i];
        }
    }
    float det = uu * mm - um * um;
    bool has_both = det > 1e-6f * uu * mm;
    float d = has_both ? (mm * ux - um * mx) / det : uu > 0 ? (ux - um * b->dmin) / uu : 0;
    float dmin = has_both ? (uu * mx - um * ux) / det : b->dmin;
    if (f->has_min ? d > 0 && dmin >= 0 : uu > 0) {
        b->d = quantize_half(d);
        b->dmin = quantize_half(dmin);
    }
}

static ALWAYS_INLINE void fit_block(const struct quantize_values *v, const struct form *f, struct k_block *b)
{
    float scales[MAX_PARTS], mins[MAX_PARTS], scale_weights[MAX_PARTS], min_weights[MAX_PARTS];
    for (int j = 0; j < f->parts; j++) {
        const struct quantize_values part = part_of(v, f, j);
        struct quantize_line line = {.min = 0};
        if (f->has_min) {
            line = quantize_fit_line(&part, f->high, true);
        } else {
            line.scale = quantize_fit_scale(&part, f->low, f->high);
        }
        (void)quantize_codes(part, f->low, f->high, line, b->codes + f->part * j);
        scales[j] = line.scale;
        mins[j] = -line.min;
        scale_weights[j] = min_weights[j] = 0;
        for (int i = 0; i < f->part; i++) {
            float q = (float)((int)b->codes[f->part * j + i] + f->low);
            scale_weights[j] += part.w[i] * q * q;
            min_weights[j] += part.w[i];
        }
    }
    b->d = choose_unit(scales, scale_weights, f->parts, (float)(f->has_min ? f->high_step : f->low_step));
    b->dmin = f->has_min ? choose_unit(mins, min_weights, f->parts, (float)f->high_step) : 0;
    for (int j = 0; j < f->parts; j++) {
        b->scale[j] = b->d != 0 ? (int)quantize_code(scales[j] / b->d, (float)f->low_step, (float)f->high_step) : 0;
        b->min[j] = b->dmin != 0 ? (int)quantize_code(mins[j] / b->dmin, 0, (float)f->high_step) : 0;
    }
}

static ALWAYS_INLINE void search_block(const float *x, const float *w, const struct form *f, struct k_block *best)
{
    const struct quantize_values v = {x, w, SUPER};
    struct k_block b;
    fit_block(&v, f, &b);
    best->lost = INFINITY;
    for (int round = 0; round <= ROUNDS; round++) {
        for (int j = 0; j < f->parts; j++) {
            settle_part(&v, f, &b, j);
        }
        make_codes(&v, f, &b);
        if (!(b.lost < best->lost)) {
            break;
        }
        *best = b;
        settle_units(&v, f, &b);
    }
}

/* --- scales and minimums: Q4_K, Q5_K ------------------------------------------------------------------------------ */

enum { PARTS = 8, PART = SUPER / PARTS, HIGH_STEP = 63 };

/* Stores halves d and dmin, then six bits for each scale and minimum. The first four of each are in the low bits of
 * bytes 0..3 and 4..7. The others have their low four bits in bytes 8..11 and their high two in the top bits of bytes
 * 0..7. */
static void put_scales(const struct k_block *b, uint8_t *dst)
{
    uint16_t d = dtype_f32_to_f16(b->d), dmin = dtype_f32_to_f16(b->dmin);
    uint8_t *packed = dst + 4;
    memcpy(dst, &d, sizeof d);
    memcpy(dst + 2, &dmin, sizeof dmin);
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(b->scale[j] | b->scale[j + 4] >> 4 << 6);
        packed[j + 4] = (uint8_t)(b->min[j] | b->min[j + 4] >> 4 << 6);
        packed[j + 8] = (uint8_t)((b->scale[j + 4] & 15) | (b->min[j + 4] & 15) << 4);
    }
}

/* Stores two parts in 32 bytes: even parts in the low nibbles, odd in the high. */
static void put_nibbles(const uint8_t *codes, uint8_t *dst)
{
    for (int i = 0; i < SUPER / 2; i++) {
        int low = i / PART * 2 * PART + i % PART;
        dst[i] = (uint8_t)((codes[low] & 15) | (codes[low + PART] & 15) << 4);
    }
}

void quantize_q4_k(const float *x, const float *w, uint8_t *dst)
{
    struct k_block b;
    search_block(x, w, &(struct form){PARTS, PART, 0, 15, 0, HIGH_STEP, true}, &b);
    put_scales(&b, dst);
    put_nibbles(b.codes, dst + 16);
}

void quantize_q5_k(const float *x, const float *w, uint8_t *dst)
{
    struct k_block b;
    search_block(x, w, &(struct form){PARTS, PART, 0, 31, 0, HIGH_STEP, true}, &b);
    put_scales(&b, dst);
    for (int i = 0; i < PART; i++) { /* bit j of byte i is the fifth of value i of part j */
        int bits = 0;
        for (int j = 0; j < PARTS; j++) {
            bits |= b.codes[PART * j + i] >> 4 << j;
        }
        dst[16 + i] = (uint8_t)bits;
    }
    put_nibbles(b.codes, dst + 48);
}

/* --- scales alone: Q6_K ------------------------------------------------------------------------------------------- */

/* Layout: 128 bytes of low nibbles, 64 of high bit pairs, 16 scales, d. In each half of 128 values, four runs of 32
 * share bytes. The first two are in the low nibbles of 64 bytes, the others in the high; all four are in the bit pairs
 * of 32 bytes. */
void quantize_q6_k(const float *x, const float *w, uint8_t *dst)
{
    struct k_block b;
    search_block(x, w, &(struct form){MAX_PARTS, SUPER / MAX_PARTS, -32, 31, -128, 127, false}, &b);
    for (int i = 0; i < SUPER / 2; i++) {
        const uint8_t *c = b.codes + i / 64 * 128 + i % 64;
        dst[i] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
    }
    for (int i = 0; i < SUPER / 4; i++) {
        const uint8_t *c = b.codes + i / 32 * 128 + i % 32;
        dst[128 + i] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
    for (int j = 0; j < MAX_PARTS; j++) {
        dst[192 + j] = (uint8_t)(int8_t)b.scale[j];
    }
    uint16_t d = dtype_f32_to_f16(b.d);
    memcpy(dst + 208, &d, sizeof d);
}
