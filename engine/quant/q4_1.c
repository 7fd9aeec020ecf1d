/* Q4_1: 32 inputs in 20 bytes, halves d and m, then 16 bytes of nibbles; w = d * code + m [ggml-common.h, llama.cpp
 * b11434]. */
#include "engine/quant/quant_types.h"

enum { Q4_1_BYTES = 20 };

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q4_1_BYTES;
    out->unit = quant_u16(b);
    out->scale[0] = quant_half(b);
    out->min_unit = quant_u16(b + 2);
    out->min[0] = quant_half(b + 2);
    quant_nibbles(b + 4, out->codes);
}

QUANT_PACKED_TYPE(q4_1, PANEL_U4_MIN)
