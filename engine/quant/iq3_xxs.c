/* IQ3_XXS: 256 inputs in 98 bytes, half d, 64 grid indexes, then for each 32 inputs a word of four times seven signs
 * and a four-bit scale; w = d * (scale + 1/2) / 2 * grid, signed, one scale per 32 [ggml-common.h and ggml-quants.c,
 * llama.cpp b11434]. */
#include "engine/quant/iq_grids.h"

enum { IQ3_XXS_BYTES = 98, INDEXES = 2, SIGNS = 66 }; /* offsets in the super-block */

static const uint8_t table[16] = {132, 140, 148, 156, 164, 172, 180, 190, 124, 116, 108, 100, 92, 84, 76, 66};

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ3_XXS_BYTES;
    size_t j = i_block % 8;
    const uint8_t *indexes = b + INDEXES + 8 * j;
    uint32_t signs = quant_u32(b + SIGNS + 4 * j);
    out->scale[0] = quant_half(b) * (0.5f + (float)(signs >> 28)) * 0.5f;
    for (size_t l = 0; l < 4; l++) {
        uint64_t v = iq_points_of_4(iq_grid_3_xxs[indexes[2 * l]], iq_grid_3_xxs[indexes[2 * l + 1]]);
        v |= iq_signs(iq_even_signs(signs >> 7 * l));
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq3_xxs, PANEL_T4, table, NULL)
