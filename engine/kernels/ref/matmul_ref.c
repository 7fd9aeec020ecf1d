/* out = rows * panels^T, scalar: one output element at a time, in the order kern.h prescribes. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <math.h>

enum { WEIGHTS_AT_ONCE = 256 };

/* Sum of (code - zero point) * term over the inputs of one scale, number `at`, exact. */
static int32_t dot(enum panel_kind kind, const unsigned char *panel, size_t k, const struct kern_qblock *row, size_t at,
                   bool is_lo, int lane)
{
    const struct panel_info *info = panel_info(kind);
    int32_t acc = 0;
    for (size_t in = at * info->block; in < (at + 1) * info->block; in++) {
        const struct kern_qblock *q = &row[in / PANEL_BLOCK];
        int x = is_lo ? q->lo[in % PANEL_BLOCK] : q->hi[in % PANEL_BLOCK];
        acc += (panel_code(kind, panel, k, in, lane) - info->zero_point) * x;
    }
    return acc;
}

/* out with the step of one scale, number `at`, for one of the terms. */
static float add_term(enum panel_kind kind, const unsigned char *panel, size_t k, const struct kern_qblock *row,
                      size_t at, bool is_lo, int lane, float out)
{
    const struct panel_info *info = panel_info(kind);
    size_t parts = PANEL_BLOCK / info->block;
    const struct kern_qblock *q = &row[at / parts];
    float scale = panel_scale(kind, panel, k, at, lane) * (is_lo ? 1.0f / 256 : 1.0f);
    float product = scale * (float)dot(kind, panel, k, row, at, is_lo, lane);
    if (info->has_min && parts == 2) {
        float min = panel_min(kind, panel, k, at, lane) * (is_lo ? -1.0f / 2048 : -1.0f / 8);
        product = fmaf(min, (float)(is_lo ? q->half_lo : q->half)[at % 2], product);
    }
    return fmaf(product, q->d, out);
}

static float quant_element(enum panel_kind kind, const unsigned char *panel, size_t k, const struct kern_qblock *row,
                           int lane)
{
    const struct panel_info *info = panel_info(kind);
    size_t parts = PANEL_BLOCK / info->block, n_blocks = k / PANEL_BLOCK;
    float out = 0, rest = 0;
    for (size_t at = 0; at < n_blocks * parts; at++) {
        out = add_term(kind, panel, k, row, at, false, lane, out);
        if (info->has_min && parts == 1) {
            out = fmaf(panel_min(kind, panel, k, at, lane), row[at].s, out);
        }
    }
    for (size_t at = 0; at < n_blocks * parts; at++) {
        rest = row[at / parts].fine != 0 ? add_term(kind, panel, k, row, at, true, lane, rest) : rest;
    }
    return out + rest;
}

static float weight(enum panel_kind kind, const unsigned char *panel, size_t i, int lane)
{
    size_t at = i * PANEL_ROWS + (size_t)lane;
    if (kind == PANEL_F32) {
        return ((const float *)(const void *)panel)[at];
    }
    uint16_t h = ((const uint16_t *)(const void *)panel)[at];
    return kind == PANEL_F16 ? dtype_f16_to_f32(h) : dtype_bf16_to_f32(h);
}

/* One lane of float weights for all rows, out_stride apart. Some inputs at a time, so that weights are converted once.
 */
static void float_lane(enum panel_kind kind, const unsigned char *panel, const struct kern_matmul_args *a, int lane,
                       float *out)
{
    float w[WEIGHTS_AT_ONCE];
    for (int r = 0; r < a->n_rows; r++) {
        out[(size_t)r * a->out_stride] = 0;
    }
    for (size_t from = 0, n; from < a->k; from += n) {
        n = MIN_OF(a->k - from, (size_t)WEIGHTS_AT_ONCE);
        for (size_t i = 0; i < n; i++) {
            w[i] = weight(kind, panel, from + i, lane);
        }
        for (int r = 0; r < a->n_rows; r++) {
            const float *x = (const float *)(const void *)((const char *)a->rows + (size_t)r * a->row_bytes) + from;
            float sum = out[(size_t)r * a->out_stride];
            for (size_t i = 0; i < n; i++) {
                sum = fmaf(w[i], x[i], sum);
            }
            out[(size_t)r * a->out_stride] = sum;
        }
    }
}

static void quant_lane(enum panel_kind kind, const unsigned char *panel, const struct kern_matmul_args *a, int lane,
                       float *out)
{
    for (int r = 0; r < a->n_rows; r++) {
        const void *row = (const char *)a->rows + (size_t)r * a->row_bytes;
        out[(size_t)r * a->out_stride] = quant_element(kind, panel, a->k, row, lane);
    }
}

static void matmul(enum panel_kind kind, const struct kern_matmul_args *a)
{
    for (int p = 0; p < a->n_panels; p++) {
        const unsigned char *panel = (const unsigned char *)a->panels + (size_t)p * panel_bytes(kind, a->k);
        for (int lane = 0; lane < PANEL_ROWS; lane++) {
            float *out = a->out + (size_t)p * PANEL_ROWS + lane;
            (panel_info(kind)->is_float ? float_lane : quant_lane)(kind, panel, a, lane, out);
        }
    }
}

static void matmul_f32(const struct kern_matmul_args *a) { matmul(PANEL_F32, a); }
static void matmul_f16(const struct kern_matmul_args *a) { matmul(PANEL_F16, a); }
static void matmul_bf16(const struct kern_matmul_args *a) { matmul(PANEL_BF16, a); }
#define DEFINE(kind, name, ...)                                                                                        \
    static void matmul_##name(const struct kern_matmul_args *a) { matmul(PANEL_##kind, a); }
PANEL_QUANT_KINDS(DEFINE)
#undef DEFINE

void kern_matmul_init_ref(struct kern_table *t)
{
    t->matmul[PANEL_F32] = matmul_f32;
    t->matmul[PANEL_F16] = matmul_f16;
    t->matmul[PANEL_BF16] = matmul_bf16;
#define SET(kind, name, ...) t->matmul[PANEL_##kind] = matmul_##name;
    PANEL_QUANT_KINDS(SET)
#undef SET
}
