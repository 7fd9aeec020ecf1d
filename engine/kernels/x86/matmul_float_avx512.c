/* out = rows * panels^T with AVX-512, float kinds: one FMA per input, inputs in ascending order. Since an element's sum
 * is one chain of FMAs, speed comes from many elements at a time: 8 rows x 2 panels, or 8 panels when there is one row.
 * Functions with more than five parameters: tile shapes and counts are compile-time constants, folded into each copy of
 * the inlined function, and are kept apart from what is only known at run time. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <string.h>

enum { TILE_ROWS = 8, TILE_PANELS = 2, ROW_PANELS = 8, ROWS_IN_CACHE_BYTES = 384 * 1024 };

/* 16 weights of input i, widened. */
static ALWAYS_INLINE __m512 weights(enum panel_kind kind, const unsigned char *panel, size_t i)
{
    if (kind == PANEL_F32) {
        return _mm512_load_ps(panel + 64 * i);
    }
    __m256i narrow = _mm256_load_si256((const __m256i *)(const void *)(panel + 32 * i));
    if (kind == PANEL_F16) {
        return _mm512_cvtph_ps(narrow);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

static ALWAYS_INLINE __m512 input(const unsigned char *row, size_t i)
{
    float v;
    memcpy(&v, row + 4 * i, sizeof v);
    return _mm512_set1_ps(v);
}

/* n rows x m panels. */
static ALWAYS_INLINE void tile(const struct kern_matmul_args *a, enum panel_kind kind, size_t bytes, int r0, int p0,
                               int n, int m)
{
    const unsigned char *rows = (const unsigned char *)a->rows + (size_t)r0 * a->row_bytes;
    const unsigned char *panels = (const unsigned char *)a->panels + (size_t)p0 * bytes;
    size_t row_bytes = a->row_bytes;
    __m512 sum[TILE_ROWS * TILE_PANELS];
    UNROLL_FULLY
    for (int e = 0; e < n * m; e++) {
        sum[e] = _mm512_setzero_ps();
    }
    for (size_t i = 0; i < a->k; i++) {
        __m512 w[ROW_PANELS];
        UNROLL_FULLY
        for (int p = 0; p < m; p++) {
            w[p] = weights(kind, panels + (size_t)p * bytes, i);
        }
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            __m512 x = input(rows + (size_t)r * row_bytes, i);
            UNROLL_FULLY
            for (int p = 0; p < m; p++) {
                sum[r * m + p] = _mm512_fmadd_ps(w[p], x, sum[r * m + p]);
            }
        }
    }
    float *out = a->out + (size_t)r0 * a->out_stride + (size_t)p0 * PANEL_ROWS;
    UNROLL_FULLY
    for (int e = 0; e < n * m; e++) {
        _mm512_storeu_ps(out + (size_t)(e / m) * a->out_stride + (size_t)(e % m) * PANEL_ROWS, sum[e]);
    }
}

/* Rows r .. end-1 against m panels from p on. */
static ALWAYS_INLINE void panel_rows(const struct kern_matmul_args *a, enum panel_kind kind, size_t bytes, int r,
                                     int end, int p, int m)
{
    for (; r + 8 <= end; r += 8) {
        tile(a, kind, bytes, r, p, 8, m);
    }
    if (end - r >= 4) {
        tile(a, kind, bytes, r, p, 4, m);
        r += 4;
    }
    if (end - r >= 2) {
        tile(a, kind, bytes, r, p, 2, m);
        r += 2;
    }
    if (end - r >= 1) {
        tile(a, kind, bytes, r, p, 1, m);
    }
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind)
{
    size_t bytes = panel_bytes(kind, a->k);
    if (a->n_rows == 1) {
        int p = 0;
        for (; p + ROW_PANELS <= a->n_panels; p += ROW_PANELS) {
            tile(a, kind, bytes, 0, p, 1, ROW_PANELS);
        }
        for (; p < a->n_panels; p++) {
            tile(a, kind, bytes, 0, p, 1, 1);
        }
        return;
    }
    int step = MAX_OF((int)(ROWS_IN_CACHE_BYTES / (a->row_bytes + 1) / TILE_ROWS * TILE_ROWS), (int)TILE_ROWS);
    for (int r = 0; r < a->n_rows; r += step) {
        int end = MIN_OF(r + step, a->n_rows), p = 0;
        for (; p + TILE_PANELS <= a->n_panels; p += TILE_PANELS) {
            panel_rows(a, kind, bytes, r, end, p, TILE_PANELS);
        }
        for (; p < a->n_panels; p++) {
            panel_rows(a, kind, bytes, r, end, p, 1);
        }
    }
}

static void matmul_f32(const struct kern_matmul_args *a) { matmul(a, PANEL_F32); }
static void matmul_f16(const struct kern_matmul_args *a) { matmul(a, PANEL_F16); }
static void matmul_bf16(const struct kern_matmul_args *a) { matmul(a, PANEL_BF16); }

void kern_matmul_float_init_avx512(struct kern_table *t)
{
    t->matmul[PANEL_F32] = matmul_f32;
    t->matmul[PANEL_F16] = matmul_f16;
    t->matmul[PANEL_BF16] = matmul_bf16;
}
