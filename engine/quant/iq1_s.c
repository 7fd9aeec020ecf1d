/* IQ1_S: 256 inputs in 50 bytes, half d, 32 bytes of low grid indexes, then for each 32 inputs 16 bits: four times
 * three high bits of the indexes, a three-bit scale, a sign. w = d * (2 * scale + 1) * (grid +- 1/8), minus if the sign
 * is set [ggml-common.h and ggml-quants.c, llama.cpp b11434]. Codes stand for eighths. */
#include "engine/quant/iq_grids.h"

enum { IQ1_S_BYTES = 50, LOW = 2, HIGH = 34 }; /* offsets in the super-block */

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ1_S_BYTES;
    size_t j = i_block % 8;
    unsigned high = quant_u16(b + HIGH + 2 * j);
    out->scale[0] = quant_half(b) * (float)(2 * (high >> 12 & 7) + 1) * 0.125f;
    uint64_t sign = high >> 15 != 0 ? QUANT_EACH_BYTE(8) : 0;
    for (size_t l = 0; l < 4; l++) {
        unsigned index = b[LOW + 4 * j + l] | (high >> 3 * l & 7) << 8;
        uint64_t v = iq_point_of_8(iq_grid_1[index]) | sign;
        memcpy(out->codes + 8 * l, &v, sizeof v);
    }
}

QUANT_TYPE(iq1_s, PANEL_T4, iq_table_1, NULL)
