/* Code that the quantized matrix products of all vector ISAs share: the kinds, the walk over chunks of rows, panels and
 * groups, prefetching. The includer defines panel_rows and matmul, and its init calls matmul_vec_init. Everything is
 * static: see vec_avx512.h.
 * Functions with more than five parameters: tile shapes and counts are compile-time constants, folded into each copy of
 * the inlined function, and are separate from run-time values. */
#ifndef INFCGI_KERNELS_MATMUL_PANELS_H
#define INFCGI_KERNELS_MATMUL_PANELS_H

#include "engine/kernels/kern.h"

/* The parameters of a call that a tile needs. */
struct job {
    size_t n_blocks;
    size_t row_bytes;
    size_t group_bytes;
    size_t table; /* offset in a panel */
    size_t out_stride;
    enum panel_kind kind;
};

/* Properties of a quantized kind; always compile-time constants. */
struct shape {
    int bits;  /* 2 .. 6 or 8 */
    int parts; /* scales per block of 32: 1 or 2 */
    int zero_point;
    bool has_min, has_table, has_bf16_scale, has_unit;
};

/* A group of a panel: n_blocks blocks. */
struct group {
    const unsigned char *codes, *scales, *mins, *unit, *min_unit;
    size_t n_blocks;
};

/* Multiplies all rows of a chunk by one panel. */
static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k);

/* Computes a whole call: panels_by_chunk, with the ISA's work before and after it. */
static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k);

/* Returns block b of row r of a tile. */
static ALWAYS_INLINE const struct kern_qblock *block_of(const struct job *g, const unsigned char *rows, int r, size_t b)
{
    return (const struct kern_qblock *)(const void *)(rows + (size_t)r * g->row_bytes) + b;
}

/* Returns the group at `at` of a panel with `left` blocks left; panel_group_at. */
static ALWAYS_INLINE struct group group_at(const unsigned char *at, size_t left, struct shape k)
{
    const size_t scale_bytes = (size_t)((k.has_unit ? 1 : 2) * k.parts * PANEL_ROWS);
    struct group g = {.codes = at, .n_blocks = left < PANEL_GROUP ? left : PANEL_GROUP};
    g.scales = at + g.n_blocks * (size_t)(k.bits * 64);
    g.mins = g.scales + g.n_blocks * scale_bytes;
    g.unit = k.has_min ? g.mins + g.n_blocks * scale_bytes : g.mins;
    g.min_unit = g.unit + 2 * PANEL_ROWS;
    return g;
}

/* One block of a panel. */
struct block {
    struct group from;
    size_t at; /* in the group */
};
static ALWAYS_INLINE struct block panel_block(const struct job *g, const unsigned char *panel, size_t b, struct shape k)
{
    size_t group = b / PANEL_GROUP;
    struct block out = {.from = group_at(panel + group * g->group_bytes, g->n_blocks - group * PANEL_GROUP, k),
                        .at = b % PANEL_GROUP};
    return out;
}

/* Blocks of a panel in which a row of the tile has a second term. They are noted without a branch, which could be
 * mispredicted, and computed after the other blocks. FINE_FULL leaves room for one more group. */
enum { FINE_ROOM = 64, FINE_FULL = FINE_ROOM - PANEL_GROUP };
struct fine_list {
    size_t n;
    uint32_t at[FINE_ROOM];
};

/* Notes block `at` of the panel, which is block b of the group at `rows`, if one of its n rows has a second term. */
static ALWAYS_INLINE void note_fine(struct fine_list *list, const struct job *g, const unsigned char *rows, size_t b,
                                    size_t at, int n)
{
    uint32_t any = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        any |= block_of(g, rows, r, b)->fine;
    }
    list->at[list->n] = (uint32_t)at;
    list->n += any;
}

/* Returns about the bytes of a block in its group, without the units. */
static ALWAYS_INLINE int share_bytes(struct shape k)
{
    const int scales = (k.has_unit ? 17 : 32) * k.parts * (k.has_min ? 2 : 1);
    return k.bits * 64 + scales;
}

/* Prefetches a block's share of its group, PREFETCH_BYTES ahead of `at`, into the second-level cache. A line on its way
 * into the first level occupies one of few fill buffers until memory answers. On a Xeon (Sapphire Rapids) one row
 * streams at 16 GB/s with this, at 13 with prefetches 8 KiB ahead into the first level; two rows at 18 and 15. */
static ALWAYS_INLINE void prefetch_share(const unsigned char *at, struct shape k)
{
    enum { PREFETCH_BYTES = 16384, SECOND_LEVEL = 2 };
    uintptr_t from = (uintptr_t)at + PREFETCH_BYTES; /* beyond the last panel: harmless */
    UNROLL_FULLY
    for (int line = 0; line < share_bytes(k); line += 64) {
        __builtin_prefetch((const void *)(from + (uintptr_t)line), 0, SECOND_LEVEL);
    }
}

/* Prefetches during block b of a group, in the order of addresses. Hardware prefetchers stop at page boundaries and
 * restart slowly. On Zen 4 one row of 4-bit codes, K 1536, streams from memory at 27 GB/s with this, at 15 without. */
static ALWAYS_INLINE void prefetch(const struct group *g, size_t b, struct shape k)
{
    prefetch_share(g->codes + b * (size_t)share_bytes(k), k);
}

/* Prefetches the following panel during the i-th block of the second terms, which makes four rows 10 % faster. */
static ALWAYS_INLINE void prefetch_after(const struct job *g, const unsigned char *panel, size_t i, struct shape k)
{
    prefetch_share(panel + g->n_blocks / PANEL_GROUP * g->group_bytes + i * (size_t)share_bytes(k), k);
}

/* Returns the rows of a chunk: a multiple of tile_rows that fits cache_bytes. */
static inline int rows_in_chunk(size_t row_bytes, size_t cache_bytes, size_t tile_rows)
{
    size_t n = cache_bytes / (row_bytes + 1) / tile_rows * tile_rows;
    return (int)MAX_OF(n, tile_rows);
}

/* Computes chunks of `chunk` rows. Each chunk stays in the second-level cache while all panels stream past. */
static ALWAYS_INLINE void panels_by_chunk(const struct kern_matmul_args *a, enum panel_kind kind, int chunk,
                                          struct shape k)
{
    size_t bytes = panel_bytes(kind, a->k);
    const struct job g = {.n_blocks = a->k / PANEL_BLOCK,
                          .row_bytes = a->row_bytes,
                          .group_bytes = panel_group_bytes(kind),
                          .table = panel_table_offset(kind, a->k),
                          .out_stride = a->out_stride,
                          .kind = kind};
    for (int r = 0; r < a->n_rows; r += chunk) {
        const unsigned char *rows = (const unsigned char *)a->rows + (size_t)r * a->row_bytes;
        int n = MIN_OF(chunk, a->n_rows - r);
        for (int p = 0; p < a->n_panels; p++) {
            panel_rows(&g, (const unsigned char *)a->panels + (size_t)p * bytes, rows, n,
                       a->out + (size_t)r * a->out_stride + (size_t)p * PANEL_ROWS, k);
        }
    }
}

/* --- the kinds ---------------------------------------------------------------------------------------------------- */

#define DEFINE(kind, name, n_bits, block, zero, min, table, bf16_scale, unit)                                          \
    static void matmul_##name(const struct kern_matmul_args *a)                                                        \
    {                                                                                                                  \
        matmul(a, PANEL_##kind,                                                                                        \
               (struct shape){.bits = n_bits,                                                                          \
                              .parts = PANEL_BLOCK / block,                                                            \
                              .zero_point = zero,                                                                      \
                              .has_min = min,                                                                          \
                              .has_table = table,                                                                      \
                              .has_bf16_scale = bf16_scale,                                                            \
                              .has_unit = unit});                                                                      \
    }
PANEL_QUANT_KINDS(DEFINE)
#undef DEFINE

static const kern_matmul_fn matmul_kinds[PANEL_KIND_COUNT] = {
#define ROW(kind, name, ...) [PANEL_##kind] = matmul_##name,
    PANEL_QUANT_KINDS(ROW)
#undef ROW
};

/* Sets every quantized kind. inline: an ISA can leave it unused. */
static inline void matmul_vec_init(struct kern_table *t)
{
    for (int kind = 0; kind < PANEL_KIND_COUNT; kind++) {
        t->matmul[kind] = matmul_kinds[kind] != NULL ? matmul_kinds[kind] : t->matmul[kind];
    }
}

#endif
