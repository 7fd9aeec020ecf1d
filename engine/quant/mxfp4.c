/* MXFP4: 32 inputs in 17 bytes, an exponent e, then 16 bytes of nibbles; w = 2^(e-128) * value[code], values with two
 * exponent bits and one mantissa bit, doubled [OCP Microscaling Formats v1.0; ggml-common.h, llama.cpp b11434]. */
#include "engine/quant/quant_types.h"

enum { MXFP4_BYTES = 17 };

const uint8_t quant_fp4_table[16] = {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116};

/* Returns 2^(e-128), exact even if subnormal (e 0 and 1). Like ggml, does not treat e 255 as NaN, which it is in the
 * standard. */
static float power_of_2(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void unpack(const void *src, size_t i_block, struct quant_block *out)
{
    const uint8_t *b = (const uint8_t *)src + i_block * MXFP4_BYTES;
    out->scale[0] = power_of_2(b[0]);
    quant_nibbles(b + 1, out->codes);
}

QUANT_TYPE(mxfp4, PANEL_T4_BF16, quant_fp4_table, NULL)
