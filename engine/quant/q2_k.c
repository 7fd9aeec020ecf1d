/* Q2_K: 256 inputs in 84 bytes, 16 bytes of four-bit scales (low) and minimums (high), 64 bytes of two-bit codes,
 * halves d and dmin; w = d * scale * code - dmin * min, one scale and minimum per 16 [ggml-common.h, llama.cpp b11434].
 */
#include "engine/quant/quant_types.h"

enum { Q2_K_BYTES = 84, CODES = 16, D = 80, DMIN = 82 }; /* offsets in the super-block */

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * Q2_K_BYTES;
    size_t j = i_block % 8;
    const uint8_t *q = b + CODES + j / 4 * 32; /* four blocks share 32 bytes, two bits each */
    for (int part = 0; part < 2; part++) {
        uint8_t packed = b[2 * j + (size_t)part];
        quant_set_scale(out, part, b + D, packed & 15);
        quant_set_min(out, part, b + DMIN, packed >> 4);
    }
    UNROLL_FULLY
    for (int i = 0; i < PANEL_BLOCK; i += 16) {
        quant_bytes v = quant_bits(q + i, (int)(j % 4) * 2, 3);
        memcpy(out->codes + i, &v, sizeof v);
    }
}

QUANT_PACKED_TYPE(q2_k, PANEL_U2_MIN_K)
