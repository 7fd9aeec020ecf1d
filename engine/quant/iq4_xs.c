/* IQ4_XS: 256 inputs in 136 bytes, half d, the high two bits of 8 scales, their low nibbles, 128 bytes of nibbles;
 * w = d * (scale - 32) * curve[code], one scale per 32, the curve of IQ4_NL [ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { IQ4_XS_BYTES = 136, HIGH = 2, LOW = 4, NIBBLES = 8 }; /* offsets in the super-block */

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * IQ4_XS_BYTES;
    size_t j = i_block % 8;
    int low = b[LOW + j / 2] >> 4 * (j % 2) & 15, high = quant_u16(b + HIGH) >> 2 * j & 3;
    out->scale[0] = quant_half(b) * (float)((low | high << 4) - 32);
    quant_nibbles(b + NIBBLES + 16 * j, out->codes);
}

QUANT_TYPE(iq4_xs, PANEL_T4, quant_iq4_table, NULL)
