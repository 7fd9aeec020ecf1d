/* Q4_0: 32 inputs in 18 bytes, half d, then 16 bytes of nibbles; w = d * (code - 8) [ggml-common.h, llama.cpp b11434].
 */
#include "engine/kernels/ref/quant_types.h"

enum { Q4_0_BYTES = 18 };

static ALWAYS_INLINE void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * Q4_0_BYTES;
    out->scale[0] = quant_half(b);
    out->min[0] = 0;
    out->half_scale = quant_u16(b);
    quant_nibbles(b + 2, out->codes);
}

static void dequantize(const void *src, size_t n, float *out) { quant_dequantize(unpack, PANEL_U4, src, n, out); }

static void pack(const void *src, size_t row_bytes, int n_rows, size_t n_blocks, const struct quant_panel *out)
{
    quant_pack(unpack, 4, 32, false, QUANT_HALVES, src, row_bytes, n_rows, n_blocks, out);
}

const struct quant_ops quant_q4_0 = {.panel = PANEL_U4, .dequantize = dequantize, .unpack = unpack, .pack = pack};
