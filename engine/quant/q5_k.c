/* Q5_K: 256 inputs in 176 bytes, as Q4_K with 32 bytes of fifth bits before the nibbles;
 * w = d * scale * code - dmin * min, one scale and minimum per 32 [ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { Q5_K_BYTES = 176, HIGH = 16, NIBBLES = 48 }; /* offsets in the super-block */

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * Q5_K_BYTES;
    size_t j = i_block % 8;
    quant_k_scale(b, j, out);
    const uint8_t *q =
        b + NIBBLES + j / 2 * 32;   /* two blocks share 32 bytes: even ones the low nibbles, odd the high */
    const uint8_t *high = b + HIGH; /* bit j of byte i belongs to input i of block j */
    int shift = j % 2 != 0 ? 4 : 0;
    UNROLL_FULLY
    for (int i = 0; i < PANEL_BLOCK; i += 16) {
        quant_bytes v = quant_bits(q + i, shift, 0x0F) | quant_bits(high + i, (int)j, 1) << 4;
        memcpy(out->codes + i, &v, sizeof v);
    }
}

QUANT_PACKED_TYPE(q5_k, PANEL_U5_MIN_K)
