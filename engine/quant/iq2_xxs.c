/* IQ2_XXS: 256 inputs in 66 bytes, half d, then for each 32 inputs four grid indexes and a word of four times seven
 * signs and a four-bit scale; w = d * (scale + 1/2) / 4 * grid, signed, one scale per 32 [ggml-common.h and
 * ggml-quants.c, llama.cpp b11434]. */
#include "engine/quant/iq_grids.h"

enum { IQ2_XXS_BYTES = 66 };

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ2_XXS_BYTES;
    const uint8_t *indexes = b + 2 + 8 * (i_block % 8);
    uint32_t signs = quant_u32(indexes + 4);
    out->scale[0] = quant_half(b) * (0.5f + (float)(signs >> 28)) * 0.25f;
    for (size_t l = 0; l < 4; l++) {
        uint64_t v = iq_point_of_8(iq_grid_2_xxs[indexes[l]]) | iq_signs(iq_even_signs(signs >> 7 * l));
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq2_xxs, PANEL_T4, iq_table_2, NULL)
