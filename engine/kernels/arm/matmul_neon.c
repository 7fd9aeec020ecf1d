/* Quantised products without a dot instruction: products of bytes are 16 bits wide (smull), added up there as far as
 * they fit (smlal) and then in pairs to 32 bits (sadalp). Tiles are one quad wide, as 16-bit sums take two registers.
 *   4-bit codes: the 8 products of a block, 8 * 15 * 128 = 15,360.
 *   8-bit codes, less 128: two products with the first term, 2 * 128 * 127 = 32,512; one with the second, whose -128
 *   would make two of them 32,768.
 *   Codes of a table, less 128, are 127 at most: two products, 2 * 127 * 128 = 32,512. */
#include "engine/kernels/isa.h"

#include <string.h>

enum { CODE_OFFSET = 128, TILE_QUADS = 1 };

#include "engine/kernels/arm/matmul_vec.h"

/* Four activation bytes in every lane. */
static ALWAYS_INLINE int8x16_t four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return vreinterpretq_s8_s32(vdupq_n_s32(v));
}

/* Sums of a quad: 16 bits wide, two for each of lanes 0 1 2 3; then 32 bits wide, one for each. */
struct wide {
    int16x8_t low, high;
};

static ALWAYS_INLINE struct wide multiply(uint8x16_t codes, int8x16_t x)
{
    int8x16_t c = vreinterpretq_s8_u8(codes);
    return (struct wide){vmull_s8(vget_low_s8(c), vget_low_s8(x)), vmull_high_s8(c, x)};
}

static ALWAYS_INLINE struct wide multiply_add(struct wide sum, uint8x16_t codes, int8x16_t x)
{
    int8x16_t c = vreinterpretq_s8_u8(codes);
    return (struct wide){vmlal_s8(sum.low, vget_low_s8(c), vget_low_s8(x)), vmlal_high_s8(sum.high, c, x)};
}

/* 4-bit codes of a quad, n rows. */
static ALWAYS_INLINE void dot_4_bit(const unsigned char *codes, const int8_t *const *q, int inputs, int n,
                                    struct shape k, int32x4_t *acc)
{
    struct wide sum[TILE_ROWS];
    UNROLL_FULLY
    for (int i = 0; i < inputs / 4; i++) {
        uint8x16_t c = operand(codes, vdupq_n_u8(0), k, i);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            int8x16_t x = four_bytes(q[r] + 4 * i);
            sum[r] = i == 0 ? multiply(c, x) : multiply_add(sum[r], c, x);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = vaddq_s32(acc[r], vpaddq_s32(vpaddlq_s16(sum[r].low), vpaddlq_s16(sum[r].high)));
    }
}

/* 8-bit codes of a quad, or those of a table, n rows; `count` products fit 16 bits. */
static ALWAYS_INLINE void dot_8_bit(const unsigned char *codes, uint8x16_t table, const int8_t *const *q, int inputs,
                                    int n, int count, struct shape k, int32x4_t *acc)
{
    int32x4_t low[TILE_ROWS], high[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        low[r] = high[r] = vdupq_n_s32(0);
    }
    UNROLL_FULLY
    for (int i = 0; i < inputs / 4; i += count) {
        uint8x16_t c = operand(codes, table, k, i), c2 = operand(codes, table, k, i + count - 1);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            struct wide sum = multiply(c, four_bytes(q[r] + 4 * i));
            sum = count == 2 ? multiply_add(sum, c2, four_bytes(q[r] + 4 * i + 4)) : sum;
            low[r] = vpadalq_s16(low[r], sum.low);
            high[r] = vpadalq_s16(high[r], sum.high);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = vaddq_s32(acc[r], vpaddq_s32(low[r], high[r]));
    }
}

static ALWAYS_INLINE void dot(const unsigned char *codes, uint8x16_t table, const int8_t *const *q, int inputs, int n,
                              int quads, struct shape k, bool is_lo, int32x4_t (*acc)[TILE_ROWS])
{
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        if (k.bits == 4 && !k.has_table) {
            dot_4_bit(codes + 16 * v, q, inputs, n, k, acc[v]);
        } else {
            int count = k.bits == 8 && is_lo ? 1 : 2;
            dot_8_bit(codes + 16 * v, table, q, inputs, n, count, k, acc[v]);
        }
    }
}

void kern_matmul_init_neon(struct kern_table *t)
{
    matmul_init_4_bit(t);
    matmul_init_8_bit(t);
    kern_matmul_float_init_neon(t);
}
