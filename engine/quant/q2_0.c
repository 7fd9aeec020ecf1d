/* Q2_0: half d, then two bits per input, 64 inputs in 18 bytes or 128 in 34; w = d * (code - 1) [ggml-common.h, llama.cpp
 * b11434; blocks of 128: files of Prism]. */
#include "engine/quant/quant_types.h"

enum { Q2_0_BYTES = 18, Q2_0_128_BYTES = 34, CODES = 2 }; /* offset in the block */
enum { TO_ZERO_POINT = 8 - 1 };                           /* the panel subtracts 8 where the file means 1 */

/* Unpacks 32 inputs of the block at b; 8 bytes of codes at q. */
static ALWAYS_INLINE void unpack_at(const uint8_t *b, const uint8_t *q, struct quant_block *out)
{
    out->unit = quant_u16(b);
    out->scale[0] = quant_half(b);
    for (int i = 0; i < PANEL_BLOCK; i++) {
        out->codes[i] = (uint8_t)((q[i / 4] >> i % 4 * 2 & 3) + TO_ZERO_POINT);
    }
}

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 2 * Q2_0_BYTES;
    unpack_at(b, b + CODES + i_block % 2 * 8, out);
}

QUANT_PACKED_TYPE(q2_0, PANEL_U4)

static ALWAYS_INLINE void unpack_128(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 4 * Q2_0_128_BYTES;
    unpack_at(b, b + CODES + i_block % 4 * 8, out);
}

static void dequantize_128(const void *src, size_t n, float *out)
{
    quant_dequantize(unpack_128, PANEL_U4, NULL, src, n, out);
}

static void pack_128(const struct quant_rows *from, const struct panel_group *g, unsigned char *panel)
{
    quant_pack(unpack_128, &quant_kinds[PANEL_U4], true, from, g, panel);
}

const struct quant_ops quant_q2_0_128 = {
    .panel = PANEL_U4, .dequantize = dequantize_128, .unpack = unpack_128, .pack = pack_128};
