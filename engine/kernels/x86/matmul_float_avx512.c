/* out = rows * panels^T with AVX-512, float kinds: one FMA per input, inputs in ascending order. An element's sum is
 * one chain of FMAs, so speed comes from many elements at a time: 8 rows x 2 panels, or 8 panels if there is one row.
 * Functions with more than five parameters: tile shapes and counts are compile-time constants, folded into each copy of
 * the inlined function, and separate from run-time values. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>
#include <string.h>

enum { TILE_ROWS = 8, TILE_PANELS = 2, ROW_PANELS = 8, ROWS_IN_CACHE_BYTES = 384 * 1024 };

/* Returns the 16 weights of input i, widened. */
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

/* Computes n rows x m panels. */
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

#include "engine/kernels/vec/matmul_float_vec.h"

void kern_matmul_float_init_avx512(struct kern_table *t) { matmul_float_vec_init(t); }
