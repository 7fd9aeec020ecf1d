/* IQ1_M: 256 inputs in 56 bytes, 32 bytes of low grid indexes, for each 8 inputs a nibble of three high bits and a
 * sign, then four words of four three-bit scales each. The top nibbles of the words form the half d. w = d * (2 * scale
 * + 1) * (grid +- 1/8), one scale per 16, minus if the sign is set [ggml-common.h and ggml-quants.c, llama.cpp b11434].
 * Codes stand for eighths. */
#include "engine/quant/iq_grids.h"

enum { IQ1_M_BYTES = 56, HIGH = 32, SCALES = 48 }; /* offsets in the super-block */

static float super_scale(const uint8_t *words)
{
    unsigned half = 0;
    for (int i = 0; i < 4; i++) {
        half |= (unsigned)(words[2 * i + 1] >> 4) << 4 * i;
    }
    return dtype_f16_to_f32((uint16_t)half);
}

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ1_M_BYTES;
    size_t j = i_block % 8;
    unsigned scales = quant_u16(b + SCALES + j / 2 * 2) >> 6 * (j % 2);
    float d = super_scale(b + SCALES);
    out->scale[0] = d * (float)(2 * (scales & 7) + 1) * 0.125f;
    out->scale[1] = d * (float)(2 * (scales >> 3 & 7) + 1) * 0.125f;
    for (size_t l = 0; l < 4; l++) {
        unsigned high = b[HIGH + 2 * j + l / 2] >> 4 * (l % 2) & 15;
        unsigned index = b[4 * j + l] | (high & 7) << 8;
        uint64_t v = iq_point_of_8(iq_grid_1[index]) | (high >> 3) * QUANT_EACH_BYTE(8);
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq1_m, PANEL_T4_B16, iq_table_1, NULL)
