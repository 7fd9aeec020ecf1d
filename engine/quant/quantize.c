/* Encodes rows as blocks: the float types, and blocks of 32 values with their own scale, or scale and minimum. Layouts:
 * ggml-common.h, llama.cpp b11434. */
#include "engine/quant/quantize.h"

#include "engine/quant/quantize_internal.h"

#include <math.h>

enum { CODES = QUANTIZE_BLOCK };

static const float largest_half = 65504.0f;

/* --- blocks of 32 ------------------------------------------------------------------------------------------------- */

static void put_u16(uint8_t *at, uint16_t v) { memcpy(at, &v, sizeof v); }

/* Stores the first 16 values in low nibbles, the last 16 in high nibbles. */
static void put_nibbles(const uint8_t *codes, uint8_t *at)
{
    for (int i = 0; i < CODES / 2; i++) {
        at[i] = (uint8_t)((codes[i] & 15) | codes[i + CODES / 2] << 4);
    }
}

/* Stores the fifth bit of code i in bit i. */
static void put_fifth_bits(const uint8_t *codes, uint8_t *at)
{
    uint32_t bits = 0;
    for (int i = 0; i < CODES; i++) {
        bits |= (uint32_t)(codes[i] >> 4) << i;
    }
    memcpy(at, &bits, sizeof bits);
}

static void with_scale(const float *x, const float *w, int low, int high, uint8_t *dst, uint8_t codes[CODES])
{
    float d = quantize_half(quantize_fit_scale(x, w, CODES, low, high));
    put_u16(dst, dtype_f32_to_f16(d));
    (void)quantize_codes(x, w, CODES, low, high, (struct quantize_line){.scale = d}, codes);
}

static void with_line(const float *x, const float *w, int high, uint8_t *dst, uint8_t codes[CODES])
{
    struct quantize_line line = quantize_fit_line(x, w, CODES, high, false);
    line = (struct quantize_line){.scale = quantize_half(line.scale), .min = quantize_half(line.min)};
    put_u16(dst, dtype_f32_to_f16(line.scale));
    put_u16(dst + 2, dtype_f32_to_f16(line.min));
    (void)quantize_codes(x, w, CODES, 0, high, line, codes);
}

static void quantize_q4_0(const float *x, const float *w, uint8_t *dst)
{
    uint8_t codes[CODES];
    with_scale(x, w, -8, 7, dst, codes);
    put_nibbles(codes, dst + 2);
}

static void quantize_q5_0(const float *x, const float *w, uint8_t *dst)
{
    uint8_t codes[CODES];
    with_scale(x, w, -16, 15, dst, codes);
    put_fifth_bits(codes, dst + 2);
    put_nibbles(codes, dst + 6);
}

static void quantize_q8_0(const float *x, const float *w, uint8_t *dst)
{
    uint8_t codes[CODES];
    with_scale(x, w, -127, 127, dst, codes); /* not -128, which readers can negate */
    for (int i = 0; i < CODES; i++) {
        dst[2 + i] = (uint8_t)(codes[i] - 127);
    }
}

static void quantize_q4_1(const float *x, const float *w, uint8_t *dst)
{
    uint8_t codes[CODES];
    with_line(x, w, 15, dst, codes);
    put_nibbles(codes, dst + 4);
}

static void quantize_q5_1(const float *x, const float *w, uint8_t *dst)
{
    uint8_t codes[CODES];
    with_line(x, w, 31, dst, codes);
    put_fifth_bits(codes, dst + 4);
    put_nibbles(codes, dst + 8);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

typedef void (*block_fn)(const float *x, const float *w, uint8_t *dst);

static const block_fn blocks[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = quantize_q4_0, [DTYPE_Q4_1] = quantize_q4_1, [DTYPE_Q5_0] = quantize_q5_0,
    [DTYPE_Q5_1] = quantize_q5_1, [DTYPE_Q8_0] = quantize_q8_0, [DTYPE_Q4_K] = quantize_q4_k,
    [DTYPE_Q5_K] = quantize_q5_k, [DTYPE_Q6_K] = quantize_q6_k,
};

bool quantize_can(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 ||
           ((unsigned)type < DTYPE_COUNT && blocks[type] != NULL);
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
        blocks[type](x + i, w, to);
    }
    return true;
}
