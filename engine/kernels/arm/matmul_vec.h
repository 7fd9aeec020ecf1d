/* out = rows * panels^T, quantized kinds, once for every ARM ISA. The includer defines before:
 *   CODE_OFFSET   subtracted from 8-bit codes and table entries to make them signed: 128; 0 if the product
 *                 multiplies unsigned by signed
 *   TILE_QUADS    quads of a tile of several rows
 * and after it `dot`, declared below. The order of float operations is that of kern.h.
 *
 * Lanes are processed in quads, the 4 output rows of one register. A tile is 4 (or 2) activation rows times TILE_QUADS
 * quads, so that sums, integer sums and operands fit 32 registers; a panel is computed tile by tile. A single row,
 * whose panels stream from memory, processes all quads together.
 * Functions with more than five parameters: see matmul_panels.h. */
#ifndef INFCGI_KERNELS_ARM_MATMUL_VEC_H
#define INFCGI_KERNELS_ARM_MATMUL_VEC_H

#include "engine/kernels/matmul_panels.h"

#include <arm_neon.h>
#include <string.h>

/* Activation rows of a chunk stay in the second-level cache (256 KiB or more on most cores) while the panels stream
 * past. */
enum { ROWS_IN_CACHE_BYTES = 192 * 1024, TILE_ROWS = 4, QUADS = PANEL_ROWS / 4 };

/* Adds codes . q[r] over words from .. to-1 of a block to acc[v][r], for n rows and the first `quads` quads from
 * `codes` on. Codes are those of code_words. is_lo: activations go down to -128, else to -127. */
static ALWAYS_INLINE void dot(const unsigned char *codes, int from, int to, uint8x16_t table, const int8_t *const *q,
                              int n, int quads, struct shape k, bool is_lo, int32x4_t (*acc)[TILE_ROWS]);

/* Shifts every byte right, or left if `by` is negative. `by` is a constant once loops are unrolled, but the intrinsics
 * require a literal. */
static ALWAYS_INLINE uint8x16_t shift_right(uint8x16_t v, int by) { return by >= 0 ? v >> by : v << -by; }

/* Returns n bits of every byte of a line's quad, from bit `from` on. */
static ALWAYS_INLINE uint8x16_t bits_of(const unsigned char *line, int from, int n)
{
    uint8x16_t v = shift_right(vld1q_u8(line), from);
    return from + n == 8 ? v : vandq_u8(v, vdupq_n_u8((uint8_t)((1 << n) - 1)));
}

/* Returns `low` with the bits of `mask` from a line's quad shifted right by `by`. */
static ALWAYS_INLINE uint8x16_t add_bits(uint8x16_t low, const unsigned char *line, int by, uint8_t mask)
{
    return vbslq_u8(vdupq_n_u8(mask), shift_right(vld1q_u8(line), by), low);
}

/* Returns word v (0..7) of a block's codes for the 4 lanes of a quad: 8-bit codes less CODE_OFFSET, table entries in
 * table kinds. codes: the quad's share of the first line; table: CODE_OFFSET already subtracted. */
static ALWAYS_INLINE uint8x16_t code_words(const unsigned char *codes, uint8x16_t table, int v, struct shape k)
{
    enum { LINE_BYTES = 64 };
    if (k.bits == 8) {
        return veorq_u8(vld1q_u8(codes + LINE_BYTES * v), vdupq_n_u8(CODE_OFFSET));
    }
    if (k.bits < 4) {
        uint8x16_t pairs = bits_of(codes + LINE_BYTES * (v / 4), v % 4 * 2, 2);
        return k.bits == 3 ? add_bits(pairs, codes + LINE_BYTES * 2, v - 2, 4) : pairs;
    }
    uint8x16_t low = bits_of(codes + LINE_BYTES * (v / 2), v % 2 * 4, 4);
    if (k.bits == 5) {
        return add_bits(low, codes + LINE_BYTES * 4, v - 4, 16);
    }
    if (k.bits == 6) {
        return add_bits(low, codes + LINE_BYTES * (4 + v / 4), v % 4 * 2 - 4, 48);
    }
    return k.has_table ? vqtbl1q_u8(table, low) : low;
}

/* Widens four halves. */
static ALWAYS_INLINE float32x4_t half_row(const unsigned char *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)p)));
}

static ALWAYS_INLINE float32x4_t bf16_row(const unsigned char *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p), 16));
}

static ALWAYS_INLINE float32x4_t step_row(const unsigned char *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

/* Returns row `at` of a group's scales or minimums, which begin at `rows` with their unit at `unit`, for quad v. */
static ALWAYS_INLINE float32x4_t scale_row(const unsigned char *rows, const unsigned char *unit, size_t at, int v,
                                           struct shape k)
{
    if (k.has_unit) {
        return vmulq_f32(step_row(rows + at * PANEL_ROWS + 4 * v), half_row(unit + 8 * v));
    }
    rows += at * 2 * PANEL_ROWS + (size_t)(8 * v);
    return k.has_bf16_scale ? bf16_row(rows) : half_row(rows);
}

/* Adds (codes - zero point) . one term of block b, or of part of a block, to acc[v][r]. */
static ALWAYS_INLINE void dot_part(const struct job *g, const unsigned char *codes, uint8x16_t table,
                                   const unsigned char *rows, size_t b, int part, int n, int quads, struct shape k,
                                   bool is_lo, int32x4_t (*acc)[TILE_ROWS])
{
    const bool is_offset = k.bits == 8 || k.has_table;
    const int zero_point = k.zero_point - (is_offset ? CODE_OFFSET : 0); /* of the codes that dot multiplies */
    const int words = PANEL_BLOCK / 4 / k.parts;
    const int8_t *q[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *block = block_of(g, rows, r, b);
        q[r] = is_lo ? block->lo : block->hi;
        if (zero_point != 0) {
            const int32_t *zero = k.parts == 2 ? (is_lo ? block->half_lo : block->half) + part
                                  : is_lo      ? &block->zero_lo
                                               : &block->zero;
            int32x4_t add = vld1q_dup_s32(zero); /* -8 * sum */
            add = zero_point == 4 ? vshrq_n_s32(add, 1) : vmulq_n_s32(add, zero_point / 8);
            UNROLL_FULLY
            for (int v = 0; v < quads; v++) {
                acc[v][r] = vaddq_s32(acc[v][r], add);
            }
        }
    }
    dot(codes, part * words, (part + 1) * words, table, q, n, quads, k, is_lo, acc);
}

/* Adds min times the sum of one term's inputs over half a block, in units of d, to product[r]. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       bool is_lo, float32x4_t min, float32x4_t *product)
{
    min = vmulq_n_f32(min, is_lo ? -1.0f / 2048 : -1.0f / 8);
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        int32_t total = is_lo ? q->half_lo[part] : q->half[part];
        product[r] = vfmaq_n_f32(product[r], min, (float)total);
    }
}

/* Computes the float steps of kern.h for one part of a block and one term, one quad. */
static ALWAYS_INLINE void add_quad(const struct job *g, const struct group *from, const unsigned char *rows, size_t b,
                                   int part, int v, int n, struct shape k, bool is_lo, const int32x4_t *acc,
                                   float32x4_t *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    float32x4_t scale = scale_row(from->scales, from->unit, at, v, k);
    float32x4_t min = k.has_min ? scale_row(from->mins, from->min_unit, at, v, k) : scale;
    scale = is_lo ? vmulq_n_f32(scale, 1.0f / 256) : scale;
    float32x4_t product[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        product[r] = vmulq_f32(scale, vcvtq_f32_s32(acc[r]));
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, is_lo, min, product);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        sum[r] = vfmaq_n_f32(sum[r], product[r], q->d);
        sum[r] = k.has_min && k.parts == 1 && !is_lo ? vfmaq_n_f32(sum[r], min, q->s) : sum[r];
    }
}

/* Computes one part of a block for a tile, one term, from quad `first` on: integer dot, then the float steps of kern.h.
 * rows: from the group's inputs on. */
static ALWAYS_INLINE void tile_part(const struct job *g, const struct group *from, uint8x16_t table,
                                    const unsigned char *rows, size_t b, int part, int first, int n, int quads,
                                    struct shape k, bool is_lo, float32x4_t (*sum)[TILE_ROWS])
{
    const unsigned char *codes = from->codes + b * (size_t)(k.bits * 64) + 16 * first;
    int32x4_t acc[QUADS][TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        UNROLL_FULLY
        for (int v = 0; v < quads; v++) {
            acc[v][r] = vdupq_n_s32(0);
        }
    }
    dot_part(g, codes, table, rows, b, part, n, quads, k, is_lo, acc);
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        add_quad(g, from, rows, b, part, first + v, n, k, is_lo, acc[v], sum[v]);
    }
}

static ALWAYS_INLINE uint8x16_t load_table(const struct job *g, const unsigned char *panel, struct shape k)
{
    return k.has_table ? veorq_u8(vld1q_u8(panel + g->table), vdupq_n_u8(CODE_OFFSET)) : vdupq_n_u8(0);
}

/* Computes a block for a tile, one term. rows: from the group's inputs on. */
static ALWAYS_INLINE void tile_block(const struct job *g, const struct group *from, uint8x16_t table,
                                     const unsigned char *rows, size_t b, int first, int n, int quads, struct shape k,
                                     bool is_lo, float32x4_t (*sum)[TILE_ROWS])
{
    UNROLL_FULLY
    for (int part = 0; part < k.parts; part++) {
        tile_part(g, from, table, rows, b, part, first, n, quads, k, is_lo, sum);
    }
}

/* Computes the second terms of the listed blocks. */
static ALWAYS_INLINE void add_rests(const struct job *g, const unsigned char *panel, uint8x16_t table,
                                    const unsigned char *rows, int first, int n, int quads, struct shape k,
                                    const struct fine_list *list, float32x4_t (*rest)[TILE_ROWS])
{
    for (size_t i = 0; i < list->n; i++) {
        struct block block = panel_block(g, panel, list->at[i], k);
        prefetch_after(g, panel, i, k);
        const unsigned char *group_rows = rows + (list->at[i] - block.at) * sizeof(struct kern_qblock);
        tile_block(g, &block.from, table, group_rows, block.at, first, n, quads, k, true, rest);
    }
}

/* Computes n rows times `quads` quads from `first` on. */
static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               int first, int n, int quads, struct shape k)
{
    float32x4_t sum[QUADS][TILE_ROWS], rest[QUADS][TILE_ROWS];
    uint8x16_t table = load_table(g, panel, k);
    struct fine_list list;
    list.n = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        UNROLL_FULLY
        for (int v = 0; v < quads; v++) {
            sum[v][r] = rest[v][r] = vdupq_n_f32(0);
        }
    }
    const unsigned char *group_rows = rows, *group = panel;
    for (size_t at = 0; at < g->n_blocks; at += PANEL_GROUP) {
        struct group from = group_at(group, g->n_blocks - at, k);
        for (size_t b = 0; b < from.n_blocks; b++) {
            if (first == 0) {
                prefetch(&from, b, k);
            }
            note_fine(&list, g, group_rows, b, at + b, n);
            tile_block(g, &from, table, group_rows, b, first, n, quads, k, false, sum);
        }
        if (list.n > FINE_FULL) {
            add_rests(g, panel, table, rows, first, n, quads, k, &list, rest);
            list.n = 0;
        }
        group += g->group_bytes;
        group_rows += PANEL_GROUP * sizeof(struct kern_qblock);
    }
    add_rests(g, panel, table, rows, first, n, quads, k, &list, rest);
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        UNROLL_FULLY
        for (int v = 0; v < quads; v++) {
            float *to = out + (size_t)r * g->out_stride + 4 * (size_t)(first + v);
            vst1q_f32(to, vaddq_f32(sum[v][r], rest[v][r]));
        }
    }
}

/* Multiplies all rows of a chunk by one panel. */
static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k)
{
    int r = 0;
    for (; r + TILE_ROWS <= n; r += TILE_ROWS) {
        for (int first = 0; first < QUADS; first += TILE_QUADS) {
            tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, first, TILE_ROWS,
                 TILE_QUADS, k);
        }
    }
    if (n - r >= 2) {
        for (int first = 0; first < QUADS; first += TILE_QUADS) {
            tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, first, 2, TILE_QUADS, k);
        }
        r += 2;
    }
    if (n - r >= 1) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 0, 1, QUADS, k);
    }
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    panels_by_chunk(a, kind, rows_in_chunk(a->row_bytes, ROWS_IN_CACHE_BYTES, TILE_ROWS), k);
}

#endif
