/* out = rows * panels^T, scalar: one output element at a time, in the order kern.h prescribes. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <math.h>

static int code_at(const unsigned char *codes, int bits, int in, int lane)
{
    if (bits == 8) {
        return codes[in / 4 * 64 + 4 * lane + in % 4];
    }
    int byte = codes[in / 8 * 64 + 4 * lane + in % 4];
    return in % 8 < 4 ? byte & 15 : byte >> 4;
}

/* Sum of (code - zero point) * (256 * hi + lo) over part `part` of a block, exact. table: of table kinds. */
static int32_t dot(const struct panel_info *info, const unsigned char *codes, const unsigned char *table,
                   const struct kern_qblock *q, int part, int lane)
{
    int32_t acc = 0;
    for (int in = part * info->block; in < (part + 1) * info->block; in++) {
        int code = code_at(codes, info->bits, in, lane);
        code = info->has_table ? table[code] : code;
        acc += (code - info->zero_point) * (256 * q->hi[in] + q->lo[in]);
    }
    return acc;
}

static float quant_element(enum panel_kind kind, const unsigned char *panel, size_t k, const struct kern_qblock *row,
                           int lane)
{
    const struct panel_info *info = panel_info(kind);
    const uint16_t *scales = (const uint16_t *)(const void *)(panel + panel_scale_offset(kind, k)) + lane;
    const uint16_t *mins = (const uint16_t *)(const void *)(panel + panel_min_offset(kind, k)) + lane;
    const unsigned char *table = panel + panel_table_offset(kind, k);
    int parts = PANEL_BLOCK / info->block;
    float out = 0;
    for (size_t b = 0; b < k / PANEL_BLOCK; b++) {
        const unsigned char *codes = panel + b * (size_t)(info->bits * PANEL_BLOCK * PANEL_ROWS / 8);
        for (int part = 0; part < parts; part++) {
            size_t at = (b * (size_t)parts + (size_t)part) * PANEL_ROWS;
            float scale = info->has_bf16_scale ? dtype_bf16_to_f32(scales[at]) : dtype_f16_to_f32(scales[at]);
            float product = scale * (1.0f / 256) * (float)dot(info, codes, table, &row[b], part, lane);
            if (info->has_min && parts == 2) {
                int32_t sum = 256 * row[b].half[part] + row[b].half_lo[part];
                product = fmaf(dtype_f16_to_f32(mins[at]) * (-1.0f / 2048), (float)sum, product);
            }
            out = fmaf(product, row[b].d, out);
            if (info->has_min && parts == 1) {
                out = fmaf(dtype_f16_to_f32(mins[at]), row[b].s, out);
            }
        }
    }
    return out;
}

static float float_element(enum panel_kind kind, const unsigned char *panel, size_t k, const float *x, int lane)
{
    float out = 0;
    for (size_t i = 0; i < k; i++) {
        size_t at = i * PANEL_ROWS + (size_t)lane;
        float w;
        if (kind == PANEL_F32) {
            w = ((const float *)(const void *)panel)[at];
        } else {
            uint16_t h = ((const uint16_t *)(const void *)panel)[at];
            w = kind == PANEL_F16 ? dtype_f16_to_f32(h) : dtype_bf16_to_f32(h);
        }
        out = fmaf(w, x[i], out);
    }
    return out;
}

static void matmul(enum panel_kind kind, const struct kern_matmul_args *a)
{
    for (int p = 0; p < a->n_panels; p++) {
        const unsigned char *panel = (const unsigned char *)a->panels + (size_t)p * panel_bytes(kind, a->k);
        for (int r = 0; r < a->n_rows; r++) {
            const unsigned char *row = (const unsigned char *)a->rows + (size_t)r * a->row_bytes;
            float *out = a->out + (size_t)r * a->out_stride + (size_t)p * PANEL_ROWS;
            for (int lane = 0; lane < PANEL_ROWS; lane++) {
                out[lane] = panel_info(kind)->is_float
                                ? float_element(kind, panel, a->k, (const float *)(const void *)row, lane)
                                : quant_element(kind, panel, a->k, (const struct kern_qblock *)(const void *)row, lane);
            }
        }
    }
}

static void matmul_f32(const struct kern_matmul_args *a) { matmul(PANEL_F32, a); }
static void matmul_f16(const struct kern_matmul_args *a) { matmul(PANEL_F16, a); }
static void matmul_bf16(const struct kern_matmul_args *a) { matmul(PANEL_BF16, a); }
static void matmul_u4(const struct kern_matmul_args *a) { matmul(PANEL_U4, a); }
static void matmul_u4_min(const struct kern_matmul_args *a) { matmul(PANEL_U4_MIN, a); }
static void matmul_u8(const struct kern_matmul_args *a) { matmul(PANEL_U8, a); }
static void matmul_u8_min(const struct kern_matmul_args *a) { matmul(PANEL_U8_MIN, a); }
static void matmul_u8_b16(const struct kern_matmul_args *a) { matmul(PANEL_U8_B16, a); }
static void matmul_u4_b16(const struct kern_matmul_args *a) { matmul(PANEL_U4_B16, a); }
static void matmul_u4_min_b16(const struct kern_matmul_args *a) { matmul(PANEL_U4_MIN_B16, a); }
static void matmul_t4(const struct kern_matmul_args *a) { matmul(PANEL_T4, a); }
static void matmul_t4_b16(const struct kern_matmul_args *a) { matmul(PANEL_T4_B16, a); }
static void matmul_t4_bf16(const struct kern_matmul_args *a) { matmul(PANEL_T4_BF16, a); }

void kern_matmul_init_ref(struct kern_table *t)
{
    t->matmul[PANEL_F32] = matmul_f32;
    t->matmul[PANEL_F16] = matmul_f16;
    t->matmul[PANEL_BF16] = matmul_bf16;
    t->matmul[PANEL_U4] = matmul_u4;
    t->matmul[PANEL_U4_MIN] = matmul_u4_min;
    t->matmul[PANEL_U8] = matmul_u8;
    t->matmul[PANEL_U8_MIN] = matmul_u8_min;
    t->matmul[PANEL_U8_B16] = matmul_u8_b16;
    t->matmul[PANEL_U4_B16] = matmul_u4_b16;
    t->matmul[PANEL_U4_MIN_B16] = matmul_u4_min_b16;
    t->matmul[PANEL_T4] = matmul_t4;
    t->matmul[PANEL_T4_B16] = matmul_t4_b16;
    t->matmul[PANEL_T4_BF16] = matmul_t4_bf16;
}
