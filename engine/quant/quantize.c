/* Encodes rows as blocks: the float types, and blocks of 32 values with their own scale, or scale and minimum. Layouts:
 * ggml-common.h, llama.cpp b11434. */
#include "engine/quant/quantize.h"

#include "engine/quant/quantize_internal.h"

#include <math.h>

enum { CODES = QUANTIZE_BLOCK };

static const float largest_half = 65504.0f;

/* --- blocks of 32 ------------------------------------------------------------------------------------------------- */

static void put_u16(uint8_t *at, uint16_t v) { memcpy(at, &v, sizeof v); }

/* Stores the fifth bit of code i in bit i. */
static void put_fifth_bits(const uint8_t *codes, uint8_t *at)
{
    uint32_t bits = 0;
    for (int i = 0; i < CODES; i++) {
        bits |= (uint32_t)(codes[i] >> 4) << i;
    }
    memcpy(at, &bits, sizeof bits);
}

typedef void (*block_fn)(const float *x, const float *w, uint8_t *dst);

/* Types by their blocks: of 32 codes low..high with a scale, or with a scale and a minimum, or super-blocks. */
static const struct form {
    int low, high;
    bool has_min;
    block_fn super;
} forms[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = {-8, 7},
    [DTYPE_Q5_0] = {-16, 15},
    [DTYPE_Q8_0] = {-127, 127}, /* not -128: readers negate */
    [DTYPE_Q4_1] = {0, 15, true},
    [DTYPE_Q5_1] = {0, 31, true},
    [DTYPE_Q4_K] = {.super = quantize_q4_k},
    [DTYPE_Q5_K] = {.super = quantize_q5_k},
    [DTYPE_Q6_K] = {.super = quantize_q6_k},
};

/* Stores the scale, the minimum if any, the fifth bits of five-bit codes, and the codes. */
static void quantize_block(const struct form *f, const float *x, const float *w, uint8_t *dst)
{
    const struct quantize_values v = {x, w, CODES};
    struct quantize_line line = {.min = 0};
    uint8_t codes[CODES];
    if (f->has_min) {
        line = quantize_fit_line(&v, f->high, false);
        line.min = quantize_half(line.min);
    } else {
        line.scale = quantize_fit_scale(&v, f->low, f->high);
    }
    line.scale = quantize_half(line.scale);
    (void)quantize_codes(v, f->low, f->high, line, codes);
    put_u16(dst, dtype_f32_to_f16(line.scale));
    dst += 2;
    if (f->has_min) {
        put_u16(dst, dtype_f32_to_f16(line.min));
        dst += 2;
    }
    if (f->high - f->low == 31) {
        put_fifth_bits(codes, dst);
        dst += 4;
    }
    for (int i = 0; i < CODES && f->high == 127; i++) {
        dst[i] = (uint8_t)(codes[i] - 127);
    }
    for (int i = 0; i < CODES / 2 && f->high != 127; i++) { /* the last 16 values in high nibbles */
        dst[i] = (uint8_t)((codes[i] & 15) | codes[i + CODES / 2] << 4);
    }
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

bool quantize_can(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 ||
           ((unsigned)type < DTYPE_COUNT && (forms[type].high != 0 || forms[type].super != NULL));
}

/* Returns whether all values are finite and at most `limit` in magnitude. */
static bool all_within(const float *x, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i]) <= limit)) {
            return false;
        }
    }
    return true;
}

/* Writes the weights of a block, at most 1, so that sums stay in range. */
static void take_weights(const float *importance, size_t n, float *w)
{
    float most = 0;
    for (size_t i = 0; importance != NULL && i < n; i++) {
        most = importance[i] > most ? importance[i] : most;
    }
    for (size_t i = 0; i < n; i++) {
        w[i] = most > 0 ? importance[i] / most : 1.0f;
    }
}

static void float_row(enum dtype type, const float *x, size_t n, uint8_t *dst)
{
    if (type == DTYPE_F32) {
        memcpy(dst, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        put_u16(dst + 2 * i, type == DTYPE_F16 ? dtype_f32_to_f16(x[i]) : dtype_f32_to_bf16(x[i]));
    }
}

bool quantize_row(enum dtype type, const float *x, size_t n, const float *importance, void *dst)
{
    bool is_wide = type == DTYPE_F32 || type == DTYPE_BF16;
    if (!all_within(x, n, is_wide ? 3.3895314e38f : largest_half)) { /* the largest bfloat16 */
        return false;
    }
    if (is_wide || type == DTYPE_F16) {
        float_row(type, x, n, dst);
        return true;
    }
    const struct dtype_info *info = dtype_info(type);
    uint8_t *to = dst;
    float w[QUANTIZE_SUPER];
    for (size_t i = 0; i < n; i += info->block_elems, to += info->block_bytes) {
        take_weights(importance != NULL ? importance + i : NULL, info->block_elems, w);
        if (forms[type].super != NULL) {
            forms[type].super(x + i, w, to);
        } else {
            quantize_block(&forms[type], x + i, w, to);
        }
    }
    return true;
}
