/* Q1_0: 128 inputs in 18 bytes, half d, then a bit per input; w = d if it is set, else -d [ggml-common.h, llama.cpp
 * b11434]. */
#include "engine/quant/quant_types.h"

enum { Q1_0_BYTES = 18, BITS = 2 }; /* offset in the block */

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 4 * Q1_0_BYTES;
    out->unit = quant_u16(b);
    out->scale[0] = quant_half(b);
    memset(out->codes, 0, sizeof out->codes);
    quant_fifth_bits(b + BITS + i_block % 4 * 4, out->codes);
    for (int i = 0; i < PANEL_BLOCK; i++) {
        out->codes[i] = (uint8_t)(7 + (out->codes[i] >> 3)); /* 16 if the bit is set; the panel subtracts 8 */
    }
}

QUANT_PACKED_TYPE(q1_0, PANEL_U4)
