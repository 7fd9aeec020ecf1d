/* out = rows * panels^T with AMX int8 tiles, quantized kinds. Include after amx_tile.h or its emulation.
 *
 * A panel's 8-bit block is 8 lines of 64 bytes. In line j, lane l's four bytes are inputs 4j .. 4j+3, the form of the
 * second factor in AMX. So one tile product is 16 activation rows by a block of 32 inputs by 16 output rows:
 *
 *   A 16 x 32 bytes, kern_qblock.hi of 16 rows in place     B 8 x 64 bytes, codes     C 16 x 16 int32
 *
 * 4-bit codes are unpacked to such a block. Subtracting zero points there saves the correction of every row and makes B
 * signed; it is unsigned in kinds with minimums. Scales differ between blocks, so C is stored after each block. Vectors
 * then do the float steps in the order of kern.h, with the bits of ref. Three blocks are in progress: one is unpacked,
 * the previous one multiplied, and the one before that added.
 *
 * avx512's kernel computes fewer than 16 rows, and kinds with a scale per 16 inputs, which need twice the float steps
 * for half the product. It also computes float kinds: kern.h prescribes sequential FMAs in f32, but tiles of f16 or
 * bf16 round activations to 11 or 8 bits and add in their own order. Functions with more than five parameters: see
 * matmul_panels_vec.h. */
#ifndef INFCGI_KERNELS_X86_MATMUL_AMX_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_AMX_VEC_H

#include "engine/kernels/isa.h"

/* CPUs with AMX have second-level caches of 2 MiB. */
enum { ROWS_IN_CACHE_BYTES = 1024 * 1024, TILE_ROWS = 16, WORTH_A_TILE = 14 };
#include "engine/kernels/x86/matmul_panels_vec.h"

#include "engine/kernels/x86/matmul_512_vec.h"

/* Two sets of tiles, so that a product need not wait until the previous one has left its registers. */
#define SUMS_0  0
#define ROWS_0  1
#define CODES_0 2
#define SUMS_1  3
#define ROWS_1  4
#define CODES_1 5
enum { TILE_SETS = 2, SET_TILES = 3 };

/* Blocks in progress. They are unpacked, multiplied and added one step apart, so that no load waits for the latest
 * store. */
enum { TO_PRODUCTS = 1, TO_SUMS = 2 };
struct on_the_way {
    _Alignas(64) unsigned char bytes[2][PANEL_BLOCK / 4 * LINE_BYTES]; /* codes of alternate blocks */
    _Alignas(64) int32_t sums[2][TILE_ROWS][PANEL_ROWS];
};

/* One of the three passes over a tile's blocks, which are at different blocks. */
struct walk {
    struct group from;
    size_t b;                  /* in the group */
    const unsigned char *rows; /* the first row's block */
};

static ALWAYS_INLINE void walk_to(struct walk *w, const struct job *g, const unsigned char *panel,
                                  const unsigned char *rows, size_t i, struct shape k)
{
    w->b = i % PANEL_GROUP;
    w->rows = rows + i * sizeof(struct kern_qblock);
    if (w->b == 0) {
        w->from = group_at(panel + i / PANEL_GROUP * g->group_bytes, g->n_blocks - i, k);
    }
}

static ALWAYS_INLINE void configure(void)
{
    struct amx_config c = {.palette = 1};
    for (int set = 0; set < TILE_SETS * SET_TILES; set += SET_TILES) {
        c.rows[set + SUMS_0] = c.rows[set + ROWS_0] = TILE_ROWS;
        c.row_bytes[set + SUMS_0] = c.row_bytes[set + CODES_0] = LINE_BYTES;
        c.row_bytes[set + ROWS_0] = PANEL_BLOCK;
        c.rows[set + CODES_0] = PANEL_BLOCK / 4;
    }
    AMX_CONFIGURE(&c);
}

static ALWAYS_INLINE const unsigned char *codes_of(const struct walk *w, struct shape k)
{
    return w->from.codes + w->b * (size_t)(k.bits * LINE_BYTES);
}

static ALWAYS_INLINE bool is_as_tiles_want(struct shape k) { return k.bits == 8 && k.zero_point == 0; }

/* Writes the codes of a block, minus the zero point, as 8 lines of bytes. */
static ALWAYS_INLINE void unpack(const struct walk *w, __m512i table, struct shape k, unsigned char *bytes)
{
    if (is_as_tiles_want(k)) {
        return;
    }
    UNROLL_FULLY
    for (int v = 0; v < PANEL_BLOCK / 4; v++) {
        __m512i words = code_words(codes_of(w, k), table, v, k);
        _mm512_store_si512(bytes + LINE_BYTES * v, _mm512_sub_epi8(words, _mm512_set1_epi8((char)k.zero_point)));
    }
}

/* Computes the integer sums of a block with one set of tiles. */
#define PRODUCTS(set)                                                                                                  \
    do {                                                                                                               \
        AMX_LOAD(CODES_##set, lines, LINE_BYTES);                                                                      \
        AMX_LOAD(ROWS_##set, w->rows, g->row_bytes);                                                                   \
        AMX_ZERO(SUMS_##set);                                                                                          \
        if (k.has_min) {                                                                                               \
            AMX_DOT_UNSIGNED(SUMS_##set, ROWS_##set, CODES_##set);                                                     \
        } else {                                                                                                       \
            AMX_DOT_SIGNED(SUMS_##set, ROWS_##set, CODES_##set);                                                       \
        }                                                                                                              \
        AMX_STORE(SUMS_##set, sums, LINE_BYTES);                                                                       \
    } while (0)

static ALWAYS_INLINE void products(const struct job *g, const struct walk *w, const unsigned char *bytes, bool is_odd,
                                   struct shape k, int32_t sums[TILE_ROWS][PANEL_ROWS])
{
    const unsigned char *lines = is_as_tiles_want(k) ? codes_of(w, k) : bytes;
    if (is_odd) {
        PRODUCTS(1);
    } else {
        PRODUCTS(0);
    }
}

/* Computes the float steps of kern.h. */
static ALWAYS_INLINE void add_block(const struct job *g, const struct walk *w, struct shape k,
                                    int32_t sums[TILE_ROWS][PANEL_ROWS], __m512 *sum)
{
    __m512 scale = scale_row(w->from.scales, w->from.unit, w->b, k);
    __m512 min = k.has_min ? scale_row(w->from.mins, w->from.min_unit, w->b, k) : _mm512_setzero_ps();
    UNROLL_FULLY
    for (int r = 0; r < TILE_ROWS; r++) {
        const struct kern_qblock *q = block_of(g, w->rows, r, 0);
        __m512 product = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_load_si512(sums[r])));
        sum[r] = _mm512_fmadd_ps(product, _mm512_set1_ps(q->d), sum[r]);
        sum[r] = k.has_min ? _mm512_fmadd_ps(min, _mm512_set1_ps(q->s), sum[r]) : sum[r];
    }
}

static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               struct shape k)
{
    struct on_the_way way;
    struct walk codes = {0}, dots = {0}, floats = {0};
    __m512i table = load_table(g, panel, k);
    __m512 sum[TILE_ROWS], rest[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < TILE_ROWS; r++) {
        sum[r] = rest[r] = _mm512_setzero_ps();
    }
    struct fine_list list;
    list.n = 0;
    for (size_t i = 0; i < g->n_blocks + TO_SUMS; i++) {
        if (i < g->n_blocks) {
            walk_to(&codes, g, panel, rows, i, k);
            prefetch(&codes.from, codes.b, k);
            unpack(&codes, table, k, way.bytes[i % 2]);
            note_fine(&list, g, codes.rows, 0, i, TILE_ROWS);
        }
        if (i >= TO_PRODUCTS && i - TO_PRODUCTS < g->n_blocks) {
            walk_to(&dots, g, panel, rows, i - TO_PRODUCTS, k);
            products(g, &dots, way.bytes[(i - TO_PRODUCTS) % 2], i % 2, k, way.sums[(i - TO_PRODUCTS) % 2]);
        }
        if (i >= TO_SUMS) {
            walk_to(&floats, g, panel, rows, i - TO_SUMS, k);
            add_block(g, &floats, k, way.sums[(i - TO_SUMS) % 2], sum);
        }
        if (list.n > FINE_FULL || i + 1 == g->n_blocks) {
            for (int r = 0; r < TILE_ROWS; r += PART_ROWS) {
                add_rests(g, panel, table, rows + (size_t)r * g->row_bytes, PART_ROWS, k, &list, rest + r);
            }
            list.n = 0;
        }
    }
    UNROLL_FULLY
    for (int r = 0; r < TILE_ROWS; r++) {
        _mm512_storeu_ps(out + (size_t)r * g->out_stride, _mm512_add_ps(sum[r], rest[r]));
    }
}

/* Computes n rows, too few for a tile, with one panel, while it is in the cache. */
static ALWAYS_INLINE void few_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                   float *out)
{
    kern_matmul_avx512(g->kind, &(struct kern_matmul_args){.panels = panel,
                                                           .n_panels = 1,
                                                           .k = g->n_blocks * PANEL_BLOCK,
                                                           .rows = rows,
                                                           .row_bytes = g->row_bytes,
                                                           .n_rows = n,
                                                           .out = out,
                                                           .out_stride = g->out_stride});
}

static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k)
{
    int r = 0;
    while (r + TILE_ROWS <= n) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, k);
        r += TILE_ROWS;
        if (n - r >= WORTH_A_TILE && n - r < TILE_ROWS) {
            r = n - TILE_ROWS; /* recomputes some rows, with the same bits */
        }
    }
    if (r < n) {
        few_rows(g, panel, rows + (size_t)r * g->row_bytes, n - r, out + (size_t)r * g->out_stride);
    }
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    if (a->n_rows < TILE_ROWS) {
        kern_matmul_avx512(kind, a);
        return;
    }
    configure();
    all_panels(a, kind, k);
    AMX_RELEASE();
}

/* Sets the kinds with one scale per block. */
static inline void matmul_amx_init(struct kern_table *t)
{
#define ROW(kind, name, n_bits, block, ...) [PANEL_##kind] = (block) == PANEL_BLOCK,
    static const bool has_tiles[PANEL_KIND_COUNT] = {PANEL_QUANT_KINDS(ROW)};
#undef ROW
    for (int kind = 0; kind < PANEL_KIND_COUNT; kind++) {
        t->matmul[kind] = has_tiles[kind] ? matmul_kinds[kind] : t->matmul[kind];
    }
}

#endif
