/* Q6_K: 256 inputs in 210 bytes, 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales,
 * half d; w = d * scale * (code - 32), one scale per 16 [ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { Q6_K_BYTES = 210, HIGH = 128, SCALES = 192, D = 208 }; /* offsets in the super-block */

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * Q6_K_BYTES;
    size_t half = i_block % 8 / 4, j = i_block % 4; /* block j of the four in a half of 128 inputs */
    const uint8_t *low = b + half * 64 + j % 2 * 32;
    const uint8_t *high = b + HIGH + half * 32;
    const int8_t *scales = (const int8_t *)b + SCALES + half * 8 + j * 2;
    int low_shift = j >= 2 ? 4 : 0;
    int high_shift = (int)j * 2;
    quant_set_scale(out, 0, b + D, scales[0]);
    quant_set_scale(out, 1, b + D, scales[1]);
    UNROLL_FULLY
    for (int i = 0; i < PANEL_BLOCK; i += 16) {
        quant_bytes v = quant_bits(low + i, low_shift, 0x0F) | quant_bits(high + i, high_shift, 3) << 4;
        memcpy(out->codes + i, &v, sizeof v);
    }
}

QUANT_PACKED_TYPE(q6_k, PANEL_U6_K)
