/* Quantised products without a dot instruction: products of bytes are 16 bits wide (smull), added up there as far as
 * they fit (smlal) and then in pairs to 32 bits (sadalp).
 *   4-bit codes: 4 products of at most 15 * 128.
 *   8-bit codes, less 128: two products with the first term, 2 * 128 * 127 = 32,512; one with the second, whose -128
 *   would make two of them 32,768. */
#include "engine/kernels/isa.h"

#include <string.h>

enum { CODE_OFFSET = 128 };

#include "engine/kernels/arm/matmul_vec.h"

/* Four activation bytes in every lane. */
static ALWAYS_INLINE int8x16_t four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return vreinterpretq_s8_s32(vdupq_n_s32(v));
}

/* pairs[0] (lanes 0 1) and pairs[1] (lanes 2 3) += products of operands i .. i+count-1 of c and inputs of q. */
static ALWAYS_INLINE void add_products(const int8x16_t *c, const int8_t *q, int i, int count, int32x4_t *pairs)
{
    int8x16_t x = four_bytes(q + 4 * i);
    int16x8_t low = vmull_s8(vget_low_s8(c[i]), vget_low_s8(x)), high = vmull_high_s8(c[i], x);
    UNROLL_FULLY
    for (int j = i + 1; j < i + count; j++) {
        x = four_bytes(q + 4 * j);
        low = vmlal_s8(low, vget_low_s8(c[j]), vget_low_s8(x));
        high = vmlal_high_s8(high, c[j], x);
    }
    pairs[0] = vpadalq_s16(pairs[0], low);
    pairs[1] = vpadalq_s16(pairs[1], high);
}

static ALWAYS_INLINE void dot(const unsigned char *codes, const int8_t *const *q, int n, int quads, int bits,
                              bool is_lo, int32x4_t (*acc)[QUADS])
{
    const int count = bits == 4 ? 4 : is_lo ? 1 : 2; /* products that fit 16 bits */
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        int8x16_t c[4];
        UNROLL_FULLY
        for (int i = 0; i < 4; i++) {
            c[i] = vreinterpretq_s8_u8(operand(codes + 16 * v, bits, i));
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            int32x4_t pairs[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
            UNROLL_FULLY
            for (int i = 0; i < 4; i += count) {
                add_products(c, q[r], i, count, pairs);
            }
            acc[r][v] = vaddq_s32(acc[r][v], vpaddq_s32(pairs[0], pairs[1]));
        }
    }
}

void kern_matmul_init_neon(struct kern_table *t)
{
    matmul_init_4_bit(t);
    matmul_init_8_bit(t);
    kern_matmul_float_init_neon(t);
}
