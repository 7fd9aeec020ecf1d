/* out = rows * panels^T with AVX-512 VNNI, quantized kinds: lane = output row of the panel.
 *
 * A tile is 8 (4, 2, 1) activation rows times one panel; its sums stay in registers. vpdpbusd multiplies 4 unsigned
 * codes per lane by 4 activation bytes broadcast from memory, so activations need no rearranging. Kinds with a table
 * replace their indexes by codes with one vpshufb per register, before the rows share them. Codes of 3, 5 and 6 bits
 * are assembled in registers, at negligible cost for a tile of 8 rows. Every tile shape runs the same operations in the
 * same order per element, so results do not depend on the shape of a call. Float kinds: matmul_float_avx512.c.
 * Functions with more than five parameters: see matmul_panels_vec.h. */
#include "engine/kernels/isa.h"

#include <string.h>

/* The second-level cache has 1 MiB on Zen 4 and later, and 1 MiB or more on Intel servers with AVX-512. */
enum { ROWS_IN_CACHE_BYTES = 384 * 1024, TILE_ROWS = 8 };
#include "engine/kernels/x86/matmul_panels_vec.h"

#include "engine/kernels/x86/matmul_512_vec.h"

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
                tile_part(g, &from, table, group_rows, b, part, n, k, false, sum);
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

void kern_matmul_init_avx512(struct kern_table *t) { matmul_vec_init(t); }
