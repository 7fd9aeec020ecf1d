/* IQ3_S: 256 inputs in 110 bytes, half d, 64 bytes of low grid indexes, 8 bytes with a high bit for each, 32 bytes of
 * signs, 8 four-bit scales; w = d * (2 * scale + 1) * grid, signed, one scale per 32 [ggml-common.h and ggml-quants.c,
 * llama.cpp b11434]. */
#include "engine/quant/iq_grids.h"

enum { IQ3_S_BYTES = 110, LOW = 2, HIGH = 66, SIGNS = 74, SCALES = 106 }; /* offsets in the super-block */

static const uint8_t table[16] = {129, 131, 133, 135, 137, 139, 141, 143, 127, 125, 123, 121, 119, 117, 115, 113};

static uint16_t point(const uint8_t *low, unsigned high, size_t i)
{
    return iq_grid_3_s[low[i] | (high >> i & 1) << 8];
}

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ3_S_BYTES;
    size_t j = i_block % 8;
    const uint8_t *low = b + LOW + 8 * j;
    int scale = b[SCALES + j / 2] >> 4 * (j % 2) & 15;
    out->scale[0] = quant_half(b) * (float)(2 * scale + 1);
    for (size_t l = 0; l < 4; l++) {
        uint64_t v = iq_points_of_4(point(low, b[HIGH + j], 2 * l), point(low, b[HIGH + j], 2 * l + 1));
        v |= iq_signs(b[SIGNS + 4 * j + l]);
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq3_s, PANEL_T4, table, NULL)
