/* Q5_1: 32 inputs in 24 bytes, halves d and m, 32 fifth bits, 16 bytes of nibbles; w = d * code + m [ggml-common.h,
 * llama.cpp b11434]. */
#include "engine/kernels/ref/quant_types.h"

enum { Q5_1_BYTES = 24 };

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q5_1_BYTES;
    out->scale[0] = quant_half(b);
    out->min[0] = quant_half(b + 2);
    out->half_scale = quant_u16(b);
    out->half_min = quant_u16(b + 2);
    quant_nibbles(b + 8, out->codes);
    quant_fifth_bits(b + 4, 0, out->codes);
}

static void dequantize(const void *src, size_t n, float *out) { quant_dequantize(unpack, PANEL_U8_MIN, src, n, out); }

static void pack(const void *src, size_t row_bytes, int n_rows, size_t n_blocks, const struct quant_panel *out)
{
    quant_pack(unpack, 8, 32, true, QUANT_HALVES, src, row_bytes, n_rows, n_blocks, out);
}

const struct quant_ops quant_q5_1 = {.panel = PANEL_U8_MIN, .dequantize = dequantize, .unpack = unpack, .pack = pack};
