/* Q4_K: 256 inputs in 144 bytes, halves d and dmin, 8 six-bit scales and minimums, 128 bytes of nibbles;
 * w = d * scale * code - dmin * min, one scale and minimum per 32 [ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { Q4_K_BYTES = 144, NIBBLES = 16 }; /* offsets in the super-block */

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * Q4_K_BYTES;
    size_t j = i_block % 8;
    quant_k_scale(b, j, out);
    const uint8_t *q =
        b + NIBBLES + j / 2 * 32; /* two blocks share 32 bytes: even ones the low nibbles, odd the high */
    int shift = j % 2 != 0 ? 4 : 0;
    UNROLL_FULLY
    for (int i = 0; i < PANEL_BLOCK; i += 16) {
        quant_bytes v = quant_bits(q + i, shift, 0x0F);
        memcpy(out->codes + i, &v, sizeof v);
    }
}

QUANT_PACKED_TYPE(q4_k, PANEL_U4_MIN_K)
