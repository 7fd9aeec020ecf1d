/* Matrix products of the quantized kinds over 256-bit vectors: all except the sum of products, which the includer
 * defines as dot_words. A panel is two halves of 8 lanes. Include after an enum with
 *   halves processed together: 2, or 1 if registers do not suffice
 * Functions with more than five parameters: see matmul_panels_vec.h. */
#ifndef INFCGI_KERNELS_X86_MATMUL_256_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_256_VEC_H

/* CPUs with AVX2 have second-level caches of 256 KiB and more. */
enum { ROWS_IN_CACHE_BYTES = 192 * 1024, TILE_ROWS = 4, HALVES = 2 };
#include "engine/kernels/x86/matmul_panels_vec.h"

#include <string.h>

/* Adds codes . activations over words from .. to-1 of a block's codes to acc[h][r]. `table` holds the panel's table, if
 * any, in both halves. Row r's activations are at q + r * row_bytes. */
static ALWAYS_INLINE void dot_words(const unsigned char *codes, int from, int to, __m256i table, const int8_t *q,
                                    size_t row_bytes, int n, struct shape k, __m256i acc[WIDTH][TILE_ROWS]);

static ALWAYS_INLINE __m256 half_row(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p));
}

static ALWAYS_INLINE __m256 bf16_row(const unsigned char *p)
{
    __m256i words = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

static ALWAYS_INLINE __m256 step_row(const unsigned char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* Returns row `at` of a group's scales or minimums, which begin at `rows` with their unit at `unit`, for half h of the
 * lanes. */
static ALWAYS_INLINE __m256 scale_row(const unsigned char *rows, const unsigned char *unit, size_t at, int h,
                                      struct shape k)
{
    if (k.has_unit) {
        return _mm256_mul_ps(step_row(rows + at * PANEL_ROWS + 8 * h), half_row(unit + 16 * h));
    }
    rows += at * 2 * PANEL_ROWS + (size_t)(16 * h);
    return k.has_bf16_scale ? bf16_row(rows) : half_row(rows);
}

/* Returns the bits of `mask` of every byte, shifted right by `from`, of line j of a block's codes, half h. */
static ALWAYS_INLINE __m256i bits_of(const unsigned char *codes, int j, int h, int from, char mask)
{
    __m256i line = _mm256_load_si256((const __m256i *)(const void *)(codes + 64 * j + 32 * h));
    line = from > 0 ? _mm256_srli_epi16(line, from) : line;
    return mask != -1 ? _mm256_and_si256(line, _mm256_set1_epi8(mask)) : line;
}

/* Returns the low bits of word v of a block's codes, half h: all of 8-bit codes, four of 4 to 6 bits, two of 2 and
 * 3. */
static ALWAYS_INLINE __m256i low_bits(const unsigned char *codes, int v, int h, struct shape k)
{
    return k.bits == 8  ? bits_of(codes, v, h, 0, -1)
           : k.bits < 4 ? bits_of(codes, v / 4, h, v % 4 * 2, 3)
                        : bits_of(codes, v / 2, h, v % 2 * 4, 15);
}

/* Returns the remaining high bits, if any, from bit 0 on. */
static ALWAYS_INLINE __m256i high_bits(const unsigned char *codes, int v, int h, struct shape k)
{
    return k.bits == 6 ? bits_of(codes, 4 + v / 4, h, v % 4 * 2, 3) : bits_of(codes, k.bits - 1, h, v, 1);
}

/* Broadcasts four activation bytes to every lane. */
static ALWAYS_INLINE __m256i four_bytes(const int8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Adds (codes - zero point) . one term of block b, or of part of a block, to acc[h][r]. */
static ALWAYS_INLINE void dot(const struct job *g, const unsigned char *codes, __m256i table, const unsigned char *rows,
                              size_t b, int part, int n, struct shape k, bool is_lo, __m256i acc[WIDTH][TILE_ROWS])
{
    for (int r = 0; r < n && k.zero_point != 0; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        const int32_t *half = is_lo ? q->half_lo : q->half;
        __m256i zero = _mm256_set1_epi32(k.parts == 2 ? half[part] : is_lo ? q->zero_lo : q->zero); /* -8 * sum */
        zero = k.zero_point < 8 ? _mm256_srai_epi32(zero, __builtin_ctz(8 / (unsigned)k.zero_point))
                                : _mm256_slli_epi32(zero, __builtin_ctz((unsigned)k.zero_point / 8));
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            acc[h][r] = _mm256_add_epi32(acc[h][r], zero);
        }
    }
    const struct kern_qblock *first = block_of(g, rows, 0, b);
    int words = PANEL_BLOCK / 4 / k.parts;
    dot_words(codes, part * words, (part + 1) * words, table, is_lo ? first->lo : first->hi, g->row_bytes, n, k, acc);
}

/* Adds min times the sum of one term's inputs over half a block, in units of d, to product[h][r]. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       bool is_lo, __m256 min[WIDTH], __m256 product[WIDTH][TILE_ROWS])
{
    UNROLL_FULLY
    for (int h = 0; h < WIDTH; h++) {
        min[h] = _mm256_mul_ps(min[h], _mm256_set1_ps(is_lo ? -1.0f / 2048 : -1.0f / 8));
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        int32_t total = is_lo ? q->half_lo[part] : q->half[part];
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            product[h][r] = _mm256_fmadd_ps(min[h], _mm256_set1_ps((float)total), product[h][r]);
        }
    }
}

/* Computes the step of the minimums of blocks with one scale. */
static ALWAYS_INLINE void add_min(const struct job *g, const unsigned char *rows, size_t b, int n,
                                  const __m256 min[WIDTH], __m256 sum[WIDTH][TILE_ROWS])
{
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256 s = _mm256_set1_ps(block_of(g, rows, r, b)->s);
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            sum[h][r] = _mm256_fmadd_ps(min[h], s, sum[h][r]);
        }
    }
}

/* Computes the float steps of kern.h for part `part` of block b and one term, halves from `first` on. */
static ALWAYS_INLINE void add_part(const struct job *g, const struct group *from, const unsigned char *rows, size_t b,
                                   int part, int first, int n, struct shape k, bool is_lo,
                                   __m256i acc[WIDTH][TILE_ROWS], __m256 sum[WIDTH][TILE_ROWS])
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    __m256 product[WIDTH][TILE_ROWS], min[WIDTH];
    UNROLL_FULLY
    for (int h = 0; h < WIDTH; h++) {
        __m256 scale = scale_row(from->scales, from->unit, at, first + h, k);
        scale = is_lo ? _mm256_mul_ps(scale, _mm256_set1_ps(1.0f / 256)) : scale;
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            product[h][r] = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(acc[h][r]));
        }
        min[h] = k.has_min ? scale_row(from->mins, from->min_unit, at, first + h, k) : scale;
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, is_lo, min, product);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m256 d = _mm256_set1_ps(block_of(g, rows, r, b)->d);
        UNROLL_FULLY
        for (int h = 0; h < WIDTH; h++) {
            sum[h][r] = _mm256_fmadd_ps(product[h][r], d, sum[h][r]);
        }
    }
    if (k.has_min && k.parts == 1 && !is_lo) { /* s has both terms */
        add_min(g, rows, b, n, min, sum);
    }
}

/* Computes one part of a block for a tile, one term, halves first .. first+WIDTH-1. rows: from the group's inputs
 * on. */
static ALWAYS_INLINE void tile_part(const struct job *g, const struct group *from, __m256i table,
                                    const unsigned char *rows, size_t b, int part, int first, int n, struct shape k,
                                    bool is_lo, __m256 sum[WIDTH][TILE_ROWS])
{
    const unsigned char *codes = from->codes + b * (size_t)(k.bits * 64) + 32 * first;
    __m256i acc[WIDTH][TILE_ROWS];
    UNROLL_FULLY
    for (int h = 0; h < WIDTH; h++) {
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[h][r] = _mm256_setzero_si256();
        }
    }
    dot(g, codes, table, rows, b, part, n, k, is_lo, acc);
    add_part(g, from, rows, b, part, first, n, k, is_lo, acc, sum);
}

/* Computes a block for a tile, one term. */
static ALWAYS_INLINE void tile_block(const struct job *g, const struct group *from, __m256i table,
                                     const unsigned char *rows, size_t b, int first, int n_halves, int n,
                                     struct shape k, bool is_lo, __m256 sum[HALVES][TILE_ROWS])
{
    UNROLL_FULLY
    for (int h = 0; h < n_halves; h += WIDTH) {
        UNROLL_FULLY
        for (int part = 0; part < k.parts; part++) {
            tile_part(g, from, table, rows, b, part, first + h, n, k, is_lo, sum + h);
        }
    }
}

static ALWAYS_INLINE __m256i load_table(const struct job *g, const unsigned char *panel, struct shape k)
{
    return k.has_table ? _mm256_load_si256((const __m256i *)(const void *)(panel + g->table)) : _mm256_setzero_si256();
}

/* Computes the second terms of the listed blocks. */
static ALWAYS_INLINE void add_rests(const struct job *g, const unsigned char *panel, __m256i table,
                                    const unsigned char *rows, int first, int n_halves, int n, struct shape k,
                                    const struct fine_list *list, __m256 rest[HALVES][TILE_ROWS])
{
    for (size_t i = 0; i < list->n; i++) {
        struct block block = panel_block(g, panel, list->at[i], k);
        prefetch_after(g, panel, i, k);
        const unsigned char *group_rows = rows + (list->at[i] - block.at) * sizeof(struct kern_qblock);
        tile_block(g, &block.from, table, group_rows, block.at, first, n_halves, n, k, true, rest);
    }
}

/* Computes n_halves halves from `first` on, block by block, WIDTH at a time. */
static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               int first, int n_halves, int n, struct shape k)
{
    __m256 sum[HALVES][TILE_ROWS], rest[HALVES][TILE_ROWS];
    __m256i table = load_table(g, panel, k);
    struct fine_list list;
    list.n = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[0][r] = sum[1][r] = rest[0][r] = rest[1][r] = _mm256_setzero_ps();
    }
    const unsigned char *group_rows = rows, *group = panel;
    for (size_t at = 0; at < g->n_blocks; at += PANEL_GROUP) {
        struct group from = group_at(group, g->n_blocks - at, k);
        for (size_t b = 0; b < from.n_blocks; b++) {
            prefetch(&from, b, k);
            note_fine(&list, g, group_rows, b, at + b, n);
            tile_block(g, &from, table, group_rows, b, first, n_halves, n, k, false, sum);
        }
        if (list.n > FINE_FULL) {
            add_rests(g, panel, table, rows, first, n_halves, n, k, &list, rest);
            list.n = 0;
        }
        group += g->group_bytes;
        group_rows += PANEL_GROUP * sizeof(struct kern_qblock);
    }
    add_rests(g, panel, table, rows, first, n_halves, n, k, &list, rest);
    UNROLL_FULLY
    for (int h = 0; h < n_halves; h++) {
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            _mm256_storeu_ps(out + (size_t)r * g->out_stride + 8 * (first + h), _mm256_add_ps(sum[h][r], rest[h][r]));
        }
    }
}

/* Full tiles compute WIDTH halves at a time, because registers do not suffice for more. Smaller tiles compute both: few
 * rows stream panels from memory and so read each panel once. */
static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k)
{
    int r = 0;
    for (; r + TILE_ROWS <= n; r += TILE_ROWS) {
        for (int first = 0; first < HALVES; first += WIDTH) {
            tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, first, WIDTH, TILE_ROWS,
                 k);
        }
    }
    if (n - r >= 2) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 0, HALVES, 2, k);
        r += 2;
    }
    if (n - r >= 1) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 0, HALVES, 1, k);
    }
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    all_panels(a, kind, k);
}

#endif
