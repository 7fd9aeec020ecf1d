/* F32, F16 and BF16 are only widened. */
#include "engine/quant/quant_types.h"

static void f32_row(const void *src, size_t n, float *out) { memcpy(out, src, n * sizeof *out); }

static void f16_row(const void *src, size_t n, float *out)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        out[i] = quant_half(p + 2 * i);
    }
}

static void bf16_row(const void *src, size_t n, float *out)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t b;
        memcpy(&b, p + 2 * i, sizeof b);
        out[i] = dtype_bf16_to_f32(b);
    }
}

const struct quant_ops quant_f32 = {.panel = PANEL_F32, .dequantize = f32_row};
const struct quant_ops quant_f16 = {.panel = PANEL_F16, .dequantize = f16_row};
const struct quant_ops quant_bf16 = {.panel = PANEL_BF16, .dequantize = bf16_row};
