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

/* --- scales and minimums: Q4_K, Q5_K ------------------------------------------------------------------------------ */

enum { PARTS = 8, PART = SUPER / PARTS, HIGH_STEP = 63 };

struct k_block {
    float d, dmin;                /* halves, >= 0 */
    int scale[PARTS], min[PARTS]; /* 0..63 */
    uint8_t codes[SUPER];
    float lost;
};

static struct quantize_line line_of(const struct k_block *b, int part)
{
    return (struct quantize_line){.scale = b->d * (float)b->scale[part], .min = -(b->dmin * (float)b->min[part])};
}

static void make_codes(const float *x, const float *w, int high, struct k_block *b)
{
    b->lost = 0;
    for (int j = 0; j < PARTS; j++) {
        b->lost += quantize_codes(x + PART * j, w + PART * j, PART, 0, high, line_of(b, j), b->codes + PART * j);
    }
}

/* Sets the integers of one part to the best of three scales and five minimums around the current ones. */
static void settle_part(const float *x, const float *w, int high, struct k_block *b, int part)
{
    float scale[LANES], min[LANES], err[LANES];
    int best = 0, s[LANES], m[LANES];
    for (int l = 0; l < LANES; l++) {
        s[l] = b->scale[part] + (l % 15) / 5 - 1;
        m[l] = b->min[part] + (l % 15) % 5 - 2;
        s[l] = s[l] < 0 ? 0 : s[l] > HIGH_STEP ? HIGH_STEP : s[l];
        m[l] = m[l] < 0 ? 0 : m[l] > HIGH_STEP ? HIGH_STEP : m[l];
        scale[l] = b->d * (float)s[l];
        min[l] = -(b->dmin * (float)m[l]);
    }
    quantize_try_lines(x + PART * part, w + PART * part, PART, 0, high, scale, min, err);
    for (int l = 1; l < LANES; l++) {
        best = err[l] < err[best] ? l : best;
    }
    b->scale[part] = s[best];
    b->min[part] = m[best];
}

/* Computes d and dmin for the current codes and integers. */
static void settle_units(const float *x, const float *w, struct k_block *b)
{
    float uu = 0, uv = 0, vv = 0, ux = 0, vx = 0; /* x ~ d u + dmin v */
    for (int i = 0; i < SUPER; i++) {
        float u = (float)(b->scale[i / PART] * b->codes[i]), v = -(float)b->min[i / PART];
        uu += w[i] * u * u;
        uv += w[i] * u * v;
        vv += w[i] * v * v;
        ux += w[i] * u * x[i];
        vx += w[i] * v * x[i];
    }
    float det = uu * vv - uv * uv;
    bool has_both = det > 1e-6f * uu * vv;
    float d = has_both ? (vv * ux - uv * vx) / det : uu > 0 ? (ux - uv * b->dmin) / uu : 0;
    float dmin = has_both ? (uu * vx - uv * ux) / det : b->dmin;
    if (d > 0 && dmin >= 0) {
        b->d = quantize_half(d);
        b->dmin = quantize_half(dmin);
    }
}

static void fit_block(const float *x, const float *w, int high, struct k_block *b)
{
    float scales[PARTS], mins[PARTS], scale_weights[PARTS], min_weights[PARTS];
    for (int j = 0; j < PARTS; j++) {
        const float *xj = x + PART * j, *wj = w + PART * j;
        struct quantize_line line = quantize_fit_line(xj, wj, PART, high, true);
        (void)quantize_codes(xj, wj, PART, 0, high, line, b->codes + PART * j);
        scales[j] = line.scale;
        mins[j] = -line.min;
        scale_weights[j] = min_weights[j] = 0;
        for (int i = 0; i < PART; i++) {
            float q = (float)b->codes[PART * j + i];
            scale_weights[j] += wj[i] * q * q;
            min_weights[j] += wj[i];
        }
    }
    b->d = choose_unit(scales, scale_weights, PARTS, HIGH_STEP);
    b->dmin = choose_unit(mins, min_weights, PARTS, HIGH_STEP);
    for (int j = 0; j < PARTS; j++) {
        b->scale[j] = b->d != 0 ? (int)quantize_code(scales[j] / b->d, 0, HIGH_STEP) : 0;
        b->min[j] = b->dmin != 0 ? (int)quantize_code(mins[j] / b->dmin, 0, HIGH_STEP) : 0;
    }
}

static void search_block(const float *x, const float *w, int high, struct k_block *best)
{
    struct k_block b;
    fit_block(x, w, high, &b);
    best->lost = INFINITY;
    for (int round = 0; round <= ROUNDS; round++) {
        for (int j = 0; j < PARTS; j++) {
            settle_part(x, w, high, &b, j);
        }
        make_codes(x, w, high, &b);
        if (!(b.lost < best->lost)) {
            break;
        }
        *best = b;
        settle_units(x, w, &b);
    }
}

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
    search_block(x, w, 15, &b);
    put_scales(&b, dst);
    put_nibbles(b.codes, dst + 16);
}

void quantize_q5_k(const float *x, const float *w, uint8_t *dst)
{
    struct k_block b;
    search_block(x, w, 31, &b);
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

enum { PARTS_6 = 16, PART_6 = SUPER / PARTS_6, LOW_6 = -32, HIGH_6 = 31 };

struct q6_block {
    float d;            /* a half, of either sign */
    int scale[PARTS_6]; /* -128..127 */
    uint8_t codes[SUPER];
    float lost;
};

static void settle_part_6(const float *x, const float *w, struct q6_block *b, int part)
{
    float scale[LANES], min[LANES] = {0}, err[LANES];
    int best = 0, s[LANES];
    for (int l = 0; l < LANES; l++) {
        s[l] = b->scale[part] + (l + 1) / 2 * (l % 2 == 0 ? 1 : -1); /* nearest first */
        s[l] = s[l] < -128 ? -128 : s[l] > 127 ? 127 : s[l];
        scale[l] = b->d * (float)s[l];
    }
    quantize_try_lines(x + PART_6 * part, w + PART_6 * part, PART_6, LOW_6, HIGH_6, scale, min, err);
    for (int l = 1; l < LANES; l++) {
        best = err[l] < err[best] ? l : best;
    }
    b->scale[part] = s[best];
}

static void settle_unit_6(const float *x, const float *w, struct q6_block *b)
{
    float uu = 0, ux = 0;
    for (int i = 0; i < SUPER; i++) {
        float u = (float)(b->scale[i / PART_6] * ((int)b->codes[i] + LOW_6));
        uu += w[i] * u * u;
        ux += w[i] * u * x[i];
    }
    b->d = uu > 0 ? quantize_half(ux / uu) : b->d;
}

static void fit_block_6(const float *x, const float *w, struct q6_block *b)
{
    float scales[PARTS_6], weights[PARTS_6];
    for (int j = 0; j < PARTS_6; j++) {
        const float *xj = x + PART_6 * j, *wj = w + PART_6 * j;
        scales[j] = quantize_fit_scale(xj, wj, PART_6, LOW_6, HIGH_6);
        (void)quantize_codes(xj, wj, PART_6, LOW_6, HIGH_6, (struct quantize_line){.scale = scales[j]},
                             b->codes + PART_6 * j);
        weights[j] = 0;
        for (int i = 0; i < PART_6; i++) {
            float q = (float)((int)b->codes[PART_6 * j + i] + LOW_6);
            weights[j] += wj[i] * q * q;
        }
    }
    b->d = choose_unit(scales, weights, PARTS_6, -128);
    for (int j = 0; j < PARTS_6; j++) {
        b->scale[j] = b->d != 0 ? (int)quantize_code(scales[j] / b->d, -128, 127) : 0;
    }
}

static void search_block_6(const float *x, const float *w, struct q6_block *best)
{
    struct q6_block b;
    fit_block_6(x, w, &b);
    best->lost = INFINITY;
    for (int round = 0; round <= ROUNDS; round++) {
        b.lost = 0;
        for (int j = 0; j < PARTS_6; j++) {
            settle_part_6(x, w, &b, j);
            b.lost += quantize_codes(x + PART_6 * j, w + PART_6 * j, PART_6, LOW_6, HIGH_6,
                                     (struct quantize_line){.scale = b.d * (float)b.scale[j]}, b.codes + PART_6 * j);
        }
        if (!(b.lost < best->lost)) {
            break;
        }
        *best = b;
        settle_unit_6(x, w, &b);
    }
}

/* Layout: 128 bytes of low nibbles, 64 of high bit pairs, 16 scales, d. In each half of 128 values, four runs of 32
 * share bytes. The first two are in the low nibbles of 64 bytes, the others in the high; all four are in the bit pairs
 * of 32 bytes. */
void quantize_q6_k(const float *x, const float *w, uint8_t *dst)
{
    struct q6_block b;
    search_block_6(x, w, &b);
    for (int i = 0; i < SUPER / 2; i++) {
        const uint8_t *c = b.codes + i / 64 * 128 + i % 64;
        dst[i] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
    }
    for (int i = 0; i < SUPER / 4; i++) {
        const uint8_t *c = b.codes + i / 32 * 128 + i % 32;
        dst[128 + i] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
    for (int j = 0; j < PARTS_6; j++) {
        dst[192 + j] = (uint8_t)(int8_t)b.scale[j];
    }
    uint16_t d = dtype_f32_to_f16(b.d);
    memcpy(dst + 208, &d, sizeof d);
}
