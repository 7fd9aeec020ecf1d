/* Reads panels with 512-bit vectors: a lane is an output row of the panel. Include after matmul_panels_vec.h. */
#ifndef INFCGI_KERNELS_X86_MATMUL_512_VEC_H
#define INFCGI_KERNELS_X86_MATMUL_512_VEC_H

#include <string.h>

/* PART_ROWS: maximum rows of the functions on parts of blocks. */
enum { LINE_BYTES = 64, PART_ROWS = 8, SPLIT_ROWS = 4 };

static ALWAYS_INLINE __m512 half_row(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}

static ALWAYS_INLINE __m512 bf16_row(const unsigned char *p)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

static ALWAYS_INLINE __m512 step_row(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)p)));
}

/* Returns row `at` of a group's scales or minimums, which begin at `rows` with their unit at `unit`. */
static ALWAYS_INLINE __m512 scale_row(const unsigned char *rows, const unsigned char *unit, size_t at, struct shape k)
{
    if (k.has_unit) {
        return _mm512_mul_ps(step_row(rows + at * PANEL_ROWS), half_row(unit));
    }
    return k.has_bf16_scale ? bf16_row(rows + at * 2 * PANEL_ROWS) : half_row(rows + at * 2 * PANEL_ROWS);
}

/* Shifts every 16-bit element right by the constant `by`, or left if it is negative. */
static ALWAYS_INLINE __m512i shift_right(__m512i v, int by)
{
    return by > 0 ? _mm512_srli_epi16(v, (unsigned)by) : by < 0 ? _mm512_slli_epi16(v, (unsigned)-by) : v;
}

/* Shifts a line right by `by` and ors its bits of `mask` to `low`. */
static ALWAYS_INLINE __m512i add_bits(__m512i low, const unsigned char *line, int by, char mask)
{
    __m512i bits = shift_right(_mm512_load_si512(line), by);
    return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi8(mask), low, 0xEA); /* (bits & mask) | low */
}

/* Returns word v (0..7) of a block's codes for every lane; table entries in table kinds. */
static ALWAYS_INLINE __m512i code_words(const unsigned char *codes, __m512i table, int v, struct shape k)
{
    if (k.bits == 8) {
        return _mm512_load_si512(codes + LINE_BYTES * v);
    }
    if (k.bits < 4) {
        __m512i pairs = shift_right(_mm512_load_si512(codes + LINE_BYTES * (v / 4)), 2 * (v % 4));
        pairs = _mm512_and_si512(pairs, _mm512_set1_epi8(3));
        return k.bits == 3 ? add_bits(pairs, codes + 2 * LINE_BYTES, v - 2, 4) : pairs;
    }
    __m512i low = shift_right(_mm512_load_si512(codes + LINE_BYTES * (v / 2)), 4 * (v % 2));
    low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    if (k.bits == 5) {
        return add_bits(low, codes + 4 * LINE_BYTES, v - 4, 16);
    }
    if (k.bits == 6) {
        return add_bits(low, codes + LINE_BYTES * (4 + v / 4), 2 * (v % 4) - 4, 48);
    }
    return k.has_table ? _mm512_shuffle_epi8(table, low) : low;
}

static ALWAYS_INLINE __m512i load_table(const struct job *g, const unsigned char *panel, struct shape k)
{
    return k.has_table ? _mm512_load_si512(panel + g->table) : _mm512_setzero_si512();
}

/* Broadcast four activation bytes, an integer or a float to every lane. */
static ALWAYS_INLINE __m512i four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Converts -8 times a sum of activations to minus the zero point times the sum. */
static ALWAYS_INLINE __m512i zero_times(int32_t sum, struct shape k)
{
    __m512i v = _mm512_set1_epi32(sum);
    return k.zero_point < 8 ? _mm512_srai_epi32(v, (unsigned)__builtin_ctz(8 / (unsigned)k.zero_point))
                            : _mm512_slli_epi32(v, (unsigned)__builtin_ctz((unsigned)k.zero_point / 8));
}

/* Computes acc[r] = (codes - zero point) . one term of block b, or of a part of it, for n <= PART_ROWS rows. */
static ALWAYS_INLINE void dot(const struct job *g, const unsigned char *codes, __m512i table, const unsigned char *rows,
                              size_t b, int part, int n, struct shape k, bool is_lo, __m512i *acc)
{
    const int8_t *q[PART_ROWS];
    /* Few rows would wait for the latency of their sums, so every other word is added to a second sum. */
    const bool is_split = n <= SPLIT_ROWS && k.parts == 1 && !is_lo;
    __m512i odd[SPLIT_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *block = block_of(g, rows, r, b);
        if (is_split) {
            odd[r] = _mm512_setzero_si512();
        }
        q[r] = is_lo ? block->lo : block->hi;
        const int32_t *half = is_lo ? block->half_lo : block->half;
        acc[r] = k.zero_point == 0 ? _mm512_setzero_si512()
                 : k.parts == 2    ? zero_times(half[part], k)
                                   : zero_times(is_lo ? block->zero_lo : block->zero, k);
    }
    int words = PANEL_BLOCK / 4 / k.parts;
    UNROLL_FULLY
    for (int v = part * words; v < part * words + words; v++) {
        __m512i c = code_words(codes, table, v, k);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            __m512i *to = is_split && v % 2 == 1 ? &odd[r] : &acc[r];
            *to = _mm512_dpbusd_epi32(*to, c, four_bytes(q[r] + 4 * v));
        }
    }
    UNROLL_FULLY
    for (int r = 0; is_split && r < n; r++) {
        acc[r] = _mm512_add_epi32(acc[r], odd[r]);
    }
}

/* Adds min times the sum of one term's inputs over half a block, in units of d, to product[r]. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       bool is_lo, __m512 min, __m512 *product)
{
    min = _mm512_mul_ps(min, _mm512_set1_ps(is_lo ? -1.0f / 2048 : -1.0f / 8));
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *block = block_of(g, rows, r, b);
        __m512i total = _mm512_set1_epi32(is_lo ? block->half_lo[part] : block->half[part]);
        product[r] = _mm512_fmadd_ps(min, _mm512_cvtepi32_ps(total), product[r]);
    }
}

/* Adds one term of one part of a block to sum[r]: integer dot, then the float steps of kern.h. rows: from the group's
 * inputs on. */
static ALWAYS_INLINE void tile_part(const struct job *g, const struct group *from, __m512i table,
                                    const unsigned char *rows, size_t b, int part, int n, struct shape k, bool is_lo,
                                    __m512 *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    const unsigned char *codes = from->codes + b * (size_t)(k.bits * LINE_BYTES);
    __m512 scale = scale_row(from->scales, from->unit, at, k);
    scale = is_lo ? _mm512_mul_ps(scale, _mm512_set1_ps(1.0f / 256)) : scale;
    __m512i acc[PART_ROWS];
    dot(g, codes, table, rows, b, part, n, k, is_lo, acc);
    __m512 product[PART_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        product[r] = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(acc[r]));
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, is_lo, scale_row(from->mins, from->min_unit, at, k), product);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[r] = _mm512_fmadd_ps(product[r], _mm512_set1_ps(block_of(g, rows, r, b)->d), sum[r]);
    }
    if (k.has_min && k.parts == 1 && !is_lo) { /* s has both terms */
        __m512 min = scale_row(from->mins, from->min_unit, at, k);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            sum[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(block_of(g, rows, r, b)->s), sum[r]);
        }
    }
}

/* Computes the listed blocks' second terms of the n <= PART_ROWS rows at `rows`. */
static ALWAYS_INLINE void add_rests(const struct job *g, const unsigned char *panel, __m512i table,
                                    const unsigned char *rows, int n, struct shape k, const struct fine_list *list,
                                    __m512 *rest)
{
    for (size_t i = 0; i < list->n; i++) {
        struct block block = panel_block(g, panel, list->at[i], k);
        prefetch_after(g, panel, i, k);
        const unsigned char *group_rows = rows + (list->at[i] - block.at) * sizeof(struct kern_qblock);
        UNROLL_FULLY
        for (int part = 0; part < k.parts; part++) {
            tile_part(g, &block.from, table, group_rows, block.at, part, n, k, true, rest);
        }
    }
}

#endif
