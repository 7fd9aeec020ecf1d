/* Q5_0: 32 inputs in 22 bytes, half d, 32 fifth bits, 16 bytes of nibbles; w = d * (code - 16) [ggml-common.h,
 * llama.cpp b11434]. */
#include "engine/kernels/ref/quant_types.h"

enum { Q5_0_BYTES = 22, TO_ZERO_POINT = 128 - 16 }; /* the panel subtracts 128 where the file means 16 */

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q5_0_BYTES;
    out->scale[0] = quant_half(b);
    out->min[0] = 0;
    out->half_scale = quant_u16(b);
    quant_nibbles(b + 6, out->codes);
    quant_fifth_bits(b + 2, TO_ZERO_POINT, out->codes);
}

static void dequantize(const void *src, size_t n, float *out) { quant_dequantize(unpack, PANEL_U8, src, n, out); }

static void pack(const void *src, size_t row_bytes, int n_rows, size_t n_blocks, const struct quant_panel *out)
{
    quant_pack(unpack, 8, 32, false, QUANT_HALVES, src, row_bytes, n_rows, n_blocks, out);
}

const struct quant_ops quant_q5_0 = {.panel = PANEL_U8, .dequantize = dequantize, .unpack = unpack, .pack = pack};
