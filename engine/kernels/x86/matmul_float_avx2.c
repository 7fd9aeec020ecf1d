/* out = rows * panels^T with AVX2, float kinds: one FMA per input, inputs in ascending order. An element's sum is one
 * chain of FMAs, so speed comes from many elements at a time: 4 rows x 1 panel, or 4 panels if there is one row.
 * Functions with more than five parameters: tile shapes and counts are compile-time constants, folded into each copy of
 * the inlined function, and separate from run-time values. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <immintrin.h>

enum { TILE_ROWS = 4, TILE_PANELS = 1, ROW_PANELS = 4, HALVES = 2, ROWS_IN_CACHE_BYTES = 192 * 1024 };

/* Returns the weights of input i for lanes 8*half .. 8*half+7, widened. */
static ALWAYS_INLINE __m256 weights(enum panel_kind kind, const unsigned char *panel, size_t i, int half)
{
    if (kind == PANEL_F32) {
        return _mm256_load_ps((const float *)(const void *)(panel + 64 * i + 32 * (size_t)half));
    }
    __m128i narrow = _mm_load_si128((const __m128i *)(const void *)(panel + 32 * i + 16 * (size_t)half));
    if (kind == PANEL_F16) {
        return _mm256_cvtph_ps(narrow);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

/* Computes n rows x m panels; n or m is 1. sum[2e] and sum[2e+1] are the halves of row or panel e. */
static ALWAYS_INLINE void tile(const struct kern_matmul_args *a, enum panel_kind kind, size_t bytes, int r0, int p0,
                               int n, int m)
{
    const unsigned char *rows = (const unsigned char *)a->rows + (size_t)r0 * a->row_bytes;
    const unsigned char *panels = (const unsigned char *)a->panels + (size_t)p0 * bytes;
    size_t row_bytes = a->row_bytes;
    __m256 sum[TILE_ROWS * HALVES];
    UNROLL_FULLY
    for (int e = 0; e < n * m * HALVES; e++) {
        sum[e] = _mm256_setzero_ps();
    }
    for (size_t i = 0; i < a->k; i++) {
        UNROLL_FULLY
        for (int p = 0; p < m; p++) {
            __m256 low = weights(kind, panels + (size_t)p * bytes, i, 0);
            __m256 high = weights(kind, panels + (size_t)p * bytes, i, 1);
            UNROLL_FULLY
            for (int r = 0; r < n; r++) {
                __m256 x = _mm256_set1_ps(((const float *)(const void *)(rows + (size_t)r * row_bytes))[i]);
                int e = r * m + p;
                sum[2 * e] = _mm256_fmadd_ps(low, x, sum[2 * e]);
                sum[2 * e + 1] = _mm256_fmadd_ps(high, x, sum[2 * e + 1]);
            }
        }
    }
    float *out = a->out + (size_t)r0 * a->out_stride + (size_t)p0 * PANEL_ROWS;
    UNROLL_FULLY
    for (int e = 0; e < n * m; e++) {
        float *at = out + (size_t)(e / m) * a->out_stride + (size_t)(e % m) * PANEL_ROWS;
        _mm256_storeu_ps(at, sum[2 * e]);
        _mm256_storeu_ps(at + 8, sum[2 * e + 1]);
    }
}

#include "engine/kernels/vec/matmul_float_vec.h"

void kern_matmul_float_init_avx2(struct kern_table *t) { matmul_float_vec_init(t); }
