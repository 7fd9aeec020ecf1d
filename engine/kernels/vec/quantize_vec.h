/* Quantizes activation rows to two 8-bit terms, for ISAs of 8 lanes. Include after a vec_<isa>.h and these functions:
 *   largest_bits(block): returns the largest of 32 magnitudes, as its bits.
 *   store_bytes(v, to, half): stores 32 bytes and -8 times their sums over each half; returns the sum of both. Values
 * beyond 127 become 127.
 * Bit for bit equal to ref: integer comparison of the bits finds the largest magnitude (a NaN or infinity is the
 * largest), and division, product and rounding are IEEE operations. */
#ifndef INFCGI_KERNELS_VEC_QUANTIZE_VEC_H
#define INFCGI_KERNELS_VEC_QUANTIZE_VEC_H

#include <math.h>
#include <string.h>

static void load(const float *x, size_t k, size_t b, vec *out)
{
    float padded[PANEL_BLOCK] = {0};
    const float *from = x + b * PANEL_BLOCK;
    if (k - b * PANEL_BLOCK < PANEL_BLOCK) {
        memcpy(padded, from, (k - b * PANEL_BLOCK) * sizeof *x);
        from = padded;
    }
    UNROLL_FULLY
    for (int i = 0; i < QUANTIZE_VECS; i++) {
        out[i] = vec_load(from + i * VEC_LANES);
    }
}

/* Returns the scale of a block; *inverse: its inverse. */
static float scale_of(const vec *x, float *inverse)
{
    uint32_t bits = largest_bits(x);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (bits >= INFINITY_BITS || amax < KERN_AMAX_LEAST) {
        *inverse = 0;
        return bits >= INFINITY_BITS ? NAN : 0;
    }
    *inverse = 127.0f / amax;
    return amax / 127.0f;
}

/* Computes both terms of a block. d and fine are set, and s holds the inverse of the scale. */
static void quantize_block(const vec *x, struct kern_qblock *q)
{
    ivec hi[QUANTIZE_VECS], lo[QUANTIZE_VECS];
    float inverse = q->s;
    UNROLL_FULLY
    for (int i = 0; i < QUANTIZE_VECS; i++) {
        hi[i] = vec_to_int(vec_mul(x[i], vec_set1(inverse)));
        hi[i] = inverse != 0 ? hi[i] : ivec_set1(0); /* 0 * infinity is not 0 */
        vec rest = vec_fma(vec_set1(-q->d), vec_from_int(hi[i]), x[i]);
        lo[i] = vec_to_int(vec_mul(rest, vec_set1(inverse * 256.0f)));
        lo[i] = q->fine != 0 && inverse != 0 ? lo[i] : ivec_set1(0);
    }
    q->zero = store_bytes(hi, q->hi, q->half);
    q->zero_lo = store_bytes(lo, q->lo, q->half_lo);
    q->s = q->d * ((float)((-256 * q->zero - q->zero_lo) / 8) * (1.0f / 256));
}

static inline void quantize_row(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    size_t n_blocks = kern_qrow_blocks(k);
    vec in[QUANTIZE_VECS];
    for (size_t b = 0; b < n_blocks; b++) {
        load(x, k, b, in);
        row[b].d = scale_of(in, &row[b].s); /* s holds the inverse until quantize_block */
    }
    float limit = kern_fine_limit(row, n_blocks, fine);
    for (size_t b = 0; b < n_blocks; b++) {
        load(x, k, b, in);
        row[b].fine = row[b].d * row[b].d > limit;
        quantize_block(in, &row[b]);
    }
}

#endif
