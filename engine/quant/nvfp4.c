/* NVFP4: 64 inputs in 36 bytes, a scale of 8 bits per 16 inputs, then 8 bytes of nibbles per 16 inputs; w = scale *
 * value[code], values as in MXFP4 [ggml-common.h, llama.cpp b11434]. With a factor before the block, which the scales are
 * multiplied by: DTYPE_NVFP4_SCALED. */
#include "engine/quant/quant_types.h"

enum { NVFP4_BYTES = 36, FACTOR_BYTES = 4, SCALES = 4 }; /* bytes of scales in a block */

/* Returns half of a float of 4 bits of exponent and 3 of mantissa, because the table has doubled values. ggml reads 0x7F
 * as 0. */
static float half_of_e4m3(uint8_t code)
{
    uint32_t exponent = code >> 3 & 15u, fraction = code & 7u;
    if (exponent == 0 || code == 0x7F) {
        return code == 0x7F ? 0 : (float)fraction * 0x1p-10f;
    }
    return dtype_f32_of_bits((exponent + 119) << 23 | fraction << 20);
}

/* Unpacks half of a block. Of 8 bytes, low nibbles are the first 8 inputs, high ones the last. */
static void unpack_half(const uint8_t *block, size_t half, float factor, struct quant_block *out)
{
    const uint8_t *scales = block + 2 * half, *codes = block + SCALES + 16 * half;
    for (size_t part = 0; part < 2; part++) {
        out->scale[part] = half_of_e4m3(scales[part]) * factor;
        for (size_t i = 0; i < 8; i++) {
            out->codes[16 * part + i] = codes[8 * part + i] & 15;
            out->codes[16 * part + 8 + i] = codes[8 * part + i] >> 4;
        }
    }
}

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    unpack_half((const uint8_t *)src + i_block / 2 * NVFP4_BYTES, i_block % 2, 1, out);
}

QUANT_TYPE(nvfp4, PANEL_T4_B16, quant_fp4_table, NULL)

static void unpack_scaled(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block / 2 * (FACTOR_BYTES + NVFP4_BYTES);
    unpack_half(b + FACTOR_BYTES, i_block % 2, dtype_f32_of_bits(quant_u32(b)), out);
}

static void dequantize_scaled(const void *src, size_t n, float *out)
{
    quant_dequantize(unpack_scaled, PANEL_T4_B16, quant_fp4_table, src, n, out);
}

const struct quant_ops quant_nvfp4_scaled = {
    .panel = PANEL_T4_B16, .table = quant_fp4_table, .dequantize = dequantize_scaled, .unpack = unpack_scaled};
