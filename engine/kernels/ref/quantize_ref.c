/* Quantizes activation rows to two 8-bit terms, scalar, as kern.h defines. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <math.h>
#include <string.h>

/* Returns the scale of a block; NaN if an input is NaN or infinite. */
static float scale_of(const float *x, float *inverse)
{
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < PANEL_BLOCK; i++) {
        amax = fmaxf(amax, fabsf(x[i]));
        finite = finite && isfinite(x[i]);
    }
    *inverse = finite && amax >= KERN_AMAX_LEAST ? 127.0f / amax : 0;
    return !finite ? NAN : *inverse != 0 ? amax / 127.0f : 0;
}

float kern_fine_limit(const struct kern_qblock *row, size_t n_blocks, float fine)
{
    float sums[16] = {0};
    for (size_t b = 0; b < n_blocks; b++) {
        sums[b % 16] += row[b].d * row[b].d;
    }
    for (size_t width = 8; width >= 1; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            sums[i] += sums[i + width];
        }
    }
    return fine * fine * (sums[0] / (float)n_blocks);
}

static void load_block(const float *x, size_t k, size_t b, float *out)
{
    size_t n = MIN_OF(k - b * PANEL_BLOCK, (size_t)PANEL_BLOCK);
    memset(out, 0, PANEL_BLOCK * sizeof *out);
    memcpy(out, x + b * PANEL_BLOCK, n * sizeof *out);
}

/* Computes the terms of a block and their sums; d and fine are set. */
static void quantize_block(const float *x, float inverse, struct kern_qblock *q)
{
    int32_t sums[2] = {0, 0}, sums_lo[2] = {0, 0};
    for (int i = 0; i < PANEL_BLOCK; i++) {
        q->hi[i] = inverse != 0 ? (int8_t)lrintf(x[i] * inverse) : 0;
        long rest = q->fine != 0 ? lrintf(fmaf(-q->d, (float)q->hi[i], x[i]) * (inverse * 256.0f)) : 0;
        q->lo[i] = (int8_t)MIN_OF(rest, 127L); /* at least -128: |x - d * hi| <= d / 2 */
        sums[i / 16] += q->hi[i];
        sums_lo[i / 16] += q->lo[i];
    }
    for (int i = 0; i < 2; i++) {
        q->half[i] = -8 * sums[i];
        q->half_lo[i] = -8 * sums_lo[i];
    }
    q->zero = q->half[0] + q->half[1];
    q->zero_lo = q->half_lo[0] + q->half_lo[1];
    q->s = q->d * ((float)(256 * (sums[0] + sums[1]) + sums_lo[0] + sums_lo[1]) * (1.0f / 256));
}

void kern_quantize_row_ref(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    float block[PANEL_BLOCK], inverse;
    size_t n_blocks = kern_qrow_blocks(k);
    for (size_t b = 0; b < n_blocks; b++) {
        load_block(x, k, b, block);
        row[b].d = scale_of(block, &inverse);
    }
    float limit = kern_fine_limit(row, n_blocks, fine);
    for (size_t b = 0; b < n_blocks; b++) {
        load_block(x, k, b, block);
        scale_of(block, &inverse);
        row[b].fine = row[b].d * row[b].d > limit;
        quantize_block(block, inverse, &row[b]);
    }
}
