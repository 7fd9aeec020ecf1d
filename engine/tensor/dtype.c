/* The type table (sizes from ggml's block structs, llama.cpp b11434) and the 16-bit float conversions. */
#include "engine/tensor/dtype.h"

#include "engine/base/ck.h"

enum { K = 256 }; /* elements of a "K" super-block */

/* Only the size of a block matters here. */
static const struct dtype_info dtype_rows[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", 1, 4},
    [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 2 + 16},
    [DTYPE_Q4_1] = {"Q4_1", 32, 2 + 2 + 16},
    [DTYPE_Q5_0] = {"Q5_0", 32, 2 + 4 + 16},
    [DTYPE_Q5_1] = {"Q5_1", 32, 2 + 2 + 4 + 16},
    [DTYPE_Q8_0] = {"Q8_0", 32, 2 + 32},
    [DTYPE_Q8_1] = {"Q8_1", 32, 2 + 2 + 32},
    [DTYPE_Q2_K] = {"Q2_K", K, 2 + 2 + K / 16 + K / 4},
    [DTYPE_Q3_K] = {"Q3_K", K, 2 + K / 4 + K / 8 + 12},
    [DTYPE_Q4_K] = {"Q4_K", K, 2 + 2 + K / 2 + 12},
    [DTYPE_Q5_K] = {"Q5_K", K, 2 + 2 + K / 2 + K / 8 + 12},
    [DTYPE_Q6_K] = {"Q6_K", K, 2 + K / 2 + K / 4 + K / 16},
    [DTYPE_Q8_K] = {"Q8_K", K, 4 + K + K / 8},
    [DTYPE_IQ2_XXS] = {"IQ2_XXS", K, 2 + K / 4},
    [DTYPE_IQ2_XS] = {"IQ2_XS", K, 2 + K / 4 + K / 32},
    [DTYPE_IQ3_XXS] = {"IQ3_XXS", K, 2 + K / 4 + K / 8},
    [DTYPE_IQ1_S] = {"IQ1_S", K, 2 + K / 8 + K / 16},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 2 + 16},
    [DTYPE_IQ3_S] = {"IQ3_S", K, 2 + K / 4 + K / 8 + K / 32 + 4},
    [DTYPE_IQ2_S] = {"IQ2_S", K, 2 + K / 4 + K / 16},
    [DTYPE_IQ4_XS] = {"IQ4_XS", K, 2 + 2 + K / 2 + K / 64},
    [DTYPE_I8] = {"I8", 1, 1},
    [DTYPE_I16] = {"I16", 1, 2},
    [DTYPE_I32] = {"I32", 1, 4},
    [DTYPE_I64] = {"I64", 1, 8},
    [DTYPE_F64] = {"F64", 1, 8},
    [DTYPE_IQ1_M] = {"IQ1_M", K, K / 8 + K / 16 + K / 32},
    [DTYPE_BF16] = {"BF16", 1, 2},
    [DTYPE_TQ1_0] = {"TQ1_0", K, 2 + 4 * 13},
    [DTYPE_TQ2_0] = {"TQ2_0", K, 2 + 64},
    [DTYPE_MXFP4] = {"MXFP4", 32, 1 + 16},
    [DTYPE_NVFP4] = {"NVFP4", 64, 4 + 32},
    [DTYPE_Q1_0] = {"Q1_0", 128, 2 + 16},
    [DTYPE_Q2_0] = {"Q2_0", 64, 2 + 16},
    [DTYPE_NVFP4_SCALED] = {"NVFP4", 64, 4 + 4 + 32},
    [DTYPE_Q2_0_128] = {"Q2_0", 128, 2 + 32},
};

const struct dtype_info *dtype_info(uint32_t id)
{
    return id < DTYPE_COUNT && dtype_rows[id].name != NULL ? &dtype_rows[id] : NULL;
}

enum dtype dtype_in_file(enum dtype type)
{
    return type == DTYPE_NVFP4_SCALED ? DTYPE_NVFP4 : type == DTYPE_Q2_0_128 ? DTYPE_Q2_0 : type;
}

bool dtype_row_bytes(enum dtype type, uint64_t n, uint64_t *bytes)
{
    const struct dtype_info *t = &dtype_rows[type];
    return n % t->block_elems == 0 && ck_mul(n / t->block_elems, t->block_bytes, bytes);
}

bool dtype_tensor_bytes(enum dtype type, uint64_t n, uint64_t n_rows, uint64_t *bytes)
{
    uint64_t row;
    return dtype_row_bytes(type, n, &row) && ck_mul(row, n_rows, bytes);
}

uint16_t dtype_f32_to_bf16(float f)
{
    uint32_t bits = dtype_f32_bits(f);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(bits >> 16 | 0x40u); /* NaN stays NaN, quiet */
    }
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
