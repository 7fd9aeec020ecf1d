/* Q3_K: 256 inputs in 110 bytes, 32 bytes of third bits, 64 bytes of two-bit codes, 16 six-bit scales in 12 bytes,
 * half d; w = d * (scale - 32) * (code - 4), one scale per 16 [ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { Q3_K_BYTES = 110, CODES = 32, SCALES = 96, D = 108 }; /* offsets in the super-block */

/* Returns scale j (0..15): low four bits in the nibbles of the first eight bytes, high two in the last four bytes. */
static int scale_of(const uint8_t *packed, size_t j)
{
    int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    int high = packed[8 + j % 4] >> 2 * (j / 4) & 3;
    return (low | high << 4) - 32;
}

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 8 * Q3_K_BYTES;
    size_t j = i_block % 8;
    const uint8_t *q =
        b + CODES + j / 4 * 32; /* four blocks share 32 bytes, two bits each; third bits: bit j of byte i */
    quant_set_scale(out, 0, b + D, scale_of(b + SCALES, 2 * j));
    quant_set_scale(out, 1, b + D, scale_of(b + SCALES, 2 * j + 1));
    UNROLL_FULLY
    for (int i = 0; i < PANEL_BLOCK; i += 16) {
        quant_bytes v = quant_bits(q + i, (int)(j % 4) * 2, 3) | quant_bits(b + i, (int)j, 1) << 2;
        memcpy(out->codes + i, &v, sizeof v);
    }
}

QUANT_PACKED_TYPE(q3_k, PANEL_U3_K)
