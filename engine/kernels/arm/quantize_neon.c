/* Activation rows to two 8-bit terms, 128-bit. Bit for bit what ref computes: the largest magnitude is found by integer
 * comparison of the bits (so a NaN or infinity comes out on top), and division, product and rounding are IEEE
 * operations. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#define AMAX_LEAST 0x1p-110f /* as in ref */
enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF, EIGHTHS = PANEL_BLOCK / 4 };

struct block {
    float32x4_t x[EIGHTHS];
};

static struct block load(const float *x, size_t k, size_t b)
{
    float padded[PANEL_BLOCK] = {0};
    const float *from = x + b * PANEL_BLOCK;
    if (k - b * PANEL_BLOCK < PANEL_BLOCK) {
        memcpy(padded, from, (k - b * PANEL_BLOCK) * sizeof *x);
        from = padded;
    }
    struct block out;
    UNROLL_FULLY
    for (int i = 0; i < EIGHTHS; i++) {
        out.x[i] = vld1q_f32(from + 4 * i);
    }
    return out;
}

/* The scale of a block and its inverse. */
static float scale_of(const struct block *x, float *inverse)
{
    uint32x4_t most = vdupq_n_u32(0);
    UNROLL_FULLY
    for (int i = 0; i < EIGHTHS; i++) {
        most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(x->x[i]), vdupq_n_u32(SIGN_OFF)));
    }
    uint32_t bits = vmaxvq_u32(most);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (bits >= INFINITY_BITS || amax < AMAX_LEAST) {
        *inverse = 0;
        return bits >= INFINITY_BITS ? NAN : 0;
    }
    *inverse = 127.0f / amax;
    return amax / 127.0f;
}

/* d^2 above which a block is fine. */
static float fine_limit(const struct kern_qblock *row, size_t n_blocks, float fine)
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

/* Stores 32 bytes and -8 times their sums over each half; returns both sums together. Values beyond 127 become 127. */
static int32_t store_bytes(const int32x4_t *v, int8_t *to, int32_t *half)
{
    UNROLL_FULLY
    for (int i = 0; i < 2; i++) {
        int16x8_t first = vqmovn_high_s32(vqmovn_s32(v[4 * i]), v[4 * i + 1]);
        int16x8_t second = vqmovn_high_s32(vqmovn_s32(v[4 * i + 2]), v[4 * i + 3]);
        int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(first), second);
        vst1q_s8(to + 16 * i, bytes);
        half[i] = -8 * vaddlvq_s8(bytes);
    }
    return half[0] + half[1];
}

/* Both terms of a block; d, the inverse in the place of s and fine are there. */
static void quantize_block(const struct block *x, struct kern_qblock *q)
{
    int32x4_t hi[EIGHTHS], lo[EIGHTHS];
    float inverse = q->s;
    UNROLL_FULLY
    for (int i = 0; i < EIGHTHS; i++) {
        hi[i] = vcvtnq_s32_f32(vmulq_n_f32(x->x[i], inverse));
        hi[i] = inverse != 0 ? hi[i] : vdupq_n_s32(0); /* 0 * infinity is not 0 */
        float32x4_t rest = vfmsq_n_f32(x->x[i], vcvtq_f32_s32(hi[i]), q->d);
        lo[i] = vcvtnq_s32_f32(vmulq_n_f32(rest, inverse * 256.0f));
        lo[i] = q->fine != 0 && inverse != 0 ? lo[i] : vdupq_n_s32(0);
    }
    q->zero = store_bytes(hi, q->hi, q->half);
    q->zero_lo = store_bytes(lo, q->lo, q->half_lo);
    q->s = q->d * ((float)((-256 * q->zero - q->zero_lo) / 8) * (1.0f / 256));
}

void kern_quantize_row_neon(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    size_t n_blocks = kern_qrow_blocks(k);
    for (size_t b = 0; b < n_blocks; b++) {
        struct block in = load(x, k, b);
        row[b].d = scale_of(&in, &row[b].s); /* s holds the inverse for a while */
    }
    float limit = fine_limit(row, n_blocks, fine);
    for (size_t b = 0; b < n_blocks; b++) {
        struct block in = load(x, k, b);
        row[b].fine = row[b].d * row[b].d > limit;
        quantize_block(&in, &row[b]);
    }
}
