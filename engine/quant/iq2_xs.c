/* IQ2_XS: 256 inputs in 74 bytes, half d, 32 words of a nine-bit grid index and seven signs, 16 four-bit scales;
 * w = d * (scale + 1/2) / 4 * grid, signed, one scale per 16 [ggml-common.h and ggml-quants.c, llama.cpp b11434]. */
#include "engine/quant/iq_grids.h"

enum { IQ2_XS_BYTES = 74, WORDS = 2, SCALES = 66 }; /* offsets in the super-block */

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ2_XS_BYTES;
    size_t j = i_block % 8;
    float d = quant_half(b);
    out->scale[0] = d * (0.5f + (float)(b[SCALES + j] & 15)) * 0.25f;
    out->scale[1] = d * (0.5f + (float)(b[SCALES + j] >> 4)) * 0.25f;
    for (size_t l = 0; l < 4; l++) {
        unsigned word = quant_u16(b + WORDS + 8 * j + 2 * l);
        uint64_t v = iq_point_of_8(iq_grid_2_xs[word & 511]) | iq_signs(iq_even_signs(word >> 9));
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq2_xs, PANEL_T4_B16, iq_table_2, NULL)
