/* Searches that the quantizers share. Threads: pure functions. */
#ifndef INFCGI_QUANT_QUANTIZE_INTERNAL_H
#define INFCGI_QUANT_QUANTIZE_INTERNAL_H

#include "engine/tensor/dtype.h"

enum {
    QUANTIZE_BLOCK = 32,  /* maximum number of elements that share a scale */
    QUANTIZE_SUPER = 256, /* elements of a K block */
    QUANTIZE_LANES = 16,  /* candidates tried together, so that compilers use vectors */
};

/* Returns the nearest integer, ties to even; |v| < 2^22, so that its sum with 1.5 * 2^23 has no bits below one. */
static inline float quantize_nearest(float v) { return (v + 12582912.0f) - 12582912.0f; }

static inline float quantize_limit(float v, float low, float high)
{
    v = v < low ? low : v;
    return v > high ? high : v;
}

/* Returns the code of v = x / scale. */
static inline float quantize_code(float v, float low, float high)
{
    return quantize_nearest(quantize_limit(v, low, high));
}

static inline float quantize_half(float v) { return dtype_f16_to_f32(dtype_f32_to_f16(v)); }

/* The values of a block, and the weights of their squared errors, > 0 for one or more. */
struct quantize_values {
    const float *x, *w; /* [n] */
    int n;
};

/* Returns d, of either sign, so that d * code with codes low..high is near x. 0 if all x are 0. */
float quantize_fit_scale(const struct quantize_values *v, int low, int high);

struct quantize_line {
    float scale, min; /* scale >= 0 */
};

/* Returns the scale and min so that scale * code + min with codes 0..high is near x. below_zero: min <= 0. */
struct quantize_line quantize_fit_line(const struct quantize_values *v, int high, bool below_zero);

/* Writes the error of scale[lane] * code + min[lane], codes low..high, to err[lane]. */
void quantize_try_lines(const struct quantize_values *v, int low, int high, const float scale[QUANTIZE_LANES],
                        const float min[QUANTIZE_LANES], float err[QUANTIZE_LANES]);

/* Writes the codes minus `low` as bytes; returns the error. */
float quantize_codes(struct quantize_values v, int low, int high, struct quantize_line line, uint8_t *codes);

/* Encode super-blocks (quantize_k.c): x[256] with weights w[256] to the bytes of one block. */
void quantize_q4_k(const float *x, const float *w, uint8_t *dst);
void quantize_q5_k(const float *x, const float *w, uint8_t *dst);
void quantize_q6_k(const float *x, const float *w, uint8_t *dst);

#endif
