/* Q4_0: 32 inputs in 18 bytes, half d, then 16 bytes of nibbles; w = d * (code - 8) [ggml-common.h, llama.cpp b11434].
 */
#include "engine/quant/quant_types.h"

enum { Q4_0_BYTES = 18 };

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q4_0_BYTES;
    out->unit = quant_u16(b);
    out->scale[0] = quant_half(b);
    quant_nibbles(b + 2, out->codes);
}

QUANT_PACKED_TYPE(q4_0, PANEL_U4)
