/* out = rows * panels^T with Advanced SIMD, float kinds: one FMA per input, inputs in ascending order. An element's sum
 * is one chain of FMAs, so speed comes from many elements at a time: 4 rows x 1 panel, or 4 panels if there is one row.
 * Inputs are processed in fours where possible, because FMA can take a factor from any lane. Functions with more than
 * five parameters: tile shapes and counts are compile-time constants, folded into each copy of the inlined function,
 * and separate from run-time values. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <arm_neon.h>

enum { TILE_ROWS = 4, TILE_PANELS = 1, ROW_PANELS = 4, QUADS = PANEL_ROWS / 4, ROWS_IN_CACHE_BYTES = 192 * 1024 };

/* Returns the weights of input i for lanes 4*v .. 4*v+3, widened. */
static ALWAYS_INLINE float32x4_t weights(enum panel_kind kind, const unsigned char *panel, size_t i, int v)
{
    if (kind == PANEL_F32) {
        return vld1q_f32((const float *)(const void *)(panel + 64 * i + 16 * (size_t)v));
    }
    uint16x4_t narrow = vld1_u16((const uint16_t *)(const void *)(panel + 32 * i + 8 * (size_t)v));
    if (kind == PANEL_F16) {
        return vcvt_f32_f16(vreinterpret_f16_u16(narrow));
    }
    return vreinterpretq_f32_u32(vshll_n_u16(narrow, 16));
}

/* Adds the weights of inputs i .. i+3 of one panel times those inputs of n rows to sum[r]. */
static ALWAYS_INLINE void add_four(enum panel_kind kind, const unsigned char *panel, size_t i, const float32x4_t *x,
                                   int n, float32x4_t (*sum)[QUADS])
{
    UNROLL_FULLY
    for (int v = 0; v < QUADS; v++) {
        float32x4_t w0 = weights(kind, panel, i, v), w1 = weights(kind, panel, i + 1, v);
        float32x4_t w2 = weights(kind, panel, i + 2, v), w3 = weights(kind, panel, i + 3, v);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            sum[r][v] = vfmaq_laneq_f32(sum[r][v], w0, x[r], 0);
            sum[r][v] = vfmaq_laneq_f32(sum[r][v], w1, x[r], 1);
            sum[r][v] = vfmaq_laneq_f32(sum[r][v], w2, x[r], 2);
            sum[r][v] = vfmaq_laneq_f32(sum[r][v], w3, x[r], 3);
        }
    }
}

/* Like add_four() for one input. */
static ALWAYS_INLINE void add_one(enum panel_kind kind, const unsigned char *panel, size_t i, const float *const *rows,
                                  int n, float32x4_t (*sum)[QUADS])
{
    UNROLL_FULLY
    for (int v = 0; v < QUADS; v++) {
        float32x4_t w = weights(kind, panel, i, v);
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            sum[r][v] = vfmaq_n_f32(sum[r][v], w, rows[r][i]);
        }
    }
}

/* Computes n rows x m panels; n or m is 1. sum[e] is the sum of row or panel e. */
static ALWAYS_INLINE void tile(const struct kern_matmul_args *a, enum panel_kind kind, size_t bytes, int r0, int p0,
                               int n, int m)
{
    const unsigned char *panels = (const unsigned char *)a->panels + (size_t)p0 * bytes;
    const float *rows[TILE_ROWS];
    float32x4_t sum[TILE_ROWS][QUADS];
    UNROLL_FULLY
    for (int r = 0; r < n; r++) {
        rows[r] = (const void *)((const unsigned char *)a->rows + (size_t)(r0 + r) * a->row_bytes);
    }
    UNROLL_FULLY
    for (int e = 0; e < n * m; e++) {
        UNROLL_FULLY
        for (int v = 0; v < QUADS; v++) {
            sum[e][v] = vdupq_n_f32(0);
        }
    }
    size_t i = 0;
    for (; i + 4 <= a->k; i += 4) {
        float32x4_t x[TILE_ROWS];
        UNROLL_FULLY
        for (int r = 0; r < n; r++) {
            x[r] = vld1q_f32(rows[r] + i);
        }
        UNROLL_FULLY
        for (int p = 0; p < m; p++) {
            add_four(kind, panels + (size_t)p * bytes, i, x, n, sum + p);
        }
    }
    for (; i < a->k; i++) {
        UNROLL_FULLY
        for (int p = 0; p < m; p++) {
            add_one(kind, panels + (size_t)p * bytes, i, rows, n, sum + p);
        }
    }
    float *out = a->out + (size_t)r0 * a->out_stride + (size_t)p0 * PANEL_ROWS;
    UNROLL_FULLY
    for (int e = 0; e < n * m; e++) {
        float *at = out + (size_t)(e / m) * a->out_stride + (size_t)(e % m) * PANEL_ROWS;
        UNROLL_FULLY
        for (int v = 0; v < QUADS; v++) {
            vst1q_f32(at + 4 * v, sum[e][v]);
        }
    }
}

#include "engine/kernels/vec/matmul_float_vec.h"

void kern_matmul_float_init_neon(struct kern_table *t) { matmul_float_vec_init(t); }
