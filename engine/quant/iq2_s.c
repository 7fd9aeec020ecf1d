/* IQ2_S: 256 inputs in 82 bytes, half d, 32 bytes of low grid indexes, 32 bytes of signs, 8 bytes of two high bits for
 * each index, 16 four-bit scales; w = d * (scale + 1/2) / 4 * grid, signed, one scale per 16 [ggml-common.h and
 * ggml-quants.c, llama.cpp b11434]. */
#include "engine/quant/iq_grids.h"

enum { IQ2_S_BYTES = 82, LOW = 2, SIGNS = 34, HIGH = 66, SCALES = 74 }; /* offsets in the super-block */

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ2_S_BYTES;
    size_t j = i_block % 8;
    float d = quant_half(b);
    out->scale[0] = d * (0.5f + (float)(b[SCALES + j] & 15)) * 0.25f;
    out->scale[1] = d * (0.5f + (float)(b[SCALES + j] >> 4)) * 0.25f;
    for (size_t l = 0; l < 4; l++) {
        unsigned index = b[LOW + 4 * j + l] | (unsigned)(b[HIGH + j] >> 2 * l & 3) << 8;
        uint64_t v = iq_point_of_8(iq_grid_2_s[index]) | iq_signs(b[SIGNS + 4 * j + l]);
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq2_s, PANEL_T4_B16, iq_table_2, NULL)
