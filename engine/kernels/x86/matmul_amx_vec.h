/* out = rows * panels^T with AMX int8 tiles, quantised kinds. Include after amx_tile.h or what stands in for it.
 *
 * A panel's 8-bit block, 8 lines of 64 bytes in which lane l's four bytes are inputs 4j .. 4j+3, is what AMX wants for
 * the second factor. So one tile product is 16 activation rows by a block of 32 inputs by 16 output rows:
 *
 *   A 16 x 32 bytes, kern_qblock.hi of 16 rows, as they lie     B 8 x 64 bytes, codes     C 16 x 16 int32
 *
 * 4-bit codes are unpacked to such a block, and zero points subtracted there, which saves the correction for every row:
 * B then is signed; kinds with minimums have it unsigned. Scales change from block to block, so C is stored after each
 * and the float steps are done on vectors, in the order that kern.h prescribes: bits are those of ref. The tile
 * products of a block run while the float steps of the one before it are done.
 *
 * Fewer than 16 rows go to avx512's kernel. So do float kinds: kern.h wants one FMA in f32 after the other, but tiles
 * of f16 or bf16 round the activations to 11 or 8 bits and add in an order of their own. Functions with more than five
 * parameters: see matmul_panels_vec.h. */
#ifndef INFCGI_KERNELS_X86_MATMUL_AMX_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_AMX_VEC_H

#include "engine/kernels/isa.h"

/* CPUs with AMX have second-level caches of 2 MiB. */
enum { ROWS_IN_CACHE_BYTES = 1024 * 1024, TILE_ROWS = 16, WORTH_A_TILE = 8 };
#include "engine/kernels/x86/matmul_panels_vec.h"

#include "engine/kernels/x86/matmul_512_vec.h"

/* The tiles. */
#define SUMS  0
#define ROWS  1
#define CODES 2

/* Integer sums of a block, or of each part of one. */
struct block_sums {
    _Alignas(64) int32_t part[2][TILE_ROWS][PANEL_ROWS];
};

static ALWAYS_INLINE void configure(struct shape k)
{
    struct amx_config c = {.palette = 1};
    c.rows[SUMS] = c.rows[ROWS] = TILE_ROWS;
    c.row_bytes[SUMS] = c.row_bytes[CODES] = LINE_BYTES;
    c.row_bytes[ROWS] = (uint16_t)(PANEL_BLOCK / k.parts);
    c.rows[CODES] = (uint8_t)(PANEL_BLOCK / 4 / k.parts);
    AMX_CONFIGURE(&c);
}

/* The codes of a block as 8 lines of bytes, less the zero point: in `room`, or where they are when nothing is to do. */
static ALWAYS_INLINE const unsigned char *byte_lines(const unsigned char *codes, __m512i table, struct shape k,
                                                     unsigned char *room)
{
    if (k.bits == 8 && k.zero_point == 0) {
        return codes;
    }
    UNROLL_FULLY
    for (int v = 0; v < PANEL_BLOCK / 4; v++) {
        __m512i words = code_words(codes, table, v, k);
        _mm512_store_si512(room + LINE_BYTES * v, _mm512_sub_epi8(words, _mm512_set1_epi8((char)k.zero_point)));
    }
    return room;
}

/* out = integer sums of block b of 16 rows. */
static ALWAYS_INLINE void block_products(const struct job *g, const struct group *from, __m512i table,
                                         const unsigned char *rows, size_t b, struct shape k, struct block_sums *out)
{
    _Alignas(64) unsigned char room[PANEL_BLOCK / 4 * LINE_BYTES];
    const unsigned char *codes = byte_lines(from->codes + b * (size_t)(k.bits * LINE_BYTES), table, k, room);
    const struct kern_qblock *q = block_of(g, rows, 0, b);
    UNROLL_FULLY
    for (int part = 0; part < k.parts; part++) {
        int at = PANEL_BLOCK / k.parts * part;
        AMX_LOAD(CODES, codes + LINE_BYTES * at / 4, LINE_BYTES);
        AMX_LOAD(ROWS, q->hi + at, g->row_bytes);
        AMX_ZERO(SUMS);
        if (k.has_min) {
            AMX_DOT_UNSIGNED(SUMS, ROWS, CODES);
        } else {
            AMX_DOT_SIGNED(SUMS, ROWS, CODES);
        }
        AMX_STORE(SUMS, out->part[part], LINE_BYTES);
    }
}

/* The float steps that kern.h prescribes, for one part of block b. */
static ALWAYS_INLINE void add_part(const struct job *g, const struct group *from, const unsigned char *rows, size_t b,
                                   int part, struct shape k, const struct block_sums *sums, __m512 *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    __m512 scale = scale_row(from->scales, from->unit, at, k);
    __m512 min = k.has_min ? scale_row(from->mins, from->min_unit, at, k) : _mm512_setzero_ps();
    __m512 half_min = _mm512_mul_ps(min, _mm512_set1_ps(-1.0f / 8));
    UNROLL_FULLY
    for (int r = 0; r < TILE_ROWS; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        __m512 product = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_load_si512(sums->part[part][r])));
        if (k.has_min && k.parts == 2) {
            product = _mm512_fmadd_ps(half_min, _mm512_cvtepi32_ps(_mm512_set1_epi32(q->half[part])), product);
        }
        sum[r] = _mm512_fmadd_ps(product, _mm512_set1_ps(q->d), sum[r]);
        sum[r] = k.has_min && k.parts == 1 ? _mm512_fmadd_ps(min, _mm512_set1_ps(q->s), sum[r]) : sum[r];
    }
}

static ALWAYS_INLINE void add_block(const struct job *g, const struct group *from, const unsigned char *rows, size_t b,
                                    struct shape k, const struct block_sums *sums, __m512 *sum)
{
    UNROLL_FULLY
    for (int part = 0; part < k.parts; part++) {
        add_part(g, from, rows, b, part, k, sums, sum);
    }
}

static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               struct shape k)
{
    struct block_sums sums[2]; /* of the block whose products are under way and of the one before it */
    __m512i table = load_table(g, panel, k);
    __m512 sum[TILE_ROWS], rest[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < TILE_ROWS; r++) {
        sum[r] = rest[r] = _mm512_setzero_ps();
    }
    struct fine_list list;
    list.n = 0;
    struct group from[2]; /* likewise */
    for (size_t b = 0; b <= g->n_blocks; b++) {
        size_t group = b / PANEL_GROUP, in_group = b % PANEL_GROUP;
        const unsigned char *group_rows = rows + group * PANEL_GROUP * sizeof(struct kern_qblock);
        if (b < g->n_blocks) {
            from[b % 2] = group_at(panel + group * g->group_bytes, g->n_blocks - group * PANEL_GROUP, k);
            prefetch(&from[b % 2], in_group, k);
            block_products(g, &from[b % 2], table, group_rows, in_group, k, &sums[b % 2]);
            note_fine(&list, g, group_rows, in_group, b, TILE_ROWS);
        }
        if (b > 0) {
            group = (b - 1) / PANEL_GROUP;
            group_rows = rows + group * PANEL_GROUP * sizeof(struct kern_qblock);
            add_block(g, &from[(b - 1) % 2], group_rows, (b - 1) % PANEL_GROUP, k, &sums[(b - 1) % 2], sum);
        }
        if (list.n > FINE_FULL || b == g->n_blocks) {
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

/* Rows from r on that make no tile: a panel at a time, as it is in the cache. */
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
            r = n - TILE_ROWS; /* computes some rows again, to the same bits */
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
    configure(k);
    all_panels(a, kind, k);
    AMX_RELEASE();
}

#endif
