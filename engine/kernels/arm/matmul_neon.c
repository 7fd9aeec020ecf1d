/* Quantized products without a dot instruction. Products of bytes have 16 bits (smull); they are summed in 16 bits
 * while they fit (smlal), then in pairs to 32 bits (sadalp). Tiles are one quad wide, because 16-bit sums need two
 * registers. Number of words that fit, up to a block of 8, for the largest code times 127 (128 in the second term):
 *   2 to 4 bits   all 8:   8 * 15 * 128 = 15,360
 *   5 bits        all 8:   8 * 31 * 128 = 31,744
 *   6 bits        4, a part of 16 inputs:   4 * 63 * 128 = 32,256
 *   8 bits, less 128   2 with the first term, 2 * 128 * 127 = 32,512; 1 with the second, whose two would be 32,768
 *   table entries less 128, so 127 at most   2:   2 * 127 * 128 = 32,512 */
#include "engine/kernels/isa.h"

enum { CODE_OFFSET = 128, TILE_QUADS = 1 };

#include "engine/kernels/arm/matmul_vec.h"

/* Broadcasts four activation bytes to every lane. */
static ALWAYS_INLINE int8x16_t four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return vreinterpretq_s8_s32(vdupq_n_s32(v));
}

/* Sums of a quad: 16-bit, two per lane 0 1 2 3; then 32-bit, one per lane. */
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

/* Returns how many of `words` products fit 16 bits; a power of two. */
static ALWAYS_INLINE int products_that_fit(int words, struct shape k, bool is_lo)
{
    const int code = k.bits == 8 ? 128 : k.has_table ? 127 : (1 << k.bits) - 1; /* the largest in magnitude */
    const int fit = INT16_MAX / (code * (is_lo ? 128 : 127));
    return fit >= words ? words : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

/* Computes one quad for n rows, summing `count` products at a time in 16 bits. */
static ALWAYS_INLINE void dot_quad(const unsigned char *codes, int from, int to, uint8x16_t table,
                                   const int8_t *const *q, int n, int count, struct shape k, int32x4_t *acc)
{
    int32x4_t low[TILE_ROWS], high[TILE_ROWS];
    UNROLL_FULLY
    for (int v = from; v < to; v += count) {
        struct wide sum[TILE_ROWS];
        UNROLL_FULLY
        for (int i = 0; i < count; i++) {
            uint8x16_t c = code_words(codes, table, v + i, k);
            UNROLL_FULLY
            for (int r = 0; r < n; r++) {
                int8x16_t x = four_bytes(q[r] + 4 * (v + i));
                sum[r] = i == 0 ? multiply(c, x) : multiply_add(sum[r], c, x);
            }
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            low[r] = v == from ? vpaddlq_s16(sum[r].low) : vpadalq_s16(low[r], sum[r].low);
            high[r] = v == from ? vpaddlq_s16(sum[r].high) : vpadalq_s16(high[r], sum[r].high);
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = vaddq_s32(acc[r], vpaddq_s32(low[r], high[r]));
    }
}

static ALWAYS_INLINE void dot(const unsigned char *codes, int from, int to, uint8x16_t table, const int8_t *const *q,
                              int n, int quads, struct shape k, bool is_lo, int32x4_t (*acc)[TILE_ROWS])
{
    const int count = products_that_fit(to - from, k, is_lo);
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        dot_quad(codes + 16 * v, from, to, table, q, n, count, k, acc[v]);
    }
}

void kern_matmul_init_neon(struct kern_table *t) { matmul_vec_init(t); }
