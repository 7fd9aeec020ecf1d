/* Activation rows to int8, scalar. The definition stands in kern.h. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <math.h>
#include <string.h>

#define AMAX_LEAST 0x1p-119f /* below it amax / 127 would be subnormal */

/* Where block b of a row is written. */
struct block_out {
    int8_t *q;
    float *d, *s;
    int32_t *nsum; /* two */
};

static void quantize_block(const float *x, struct block_out o)
{
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < PANEL_BLOCK; i++) {
        amax = fmaxf(amax, fabsf(x[i]));
        finite = finite && isfinite(x[i]);
    }
    int32_t half_sum[2] = {0, 0};
    float inverse = finite && amax >= AMAX_LEAST ? 127.0f / amax : 0;
    for (int i = 0; i < PANEL_BLOCK; i++) {
        o.q[i] = inverse != 0 ? (int8_t)lrintf(x[i] * inverse) : 0;
        half_sum[i / 16] += o.q[i];
    }
    *o.d = !finite ? NAN : inverse != 0 ? amax / 127.0f : 0;
    *o.s = *o.d * (float)(half_sum[0] + half_sum[1]);
    o.nsum[0] = -half_sum[0];
    o.nsum[1] = -half_sum[1];
}

void kern_quantize_row_ref(const float *x, size_t k, void *row)
{
    unsigned char *p = row;
    int8_t *q = (int8_t *)p;
    float *d = (float *)(void *)(p + kern_qrow_d_offset(k));
    float *s = (float *)(void *)(p + kern_qrow_s_offset(k));
    int32_t *nsum = (int32_t *)(void *)(p + kern_qrow_nsum_offset(k));
    for (size_t b = 0; b * PANEL_BLOCK < k; b++) {
        size_t n = MIN_OF(k - b * PANEL_BLOCK, (size_t)PANEL_BLOCK);
        float padded[PANEL_BLOCK] = {0};
        memcpy(padded, x + b * PANEL_BLOCK, n * sizeof *x);
        quantize_block(padded, (struct block_out){q + b * PANEL_BLOCK, d + b, s + b, nsum + 2 * b});
    }
}
