/* What the matrix products of the quantised kinds share on every x86 ISA: the kinds, the walk over chunks of rows and
 * panels, prefetching. Include after an enum with
 *   ROWS_IN_CACHE_BYTES  activation rows that are taken through all panels at a time, so that they stay in the
 *                        second-level cache while the panels stream past
 *   TILE_ROWS            rows of the largest tile; chunks are multiples of it
 * define panel_rows and matmul, and call matmul_vec_init from the ISA's init. Everything is static: see vec_avx512.h.
 * Functions with more than five parameters: tile shapes and counts are compile-time constants, folded into each copy of
 * the inlined function, and are kept apart from what is only known at run time. */
#ifndef INFCGI_KERNELS_X86_MATMUL_PANELS_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_PANELS_VEC_H

#include "engine/kernels/kern.h"

#include <immintrin.h>

/* What a tile needs to know of the call. */
struct job {
    size_t n_blocks;
    size_t row_bytes;
    size_t scales, mins, table; /* offsets in a panel */
    size_t ahead;               /* distance at which panels are prefetched, whole panels */
    size_t out_stride;
    enum panel_kind kind;
};

/* What differs between the quantised kinds; always compile-time constants. */
struct shape {
    int bits;       /* 4 or 8 */
    int zero_shift; /* log2 of the zero point, 0 = none */
    bool has_min;
    int parts; /* scales per block of 32: 1 or 2 */
    bool has_table;
    bool has_bf16_scale;
};

/* All rows of a chunk against one panel. */
static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k);

/* A whole call: all_panels, with what the ISA has to do before and behind it. */
static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k);

/* Block b of row r of a tile. */
static ALWAYS_INLINE const struct kern_qblock *block_of(const struct job *g, const unsigned char *rows, int r, size_t b)
{
    return (const struct kern_qblock *)(const void *)(rows + (size_t)r * g->row_bytes) + b;
}

/* Does any of the tile's n rows have a second term in block b? */
static ALWAYS_INLINE bool any_fine(const struct job *g, const unsigned char *rows, size_t b, int n)
{
    uint32_t any = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        any |= block_of(g, rows, r, b)->fine;
    }
    return any != 0;
}

/* Asks for the lines that lie `ahead` of block b's share of the panel: the next panel, in the order of its addresses. A
 * panel's codes, scales and minimums are three streams, too many and too short for the hardware's prefetchers. On Zen 4
 * one row of 4-bit codes, K 1536, streams from memory at 27 GB/s with this, at 15 without, and at 17 when each of the
 * three streams is prefetched a fixed distance ahead. */
static ALWAYS_INLINE void prefetch(const struct job *g, const unsigned char *panel, size_t b, struct shape k)
{
    const int share = k.bits * 64 + 32 * k.parts * (k.has_min ? 2 : 1); /* bytes of a block */
    uintptr_t at = (uintptr_t)panel + g->ahead + b * (size_t)share;     /* may lie behind the last panel: harmless */
    UNROLL_FULLY
    for (int line = 0; line < share; line += 64) {
        _mm_prefetch((const char *)(at + (uintptr_t)line), _MM_HINT_T0);
    }
}

/* Likewise for its table, if it has one. */
static ALWAYS_INLINE void prefetch_table(const struct job *g, const unsigned char *panel, struct shape k)
{
    if (k.has_table) {
        _mm_prefetch((const char *)((uintptr_t)panel + g->ahead + g->table), _MM_HINT_T0);
    }
}

/* Rows in a chunk: a multiple of a tile that fits the cache. */
static int chunk_rows(size_t row_bytes)
{
    size_t n = ROWS_IN_CACHE_BYTES / (row_bytes + 1) / TILE_ROWS * TILE_ROWS;
    return n < TILE_ROWS ? TILE_ROWS : (int)n;
}

/* Chunk after chunk of rows, and for each panel after panel. */
static ALWAYS_INLINE void all_panels(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    enum { PREFETCH_BYTES = 4096 };
    size_t bytes = panel_bytes(kind, a->k);
    const struct job g = {.n_blocks = a->k / PANEL_BLOCK,
                          .row_bytes = a->row_bytes,
                          .scales = panel_scale_offset(kind, a->k),
                          .mins = panel_min_offset(kind, a->k),
                          .table = panel_table_offset(kind, a->k),
                          .ahead = (PREFETCH_BYTES + bytes - 1) / bytes * bytes,
                          .out_stride = a->out_stride,
                          .kind = kind};
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

/* --- the kinds ---------------------------------------------------------------------------------------------------- */

static void matmul_u4(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4, (struct shape){.bits = 4, .zero_shift = 3, .parts = 1});
}

static void matmul_u4_min(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_MIN, (struct shape){.bits = 4, .has_min = true, .parts = 1});
}

static void matmul_u8(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8, (struct shape){.bits = 8, .zero_shift = 7, .parts = 1});
}

static void matmul_u8_min(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8_MIN, (struct shape){.bits = 8, .has_min = true, .parts = 1});
}

static void matmul_u8_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U8_B16, (struct shape){.bits = 8, .zero_shift = 7, .parts = 2});
}

static void matmul_u4_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_B16, (struct shape){.bits = 4, .zero_shift = 3, .parts = 2});
}

static void matmul_u4_min_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_U4_MIN_B16, (struct shape){.bits = 4, .has_min = true, .parts = 2});
}

static void matmul_t4(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4, (struct shape){.bits = 4, .zero_shift = 7, .parts = 1, .has_table = true});
}

static void matmul_t4_b16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4_B16, (struct shape){.bits = 4, .zero_shift = 7, .parts = 2, .has_table = true});
}

static void matmul_t4_bf16(const struct kern_matmul_args *a)
{
    matmul(a, PANEL_T4_BF16,
           (struct shape){.bits = 4, .zero_shift = 7, .parts = 1, .has_table = true, .has_bf16_scale = true});
}

static const kern_matmul_fn matmul_kinds[PANEL_KIND_COUNT] = {
    [PANEL_U4] = matmul_u4,
    [PANEL_U4_MIN] = matmul_u4_min,
    [PANEL_U8] = matmul_u8,
    [PANEL_U8_MIN] = matmul_u8_min,
    [PANEL_U8_B16] = matmul_u8_b16,
    [PANEL_U4_B16] = matmul_u4_b16,
    [PANEL_U4_MIN_B16] = matmul_u4_min_b16,
    [PANEL_T4] = matmul_t4,
    [PANEL_T4_B16] = matmul_t4_b16,
    [PANEL_T4_BF16] = matmul_t4_bf16,
};

static void matmul_vec_init(struct kern_table *t)
{
    for (int kind = 0; kind < PANEL_KIND_COUNT; kind++) {
        t->matmul[kind] = matmul_kinds[kind] != NULL ? matmul_kinds[kind] : t->matmul[kind];
    }
}

#endif
