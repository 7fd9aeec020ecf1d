/* Quantizes activation rows to two 8-bit terms, 128-bit. */
#include "engine/kernels/isa.h"

#include "engine/kernels/arm/vec_neon.h"
#include "engine/kernels/kern.h"

enum { INFINITY_BITS = 0x7F800000, SIGN_OFF = 0x7FFFFFFF, QUANTIZE_VECS = PANEL_BLOCK / VEC_LANES };

static uint32_t largest_bits(const vec *x)
{
    uint32x4_t most = vdupq_n_u32(0);
    UNROLL_FULLY
    for (int i = 0; i < QUANTIZE_VECS; i++) {
        most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(x[i].lo), vdupq_n_u32(SIGN_OFF)));
        most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(x[i].hi), vdupq_n_u32(SIGN_OFF)));
    }
    return vmaxvq_u32(most);
}

static int32_t store_bytes(const ivec *v, int8_t *to, int32_t *half)
{
    UNROLL_FULLY
    for (int i = 0; i < 2; i++) {
        int16x8_t first = vqmovn_high_s32(vqmovn_s32(v[2 * i].lo), v[2 * i].hi);
        int16x8_t second = vqmovn_high_s32(vqmovn_s32(v[2 * i + 1].lo), v[2 * i + 1].hi);
        int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(first), second);
        vst1q_s8(to + 16 * i, bytes);
        half[i] = -8 * vaddlvq_s8(bytes);
    }
    return half[0] + half[1];
}

#include "engine/kernels/vec/quantize_vec.h"

void kern_quantize_row_neon(const float *x, size_t k, float fine, struct kern_qblock *row)
{
    quantize_row(x, k, fine, row);
}
