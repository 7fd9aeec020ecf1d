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
enum { ROWS_IN_CACHE_BYTES = 384 * 1024, TILE_ROWS = 8, SPLIT_ROWS = 4 };
#include "engine/kernels/x86/matmul_panels_vec.h"

#include "engine/kernels/x86/matmul_512_vec.h"

/* acc[r] += (codes - zero point) . hi over block b or one part of it. */
static ALWAYS_INLINE void dot(const struct job *g, const unsigned char *codes, __m512i table, const unsigned char *rows,
                              size_t b, int part, int n, struct shape k, __m512i *acc)
{
    const int8_t *q[TILE_ROWS];
    /* Few rows would wait for the latency of their sums: every other word goes to a second one. */
    const bool is_split = n <= SPLIT_ROWS && k.parts == 1;
    __m512i odd[SPLIT_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        const struct kern_qblock *block = block_of(g, rows, r, b);
        if (is_split) {
            odd[r] = _mm512_setzero_si512();
        }
        q[r] = block->hi;
        if (k.zero_point != 0) {
            acc[r] = _mm512_add_epi32(acc[r], zero_times(k.parts == 2 ? block->half[part] : block->zero, k));
        }
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

/* product[r] += min times the sum of the inputs over half a block, in units of d. */
static ALWAYS_INLINE void add_half_min(const struct job *g, const unsigned char *rows, size_t b, int part, int n,
                                       __m512 min, __m512 *product)
{
    min = _mm512_mul_ps(min, _mm512_set1_ps(-1.0f / 8));
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        __m512i half = _mm512_set1_epi32(block_of(g, rows, r, b)->half[part]);
        product[r] = _mm512_fmadd_ps(min, _mm512_cvtepi32_ps(half), product[r]);
    }
}

/* One block's part of a tile: integer dot, then the float steps kern.h prescribes. rows: from the group's inputs on. */
static ALWAYS_INLINE void tile_part(const struct job *g, const struct group *from, __m512i table,
                                    const unsigned char *rows, size_t b, int part, int n, struct shape k, __m512 *sum)
{
    size_t at = b * (size_t)k.parts + (size_t)part;
    const unsigned char *codes = from->codes + b * (size_t)(k.bits * LINE_BYTES);
    __m512 scale = scale_row(from->scales, from->unit, at, k);
    __m512i acc[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        acc[r] = _mm512_setzero_si512();
    }
    dot(g, codes, table, rows, b, part, n, k, acc);
    __m512 product[TILE_ROWS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        product[r] = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(acc[r]));
    }
    if (k.has_min && k.parts == 2) {
        add_half_min(g, rows, b, part, n, scale_row(from->mins, from->min_unit, at, k), product);
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

static ALWAYS_INLINE void tile(const struct job *g, const unsigned char *panel, const unsigned char *rows, float *out,
                               int n, struct shape k)
{
    __m512 sum[TILE_ROWS], rest[TILE_ROWS];
    __m512i table = load_table(g, panel, k);
    struct fine_list list;
    list.n = 0;
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        sum[r] = rest[r] = _mm512_setzero_ps();
    }
    const unsigned char *group_rows = rows, *group = panel;
    for (size_t at = 0; at < g->n_blocks; at += PANEL_GROUP) {
        struct group from = group_at(group, g->n_blocks - at, k);
        for (size_t b = 0; b < from.n_blocks; b++) {
            prefetch(&from, b, k);
            note_fine(&list, g, group_rows, b, at + b, n);
            UNROLL_FULLY
            for (int part = 0; part < k.parts; part++) {
                tile_part(g, &from, table, group_rows, b, part, n, k, sum);
            }
        }
        if (list.n > FINE_FULL) {
            add_rests(g, panel, table, rows, n, k, &list, rest);
            list.n = 0;
        }
        group += g->group_bytes;
        group_rows += PANEL_GROUP * sizeof(struct kern_qblock);
    }
    add_rests(g, panel, table, rows, n, k, &list, rest);
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        _mm512_storeu_ps(out + (size_t)r * g->out_stride, _mm512_add_ps(sum[r], rest[r]));
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
