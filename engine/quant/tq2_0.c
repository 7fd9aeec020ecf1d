/* TQ2_0: 256 inputs in 66 bytes, 64 bytes of two-bit codes, half d; w = d * (code - 1) [ggml-common.h, llama.cpp
 * b11434]. */
#include "engine/quant/quant_types.h"

enum { TQ2_0_BYTES = 66, D = 64 }; /* offset in the super-block */
enum { TO_ZERO_POINT = 8 - 1 };    /* the panel subtracts 8 where the file means 1 */

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * TQ2_0_BYTES;
    size_t j = i_block % 8;
    const uint8_t *q = b + j / 4 * 32; /* four blocks share 32 bytes, two bits each */
    out->scale[0] = quant_half(b + D);
    for (int i = 0; i < PANEL_BLOCK; i += 16) {
        quant_bytes v = quant_bits(q + i, (int)(j % 4) * 2, 3) + QUANT_EACH_BYTE(TO_ZERO_POINT);
        memcpy(out->codes + i, &v, sizeof v);
    }
}

QUANT_TYPE(tq2_0, PANEL_U4, NULL, NULL)
