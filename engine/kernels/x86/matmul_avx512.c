/* out = rows * panels^T with AVX-512 VNNI, quantised kinds: lane = output row of the panel.
 *
 * A tile is 8 (4, 2, 1) activation rows times one panel; its sums stay in registers. vpdpbusd takes 4 unsigned codes a
 * lane and 4 activation bytes that are broadcast from memory, so the activations need no rearranging. Kinds with a
 * table replace their indexes by codes with one vpshufb a register, before the rows share them. Codes
 * of 5, 6 and 3 bits are put together in registers, which costs a tile of 8 rows next to nothing. Every tile shape runs
 * the same operations in the same order for an element, so results do not depend on the shape of a call. Float kinds:
 * matmul_float_avx512.c. Functions with more than five parameters: see matmul_panels_vec.h. */
#include "engine/kernels/isa.h"

#include <string.h>

/* The second-level cache has 1 MiB on Zen 4 and later, at least that on AVX-512 Intel servers. */
enum { ROWS_IN_CACHE_BYTES = 384 * 1024, TILE_ROWS = 8 };
#include "engine/kernels/x86/matmul_panels_vec.h"

#include "engine/kernels/x86/matmul_512_vec.h"

/* Four activation bytes, an integer, a float in every lane. */
static ALWAYS_INLINE __m512i four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return _mm512_set1_epi32(v);
}

/* -8 times a sum of activations becomes minus the zero point times it. */
static ALWAYS_INLINE __m512i zero_times(int32_t sum, struct shape k)
{
    __m512i v = _mm512_set1_epi32(sum);
    return k.zero_point < 8 ? _mm512_srai_epi32(v, (unsigned)__builtin_ctz(8 / (unsigned)k.zero_point))
                            : _mm512_slli_epi32(v, (unsigned)__builtin_ctz((unsigned)k.zero_point / 8));
}

/* acc[r] += (codes - zero point) . one term over block b or one part of it. */
static ALWAYS_INLINE void dot(const struct job *g, const unsigned char *codes, __m512i table, const unsigned char *rows,
                              size_t b, int part, int n, struct shape k, bool is_lo, __m512i *acc)
{
    const int8_t *q[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *block = block_of(g, rows, r, b);
        q[r] = is_lo ? block->lo : block->hi;
        if (k.zero_point != 0) {
            const int32_t *half = is_lo ? block->half_lo : block->half;
            acc[r] = _mm512_add_epi32(acc[r], zero_times(k.parts == 2 ? half[part]
                                                         : is_lo      ? block->zero_lo
                                                                      : block->zero,
                                                         k));
        }
    }
    int words = PANEL_BLOCK / 4 / k.parts;
    UNROLL_FULLY
    for (int v = part * words; v < part * words + words; v++) {
        __m512i c = code_words(codes, table, v, k);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = _mm512_dpbusd_epi32(acc[r], c, four_bytes(q[r] + 4 * v));
        }
    }
}

/* product[r] += min times the sum of the inputs over half a block, in units of d. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       bool is_fine, __m512 min, __m512 *product)
{
    min = _mm512_mul_ps(min, _mm512_set1_ps(is_fine ? -1.0f / 2048 : -1.0f / 8));
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *q = block_of(g, rows, r, b);
        int32_t total = is_fine ? 256 * q->half[part] + q->half_lo[part] : q->half[part];
        product[r] = _mm512_fmadd_ps(min, _mm512_cvtepi32_ps(_mm512_set1_epi32(total)), product[r]);
    }
}

/* One block's part of a tile: integer dot, then the float steps kern.h prescribes. rows: from the group's inputs on. */
static ALWAYS_INLINE void tile_part(const struct job *g, const struct group *from, __m512i table,
                                    const unsigned char *rows, size_t b, int part, int n, struct shape k, bool is_fine,
                                    __m512 *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    const unsigned char *codes = from->codes + b * (size_t)(k.bits * LINE_BYTES);
    __m512 scale = scale_row(from->scales, from->unit, at, k);
    __m512i acc[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = _mm512_setzero_si512();
    }
    dot(g, codes, table, rows, b, part, n, k, false, acc);
    if (is_fine) {
        scale = _mm512_mul_ps(scale, _mm512_set1_ps(1.0f / 256));
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            acc[r] = _mm512_slli_epi32(acc[r], 8);
        }
        dot(g, codes, table, rows, b, part, n, k, true, acc);
    }
    __m512 product[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        product[r] = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(acc[r]));
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, is_fine, scale_row(from->mins, from->min_unit, at, k), product);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[r] = _mm512_fmadd_ps(product[r], _mm512_set1_ps(block_of(g, rows, r, b)->d), sum[r]);
    }
    if (k.has_min && k.parts == 1) {
        __m512 min = scale_row(from->mins, from->min_unit, at, k);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            sum[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(block_of(g, rows, r, b)->s), sum[r]);
        }
    }
}

/* A group of a tile. */
static ALWAYS_INLINE void tile_group(const struct job *g, const struct group *from, __m512i table,
                                     const unsigned char *rows, int n, struct shape k, __m512 *sum)
{
    for (size_t b = 0; b < from->n_blocks; b++) {
        prefetch(from, b, k);
        bool is_fine = any_fine(g, rows, b, n);
        UNROLL_FULLY
        for (int part = 0; part < k.parts; part++) {
            if (is_fine) {
                tile_part(g, from, table, rows, b, part, n, k, true, sum);
            } else {
                tile_part(g, from, table, rows, b, part, n, k, false, sum);
            }
        }
    }
}

static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               int n, struct shape k)
{
    __m512 sum[TILE_ROWS];
    __m512i table = load_table(g, panel, k);
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[r] = _mm512_setzero_ps();
    }
    for (size_t left = g->n_blocks; left > 0;) {
        struct group from = group_at(panel, left, k);
        tile_group(g, &from, table, rows, n, k, sum);
        left -= from.n_blocks;
        panel += g->group_bytes;
        rows += PANEL_GROUP * sizeof(struct kern_qblock);
    }
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        _mm512_storeu_ps(out + (size_t)r * g->out_stride, sum[r]);
    }
}

static ALWAYS_INLINE void panel_rows(const struct job *g, const unsigned char *panel, const unsigned char *rows, int n,
                                     float *out, struct shape k)
{
    int r = 0;
    for (; r + 8 <= n; r += 8) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 8, k);
    }
    if (n - r >= 4) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 4, k);
        r += 4;
    }
    if (n - r >= 2) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 2, k);
        r += 2;
    }
    if (n - r >= 1) {
        tile(g, panel, rows + (size_t)r * g->row_bytes, out + (size_t)r * g->out_stride, 1, k);
    }
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind, struct shape k)
{
    all_panels(a, kind, k);
}

void kern_matmul_avx512(enum panel_kind kind, const struct kern_matmul_args *a) { matmul_kinds[kind](a); }

void kern_matmul_init_avx512(struct kern_table *t)
{
    matmul_vec_init(t);
    kern_matmul_float_init_avx512(t);
}
