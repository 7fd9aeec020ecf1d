/* Packing and unpacking of weight panels. */
#include "engine/kernels/panel.h"

#include "engine/kernels/ref/quant_types.h"

#include <string.h>

static const struct panel_info panel_rows[PANEL_KIND_COUNT] = {
    [PANEL_F32] = {.name = "f32", .bits = 32, .is_float = true},
    [PANEL_F16] = {.name = "f16", .bits = 16, .is_float = true},
    [PANEL_BF16] = {.name = "bf16", .bits = 16, .is_float = true},
    [PANEL_U4] = {.name = "u4", .bits = 4, .block = 32, .zero_point = 8},
    [PANEL_U4_MIN] = {.name = "u4_min", .bits = 4, .block = 32, .has_min = true},
    [PANEL_U8] = {.name = "u8", .bits = 8, .block = 32, .zero_point = 128},
    [PANEL_U8_MIN] = {.name = "u8_min", .bits = 8, .block = 32, .has_min = true},
    [PANEL_U8_B16] = {.name = "u8_b16", .bits = 8, .block = 16, .zero_point = 128},
    [PANEL_U4_B16] = {.name = "u4_b16", .bits = 4, .block = 16, .zero_point = 8},
    [PANEL_U4_MIN_B16] = {.name = "u4_min_b16", .bits = 4, .block = 16, .has_min = true},
    [PANEL_T4] = {.name = "t4", .bits = 4, .block = 32, .zero_point = 128, .has_table = true},
    [PANEL_T4_B16] = {.name = "t4_b16", .bits = 4, .block = 16, .zero_point = 128, .has_table = true},
    [PANEL_T4_BF16] =
        {.name = "t4_bf16", .bits = 4, .block = 32, .zero_point = 128, .has_table = true, .has_bf16_scale = true},
};

const struct panel_info *panel_info(enum panel_kind kind) { return &panel_rows[kind]; }

enum {
    TABLE_ENTRIES = 16,
    TABLE_BYTES = 64
}; /* a table fills a 512-bit register, so one load gives every ISA its own */

static size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

/* Bytes of one code block and of one block's scales, over the 16 lanes. */
static size_t code_bytes(const struct panel_info *info) { return (size_t)info->bits * PANEL_BLOCK * PANEL_ROWS / 8; }

static size_t scale_bytes(const struct panel_info *info)
{
    return PANEL_BLOCK / info->block * PANEL_ROWS * sizeof(uint16_t);
}

size_t panel_scale_offset(enum panel_kind kind, size_t k) { return k / PANEL_BLOCK * code_bytes(&panel_rows[kind]); }

size_t panel_min_offset(enum panel_kind kind, size_t k)
{
    return panel_scale_offset(kind, k) + k / PANEL_BLOCK * scale_bytes(&panel_rows[kind]);
}

size_t panel_table_offset(enum panel_kind kind, size_t k)
{
    const struct panel_info *info = &panel_rows[kind];
    size_t mins = info->has_min ? k / PANEL_BLOCK * scale_bytes(info) : 0;
    return round_up_64(panel_min_offset(kind, k) + mins);
}

size_t panel_bytes(enum panel_kind kind, size_t k)
{
    const struct panel_info *info = &panel_rows[kind];
    if (info->is_float) {
        return round_up_64(k * PANEL_ROWS * info->bits / 8);
    }
    return panel_table_offset(kind, k) + (info->has_table ? TABLE_BYTES : 0);
}

/* [n_rows][k] -> [k][16]; missing lanes are zero. */
static void pack_f32(const unsigned char *src, size_t row_bytes, int n_rows, size_t k, uint32_t *dst)
{
    for (size_t i = 0; i < k; i++) {
        for (int lane = 0; lane < n_rows; lane++) {
            memcpy(&dst[i * PANEL_ROWS + (size_t)lane], src + (size_t)lane * row_bytes + i * 4, 4);
        }
    }
}

static void pack_16_bit(const unsigned char *src, size_t row_bytes, int n_rows, size_t k, uint16_t *dst)
{
    for (size_t i = 0; i < k; i++) {
        for (int lane = 0; lane < n_rows; lane++) {
            memcpy(&dst[i * PANEL_ROWS + (size_t)lane], src + (size_t)lane * row_bytes + i * 2, 2);
        }
    }
}

/* One block of every lane: codes to `codes`, scales and minimums (parts per block) to `scales` and `mins`. The many
 * parameters are the two sides of a copy; the loop over blocks is the only caller. */
static void pack_block(const struct quant_ops *ops, const struct panel_info *info, const unsigned char *src,
                       size_t row_bytes, int n_rows, size_t i_block, unsigned char *codes, uint16_t *scales,
                       uint16_t *mins)
{
    int parts = PANEL_BLOCK / info->block;
    for (int lane = 0; lane < n_rows; lane++) {
        struct quant_block b;
        ops->unpack(src + (size_t)lane * row_bytes, i_block, &b);
        quant_store_codes(b.codes, info->bits, codes, lane);
        for (int part = 0; part < parts; part++) {
            scales[part * PANEL_ROWS + lane] =
                info->has_bf16_scale ? dtype_f32_to_bf16(b.scale[part]) : dtype_f32_to_f16(b.scale[part]);
            if (info->has_min) {
                mins[part * PANEL_ROWS + lane] = dtype_f32_to_f16(b.min[part]);
            }
        }
    }
}

void panel_pack(enum dtype type, const void *src, size_t row_bytes, int n_rows, size_t k, void *dst)
{
    const struct quant_ops *ops = quant_ops(type);
    enum panel_kind kind = ops->panel;
    const struct panel_info *info = &panel_rows[kind];
    unsigned char *out = dst;
    size_t bytes = panel_bytes(kind, k);
    if (n_rows < PANEL_ROWS) {
        memset(out, 0, bytes); /* missing lanes: zero weights or zero scales */
    } else {
        memset(out + (info->has_table ? panel_table_offset(kind, k) : bytes) - 64, 0, 64); /* padding at the end */
    }
    if (info->bits == 32) {
        pack_f32(src, row_bytes, n_rows, k, dst);
        return;
    }
    if (info->bits == 16) {
        pack_16_bit(src, row_bytes, n_rows, k, dst);
        return;
    }
    size_t n_scales = scale_bytes(info) / sizeof(uint16_t);
    uint16_t *scales = (uint16_t *)(void *)(out + panel_scale_offset(kind, k));
    uint16_t *mins = (uint16_t *)(void *)(out + panel_min_offset(kind, k));
    if (ops->pack != NULL) {
        const struct quant_panel panel = {out, scales, mins};
        ops->pack(src, row_bytes, n_rows, k / PANEL_BLOCK, &panel);
        return;
    }
    for (size_t b = 0; b < k / PANEL_BLOCK; b++) {
        pack_block(ops, info, src, row_bytes, n_rows, b, out + b * code_bytes(info), scales + b * n_scales,
                   mins + b * n_scales);
    }
    for (size_t at = panel_table_offset(kind, k); at < bytes; at += TABLE_ENTRIES) {
        memcpy(out + at, ops->table, TABLE_ENTRIES);
    }
}

/* Code of input `in` (0..31) of a block for one lane. */
static unsigned code_at(const unsigned char *codes, int bits, size_t in, int lane)
{
    if (bits == 8) {
        return codes[in / 4 * 64 + 4 * (size_t)lane + in % 4];
    }
    unsigned byte = codes[in / 8 * 64 + 4 * (size_t)lane + in % 4];
    return in % 8 < 4 ? byte & 15 : byte >> 4;
}

static void unpack_float_row(enum panel_kind kind, const unsigned char *p, size_t k, int lane, float *out)
{
    for (size_t i = 0; i < k; i++) {
        size_t at = i * PANEL_ROWS + (size_t)lane;
        if (kind == PANEL_F32) {
            memcpy(&out[i], p + at * 4, 4);
        } else {
            uint16_t h;
            memcpy(&h, p + at * 2, 2);
            out[i] = kind == PANEL_F16 ? dtype_f16_to_f32(h) : dtype_bf16_to_f32(h);
        }
    }
}

void panel_unpack_row(enum panel_kind kind, const void *panel, size_t k, int lane, float *out)
{
    const struct panel_info *info = &panel_rows[kind];
    const unsigned char *p = panel;
    if (info->is_float) {
        unpack_float_row(kind, p, k, lane, out);
        return;
    }
    const uint16_t *scales = (const uint16_t *)(const void *)(p + panel_scale_offset(kind, k));
    const uint16_t *mins = (const uint16_t *)(const void *)(p + panel_min_offset(kind, k));
    const unsigned char *table = p + panel_table_offset(kind, k);
    for (size_t i = 0; i < k; i++) {
        size_t at = i / info->block * PANEL_ROWS + (size_t)lane;
        unsigned code = code_at(p + i / PANEL_BLOCK * code_bytes(info), info->bits, i % PANEL_BLOCK, lane);
        code = info->has_table ? table[code] : code;
        float scale = info->has_bf16_scale ? dtype_bf16_to_f32(scales[at]) : dtype_f16_to_f32(scales[at]);
        float product = scale * (float)((int)code - info->zero_point);
        out[i] = info->has_min ? product + dtype_f16_to_f32(mins[at]) : product;
    }
}
