/* Computes the layout of weight panels and reads them. panel_pack.c writes them. */
#include "engine/quant/panel.h"

#include "engine/base/compiler.h"

#include <string.h>

static const struct panel_info panel_rows[PANEL_KIND_COUNT] = {
    [PANEL_F32] = {.name = "f32", .bits = 32, .is_float = true},
    [PANEL_F16] = {.name = "f16", .bits = 16, .is_float = true},
    [PANEL_BF16] = {.name = "bf16", .bits = 16, .is_float = true},
#define ROW(kind, kind_name, n_bits, n_block, zero, min, table, bf16_scale, unit)                                      \
    [PANEL_##kind] = {.name = #kind_name,                                                                              \
                      .bits = n_bits,                                                                                  \
                      .block = n_block,                                                                                \
                      .zero_point = zero,                                                                              \
                      .has_min = min,                                                                                  \
                      .has_table = table,                                                                              \
                      .has_bf16_scale = bf16_scale,                                                                    \
                      .has_unit = unit},
    PANEL_QUANT_KINDS(ROW)
#undef ROW
};

const struct panel_info *panel_info(enum panel_kind kind) { return &panel_rows[kind]; }

enum { TABLE_BYTES = 64 }; /* a table fills a 512-bit register, so every ISA needs one load */

static size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }

/* Return the bytes of one block over the 16 lanes: codes, scales. */
static size_t code_bytes(const struct panel_info *info) { return (size_t)info->bits * PANEL_BLOCK * PANEL_ROWS / 8; }

static size_t scale_bytes(const struct panel_info *info)
{
    return (size_t)(PANEL_BLOCK / info->block * PANEL_ROWS) * (info->has_unit ? sizeof(int8_t) : sizeof(uint16_t));
}

/* Returns the bytes of a group of n blocks. */
static size_t group_bytes(const struct panel_info *info, size_t n)
{
    size_t sides = info->has_min ? 2 : 1, units = info->has_unit && n > 0 ? PANEL_ROWS * sizeof(uint16_t) : 0;
    return round_up_64(n * code_bytes(info) + sides * (n * scale_bytes(info) + units));
}

size_t panel_group_bytes(enum panel_kind kind) { return group_bytes(&panel_rows[kind], PANEL_GROUP); }

struct panel_group panel_group_at(enum panel_kind kind, size_t k, size_t group)
{
    const struct panel_info *info = &panel_rows[kind];
    struct panel_group g = {.codes = group * group_bytes(info, PANEL_GROUP)};
    g.n_blocks = MIN_OF((size_t)PANEL_GROUP, k / PANEL_BLOCK - group * PANEL_GROUP);
    g.scales = g.codes + g.n_blocks * code_bytes(info);
    g.mins = g.scales + g.n_blocks * scale_bytes(info);
    g.unit = g.mins + (info->has_min ? g.n_blocks * scale_bytes(info) : 0);
    g.min_unit = g.unit + PANEL_ROWS * sizeof(uint16_t);
    return g;
}

size_t panel_table_offset(enum panel_kind kind, size_t k)
{
    const struct panel_info *info = &panel_rows[kind];
    size_t n_blocks = k / PANEL_BLOCK;
    return n_blocks / PANEL_GROUP * group_bytes(info, PANEL_GROUP) + group_bytes(info, n_blocks % PANEL_GROUP);
}

size_t panel_bytes(enum panel_kind kind, size_t k)
{
    const struct panel_info *info = &panel_rows[kind];
    if (info->is_float) {
        return round_up_64(k * PANEL_ROWS * info->bits / 8);
    }
    return panel_table_offset(kind, k) + (info->has_table ? TABLE_BYTES : 0);
}

/* Returns the code of input `in` (0..31) of a block for one lane. */
static unsigned code_at(const unsigned char *codes, int bits, size_t in, int lane)
{
    const unsigned char *byte = codes + 4 * (size_t)lane + in % 4; /* of the first line */
    size_t v = in / 4, pair = 2 * (v % 4);
    switch (bits) {
    case 2:
        return byte[64 * (v / 4)] >> pair & 3;
    case 3:
        return (byte[64 * (v / 4)] >> pair & 3) | (byte[64 * 2] >> v & 1) << 2;
    case 8:
        return byte[64 * v];
    default:
        break;
    }
    unsigned low = byte[64 * (v / 2)] >> 4 * (v % 2) & 15;
    return bits == 5   ? low | (byte[64 * 4] >> v & 1u) << 4
           : bits == 6 ? low | (byte[64 * (4 + v / 4)] >> pair & 3u) << 4
                       : low;
}

int panel_code(enum panel_kind kind, const void *panel, size_t k, size_t in, int lane)
{
    const struct panel_info *info = &panel_rows[kind];
    size_t block = in / PANEL_BLOCK;
    struct panel_group g = panel_group_at(kind, k, block / PANEL_GROUP);
    const unsigned char *p = panel;
    unsigned code = code_at(p + g.codes + block % PANEL_GROUP * code_bytes(info), info->bits, in % PANEL_BLOCK, lane);
    return info->has_table ? p[panel_table_offset(kind, k) + code] : (int)code;
}

/* Returns scale or minimum `at` of a lane; their rows begin at `from`, their unit is at `unit`. */
static float scale_at(const struct panel_info *info, const unsigned char *panel, size_t from, size_t unit, size_t at,
                      int lane)
{
    uint16_t h;
    at = at * PANEL_ROWS + (size_t)lane;
    if (info->has_unit) {
        memcpy(&h, panel + unit + 2 * (size_t)lane, sizeof h);
        return dtype_f16_to_f32(h) * (float)(int8_t)panel[from + at];
    }
    memcpy(&h, panel + from + 2 * at, sizeof h);
    return info->has_bf16_scale ? dtype_bf16_to_f32(h) : dtype_f16_to_f32(h);
}

float panel_scale(enum panel_kind kind, const void *panel, size_t k, size_t at, int lane)
{
    const struct panel_info *info = &panel_rows[kind];
    size_t in_group = (size_t)(PANEL_GROUP * PANEL_BLOCK / info->block);
    struct panel_group g = panel_group_at(kind, k, at / in_group);
    return scale_at(info, panel, g.scales, g.unit, at % in_group, lane);
}

float panel_min(enum panel_kind kind, const void *panel, size_t k, size_t at, int lane)
{
    const struct panel_info *info = &panel_rows[kind];
    size_t in_group = (size_t)(PANEL_GROUP * PANEL_BLOCK / info->block);
    struct panel_group g = panel_group_at(kind, k, at / in_group);
    return scale_at(info, panel, g.mins, g.min_unit, at % in_group, lane);
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
    const unsigned char *table = p + panel_table_offset(kind, k);
    size_t parts = PANEL_BLOCK / info->block;
    for (size_t b = 0; b < k / PANEL_BLOCK; b++) {
        struct panel_group g = panel_group_at(kind, k, b / PANEL_GROUP);
        size_t in_group = b % PANEL_GROUP;
        const unsigned char *codes = p + g.codes + in_group * code_bytes(info);
        for (size_t part = 0; part < parts; part++) {
            float scale = scale_at(info, p, g.scales, g.unit, in_group * parts + part, lane);
            float min = info->has_min ? scale_at(info, p, g.mins, g.min_unit, in_group * parts + part, lane) : 0;
            for (size_t i = part * info->block; i < (part + 1) * info->block; i++) {
                unsigned code = code_at(codes, info->bits, i, lane);
                code = info->has_table ? table[code] : code;
                float product = scale * (float)((int)code - info->zero_point);
                out[b * PANEL_BLOCK + i] = info->has_min ? product + min : product;
            }
        }
    }
}
