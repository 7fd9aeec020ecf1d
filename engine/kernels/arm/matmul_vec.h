/* out = rows * panels^T, quantised kinds, once for every ARM ISA. A file that includes this defines before:
 *   CODE_OFFSET   what is taken off 8-bit codes and those of a table to make them signed: 128; 0 where the product
 *                 takes unsigned times signed
 *   TILE_QUADS    how wide a tile of several rows is
 * and behind it `dot`, declared below. The order of float operations is that of kern.h.
 *
 * Lanes are taken in quads, the 4 output rows of one register. A tile is 4 (or 2) activation rows times TILE_QUADS
 * quads, so that sums, integer sums and operands fit 32 registers; the quads of a panel come one tile after the other.
 * One row, whose panels stream from memory, takes all quads at a time.
 * Functions with more than five parameters: tile shapes and counts are compile-time constants, folded into each copy of
 * the inlined function, and are kept apart from what is only known at run time. */
#ifndef INFCGI_KERNELS_ARM_MATMUL_VEC_H
#define INFCGI_KERNELS_ARM_MATMUL_VEC_H

#include "engine/kernels/kern.h"

#include <arm_neon.h>

/* Activation rows that are taken through all panels at a time: they stay in the second-level cache (256 KiB and more on
 * most cores) while the panels stream past. */
enum { ROWS_IN_CACHE_BYTES = 192 * 1024, TILE_ROWS = 4, QUADS = PANEL_ROWS / 4, PREFETCH_BYTES = 4096 };

/* What a tile needs to know of the call. */
struct job {
    size_t n_blocks;
    size_t row_bytes;
    size_t scales, mins, table; /* offsets in a panel */
    size_t ahead;               /* distance at which panels are prefetched, whole panels */
    size_t out_stride;
};

/* What differs between the quantised kinds; always compile-time constants. */
struct shape {
    int bits; /* 4 or 8 */
    int zero_point;
    bool has_min;
    int parts; /* scales per block of 32: 1 or 2 */
    bool has_table;
    bool has_bf16_scale;
};

/* acc[v][r] += codes . q[r] over 16 or 32 inputs, for n rows and the first `quads` quads from `codes` on. Codes are
 * what `operand` gives. is_lo: activations go down to -128, else to -127. */
static ALWAYS_INLINE void dot(const unsigned char *codes, uint8x16_t table, const int8_t *const *q, int inputs, int n,
                              int quads, struct shape k, bool is_lo, int32x4_t (*acc)[TILE_ROWS]);

/* Operand i of a quad, inputs 4i .. 4i+3: 4 codes for each of 4 lanes; those of 8 bits less CODE_OFFSET. table: has
 * that taken off already. */
static ALWAYS_INLINE uint8x16_t operand(const unsigned char *codes, uint8x16_t table, struct shape k, int i)
{
    if (k.bits == 8) {
        return veorq_u8(vld1q_u8(codes + 64 * i), vdupq_n_u8(CODE_OFFSET));
    }
    uint8x16_t both = vld1q_u8(codes + 64 * (i / 2));
    uint8x16_t c = i % 2 == 0 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
    return k.has_table ? vqtbl1q_u8(table, c) : c;
}

/* Four halves widened. */
static ALWAYS_INLINE float32x4_t half_row(const unsigned char *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)p)));
}

static ALWAYS_INLINE float32x4_t bf16_row(const unsigned char *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p), 16));
}

/* Block b of row r of a tile. */
static ALWAYS_INLINE const struct kern_qblock *block_of(const struct job *g, const unsigned char *rows, int r, size_t b)
{
    return (const struct kern_qblock *)(const void *)(rows + (size_t)r * g->row_bytes) + b;
}

/* acc[v][r] += (codes - zero point) . one term of block b, or a part of one. */
static ALWAYS_INLINE void dot_part(const struct job *g, const unsigned char *codes, uint8x16_t table,
                                   const unsigned char *rows, size_t b, int part, int n, int quads, struct shape k,
                                   bool is_lo, int32x4_t (*acc)[TILE_ROWS])
{
    const bool is_offset = k.bits == 8 || k.has_table;
    const int zero_point = k.zero_point - (is_offset ? CODE_OFFSET : 0); /* of what dot multiplies */
    const int8_t *q[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *block = block_of(g, rows, r, b);
        q[r] = (is_lo ? block->lo : block->hi) + 16 * part;
        if (zero_point != 0) {
            const int32_t *zero = k.parts == 2 ? (is_lo ? block->half_lo : block->half) + part
                                  : is_lo      ? &block->zero_lo
                                               : &block->zero;
            int32x4_t add = vmulq_n_s32(vld1q_dup_s32(zero), zero_point / 8); /* zero is -8 * sum */
            UNROLL_FULLY
            for (int v = 0; v < quads; v++) {
                acc[v][r] = vaddq_s32(acc[v][r], add);
            }
        }
    }
    dot(codes + part * 32 * k.bits, table, q, PANEL_BLOCK / k.parts, n, quads, k, is_lo, acc);
}

/* product[r] += min times the sum of the inputs over half a block, in units of d. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       bool is_fine, float32x4_t min, float32x4_t *product)
{
    min = vmulq_n_f32(min, is_fine ? -1.0f / 2048 : -1.0f / 8);
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        int32_t total = is_fine ? 256 * q->half[part] + q->half_lo[part] : q->half[part];
        product[r] = vfmaq_n_f32(product[r], min, (float)total);
    }
}

/* The float steps that kern.h prescribes for a block's part, one quad. */
static ALWAYS_INLINE void add_quad(const struct job *g, const unsigned char *panel, const unsigned char *rows, size_t b,
                                   int part, int v, int n, struct shape k, bool is_fine, const int32x4_t *acc,
                                   float32x4_t *sum)
{
    size_t at = (b * (size_t)k.parts + (size_t)part) * 32 + 8 * (size_t)v;
    float32x4_t scale = k.has_bf16_scale ? bf16_row(panel + g->scales + at) : half_row(panel + g->scales + at);
    float32x4_t min = k.has_min ? half_row(panel + g->mins + at) : scale;
    scale = is_fine ? vmulq_n_f32(scale, 1.0f / 256) : scale;
    float32x4_t product[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        product[r] = vmulq_f32(scale, vcvtq_f32_s32(acc[r]));
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, is_fine, min, product);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        sum[r] = vfmaq_n_f32(sum[r], product[r], q->d);
        sum[r] = k.has_min && k.parts == 1 ? vfmaq_n_f32(sum[r], min, q->s) : sum[r];
    }
}

/* One block's part of a tile from quad `first` on: integer dot, then the float steps kern.h prescribes. */
static ALWAYS_INLINE void tile_part(const struct job *g, const unsigned char *panel, uint8x16_t table,
                                    const unsigned char *rows, size_t b, int part, int first, int n, int quads,
                                    struct shape k, bool is_fine, float32x4_t (*sum)[TILE_ROWS])
{
    const unsigned char *codes = panel + b * (size_t)(k.bits * 64) + 16 * first;
    int32x4_t acc[QUADS][TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        UNROLL_FULLY
        for (int v = 0; v < quads; v++) {
            acc[v][r] = vdupq_n_s32(0);
        }
    }
    dot_part(g, codes, table, rows, b, part, n, quads, k, false, acc);
    if (is_fine) {
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            UNROLL_FULLY
            for (int v = 0; v < quads; v++) {
                acc[v][r] = vshlq_n_s32(acc[v][r], 8);
            }
        }
        dot_part(g, codes, table, rows, b, part, n, quads, k, true, acc);
    }
    UNROLL_FULLY
    for (int v = 0; v < quads; v++) {
        add_quad(g, panel, rows, b, part, first + v, n, k, is_fine, acc[v], sum[v]);
    }
}

/* Block b of a tile. Where no row of the tile has a second term, none is computed. */
static ALWAYS_INLINE void tile_block(const struct job *g, const unsigned char *panel, uint8x16_t table,
                                     const unsigned char *rows, size_t b, int first, int n, int quads, struct shape k,
                                     float32x4_t (*sum)[TILE_ROWS])
{
    uint32_t any = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        any |= block_of(g, rows, r, b)->fine;
    }
    for (int part = 0; part < k.parts; part++) {
        if (any != 0) {
            tile_part(g, panel, table, rows, b, part, first, n, quads, k, true, sum);
        } else {
            tile_part(g, panel, table, rows, b, part, first, n, quads, k, false, sum);
        }
    }
}

/* Asks for the lines that lie `ahead` of block b's share of the panel; see matmul_avx512.c. */
static ALWAYS_INLINE void prefetch(const struct job *g, const unsigned char *panel, size_t b, struct shape k)
{
    const int share = k.bits * 64 + 32 * k.parts * (k.has_min ? 2 : 1); /* bytes of a block */
    uintptr_t at = (uintptr_t)panel + g->ahead + b * (size_t)share;     /* may lie behind the last panel: harmless */
    UNROLL_FULLY
    for (int line = 0; line < share; line += 64) {
        __builtin_prefetch((const void *)(at + (uintptr_t)line));
    }
}

/* n rows times `quads` quads from `first` on. */
static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               int first, int n, int quads, struct shape k)
{
    float32x4_t sum[QUADS][TILE_ROWS];
    uint8x16_t table = vdupq_n_u8(0);
    if (k.has_table) {
        table = veorq_u8(vld1q_u8(panel + g->table), vdupq_n_u8(CODE_OFFSET));
        __builtin_prefetch((const void *)((uintptr_t)panel + g->ahead + g->table));
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        UNROLL_FULLY
        for (int v = 0; v < quads; v++) {
            sum[v][r] = vdupq_n_f32(0);
        }
    }
    for (size_t b = 0; b < g->n_blocks; b++) {
        if (first == 0) {
            prefetch(g, panel, b, k);
        }
        tile_block(g, panel, table, rows, b, first, n, quads, k, sum);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        UNROLL_FULLY
        for (int v = 0; v < quads; v++) {
            vst1q_f32(out + (size_t)r * g->out_stride + 4 * (size_t)(first + v), sum[v][r]);
        }
    }
}

/* All rows of a chunk against one panel. */
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

/* Rows in a chunk: a multiple of a tile that fits the cache. */
static int chunk_rows(size_t row_bytes)
{
    size_t n = ROWS_IN_CACHE_BYTES / (row_bytes + 1) / TILE_ROWS * TILE_ROWS;
    return n < TILE_ROWS ? TILE_ROWS : (int)n;
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    size_t bytes = panel_bytes(kind, a->k);
    const struct job g = {.n_blocks = a->k / PANEL_BLOCK,
                          .row_bytes = a->row_bytes,
                          .scales = panel_scale_offset(kind, a->k),
                          .mins = panel_min_offset(kind, a->k),
                          .table = panel_table_offset(kind, a->k),
                          .ahead = (PREFETCH_BYTES + bytes - 1) / bytes * bytes,
                          .out_stride = a->out_stride};
    int step = chunk_rows(a->row_bytes);
    for (int r = 0; r < a->n_rows; r += step) {
        const unsigned char *rows = (const unsigned char *)a->rows + (size_t)r * a->row_bytes;
        int n = MIN_OF(step, a->n_rows - r);
        for (int p = 0; p < a->n_panels; p++) {
            panel_rows(&g, (const unsigned char *)a->panels + (size_t)p * bytes, rows, n,
                       a->out + (size_t)r * a->out_stride + (size_t)p * PANEL_ROWS, k);
        }
    }
}

static inline void matmul_u4(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4, (struct shape){.bits = 4, .zero_point = 8, .parts = 1});
}

static inline void matmul_u4_min(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_MIN, (struct shape){.bits = 4, .has_min = true, .parts = 1});
}

static inline void matmul_u8(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8, (struct shape){.bits = 8, .zero_point = 128, .parts = 1});
}

static inline void matmul_u8_min(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8_MIN, (struct shape){.bits = 8, .has_min = true, .parts = 1});
}

static inline void matmul_u8_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8_B16, (struct shape){.bits = 8, .zero_point = 128, .parts = 2});
}

static inline void matmul_u4_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_B16, (struct shape){.bits = 4, .zero_point = 8, .parts = 2});
}

static inline void matmul_u4_min_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_MIN_B16, (struct shape){.bits = 4, .has_min = true, .parts = 2});
}

static inline void matmul_t4(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4, (struct shape){.bits = 4, .zero_point = 128, .parts = 1, .has_table = true});
}

static inline void matmul_t4_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4_B16, (struct shape){.bits = 4, .zero_point = 128, .parts = 2, .has_table = true});
}

static inline void matmul_t4_bf16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4_BF16,
           (struct shape){.bits = 4, .zero_point = 128, .parts = 1, .has_table = true, .has_bf16_scale = true});
}

static inline void matmul_init_4_bit(struct kern_table *t)
{
    t->matmul[PANEL_U4] = matmul_u4;
    t->matmul[PANEL_U4_MIN] = matmul_u4_min;
    t->matmul[PANEL_U4_B16] = matmul_u4_b16;
    t->matmul[PANEL_U4_MIN_B16] = matmul_u4_min_b16;
    t->matmul[PANEL_T4] = matmul_t4;
    t->matmul[PANEL_T4_B16] = matmul_t4_b16;
    t->matmul[PANEL_T4_BF16] = matmul_t4_bf16;
}

static inline void matmul_init_8_bit(struct kern_table *t)
{
    t->matmul[PANEL_U8] = matmul_u8;
    t->matmul[PANEL_U8_MIN] = matmul_u8_min;
    t->matmul[PANEL_U8_B16] = matmul_u8_b16;
}

#endif
