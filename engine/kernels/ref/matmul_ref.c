/* out = rows * panels^T, scalar: one output element at a time, in the order of kern.h. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <math.h>

enum { WEIGHTS_AT_ONCE = 256, ROWS_AT_ONCE = 64 };

/* The codes of one scale minus their zero point, the scale, and the minimum (0 if none). */
struct codes {
    int32_t code[PANEL_BLOCK]; /* [n] */
    size_t n;
    float scale, min;
};

static void read_codes(enum panel_kind kind, const unsigned char *panel, size_t k, size_t at, int lane,
                       struct codes *out)
{
    const struct panel_info *info = panel_info(kind);
    out->n = (size_t)info->block;
    for (size_t i = 0; i < out->n; i++) {
        out->code[i] = panel_code(kind, panel, k, at * out->n + i, lane) - info->zero_point;
    }
    out->scale = panel_scale(kind, panel, k, at, lane);
    out->min = info->has_min ? panel_min(kind, panel, k, at, lane) : 0;
}

/* Returns out after the step of scale `at` for one of the terms; the integer sum of products is exact. */
static float add_term(const struct codes *c, const struct kern_qblock *q, size_t at, bool has_min, bool is_lo,
                      float out)
{
    const int8_t *x = (is_lo ? q->lo : q->hi) + at * c->n % PANEL_BLOCK;
    int32_t sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        sum += c->code[i] * x[i];
    }
    float product = c->scale * (is_lo ? 1.0f / 256 : 1.0f) * (float)sum;
    if (has_min && c->n < PANEL_BLOCK) {
        float min = c->min * (is_lo ? -1.0f / 2048 : -1.0f / 8);
        product = fmaf(min, (float)(is_lo ? q->half_lo : q->half)[at % 2], product);
    }
    return fmaf(product, q->d, out);
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

/* Computes one lane of float weights for all rows, out_stride apart. It takes a few inputs at a time, so that weights
 * are converted once. */
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

/* Computes one lane of codes for some rows; the codes of a scale are read once. The second terms have a separate
 * sum. */
static void quant_rows(enum panel_kind kind, const unsigned char *panel, const struct kern_matmul_args *a, int lane,
                       int first, int n, float *out)
{
    bool has_min = panel_info(kind)->has_min;
    size_t parts = (size_t)(PANEL_BLOCK / panel_info(kind)->block);
    float sums[ROWS_AT_ONCE] = {0}, rests[ROWS_AT_ONCE] = {0};
    struct codes c;
    for (size_t at = 0; at < a->k / PANEL_BLOCK * parts; at++) {
        read_codes(kind, panel, a->k, at, lane, &c);
        for (int r = 0; r < n; r++) {
            const struct kern_qblock *q =
                (const struct kern_qblock *)(const void *)((const char *)a->rows + (size_t)(first + r) * a->row_bytes) +
                at / parts;
            sums[r] = add_term(&c, q, at, has_min, false, sums[r]);
            if (has_min && parts == 1) {
                sums[r] = fmaf(c.min, q->s, sums[r]);
            }
            rests[r] = q->fine != 0 ? add_term(&c, q, at, has_min, true, rests[r]) : rests[r];
        }
    }
    for (int r = 0; r < n; r++) {
        out[(size_t)(first + r) * a->out_stride] = sums[r] + rests[r];
    }
}

static void quant_lane(enum panel_kind kind, const unsigned char *panel, const struct kern_matmul_args *a, int lane,
                       float *out)
{
    for (int first = 0; first < a->n_rows; first += ROWS_AT_ONCE) {
        quant_rows(kind, panel, a, lane, first, MIN_OF(a->n_rows - first, ROWS_AT_ONCE), out);
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
    t->tile_rows = 1;
    t->matmul[PANEL_F32] = matmul_f32;
    t->matmul[PANEL_F16] = matmul_f16;
    t->matmul[PANEL_BF16] = matmul_bf16;
#define SET(kind, name, ...) t->matmul[PANEL_##kind] = matmul_##name;
    PANEL_QUANT_KINDS(SET)
#undef SET
}
