/* Q5_0: 32 inputs in 22 bytes, half d, 32 fifth bits, 16 bytes of nibbles; w = d * (code - 16) [ggml-common.h,
 * llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { Q5_0_BYTES = 22 };

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q5_0_BYTES;
    out->unit = quant_u16(b);
    out->scale[0] = quant_half(b);
    quant_nibbles(b + 6, out->codes);
    quant_fifth_bits(b + 2, out->codes);
}

QUANT_PACKED_TYPE(q5_0, PANEL_U5)
