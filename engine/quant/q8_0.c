/* Q8_0: 32 inputs in 34 bytes, half d, then 32 signed codes; w = d * code [ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { Q8_0_BYTES = 34 };

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q8_0_BYTES;
    out->unit = quant_u16(b);
    out->scale[0] = quant_half(b);
    for (int i = 0; i < PANEL_BLOCK; i++) {
        out->codes[i] = b[2 + i] ^ 0x80; /* signed code + 128 */
    }
}

QUANT_PACKED_TYPE(q8_0, PANEL_U8)
