/* IQ4_NL: 32 inputs in 18 bytes, half d, then 16 bytes of nibbles; w = d * curve[code], a fixed curve of 16 values
 * [kvalues_iq4nl in ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { IQ4_NL_BYTES = 18 };

const uint8_t quant_iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * IQ4_NL_BYTES;
    out->scale[0] = quant_half(b);
    quant_nibbles(b + 2, out->codes);
}

QUANT_TYPE(iq4_nl, PANEL_T4, quant_iq4_table, NULL)
