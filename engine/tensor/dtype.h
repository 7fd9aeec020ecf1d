/* The table of tensor types: every type that a GGUF file can name, with its block size.
 *
 * A quantized row is a sequence of blocks; a block holds `block_elems` consecutive elements in `block_bytes` bytes
 * [ggml: ggml-common.h, GGUF specification]. quant_ops() (engine/quant/quant.h) says whether a type can be executed.
 * Threads: constant data. */
#ifndef INFCGI_TENSOR_DTYPE_H
#define INFCGI_TENSOR_DTYPE_H

#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Values are the GGUF type ids, below DTYPE_FILE_COUNT. Ids 4, 5, 31..33 and 36..38 were removed from the format. */
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q8_1 = 9,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_Q8_K = 15,
    DTYPE_IQ2_XXS = 16,
    DTYPE_IQ2_XS = 17,
    DTYPE_IQ3_XXS = 18,
    DTYPE_IQ1_S = 19,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ3_S = 21,
    DTYPE_IQ2_S = 22,
    DTYPE_IQ4_XS = 23,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_IQ1_M = 29,
    DTYPE_BF16 = 30,
    DTYPE_TQ1_0 = 34,
    DTYPE_TQ2_0 = 35,
    DTYPE_MXFP4 = 39,
    DTYPE_NVFP4 = 40,
    DTYPE_Q1_0 = 41,
    DTYPE_Q2_0 = 42,
    DTYPE_FILE_COUNT,                      /* the ids of files are below; the others exist in memory only */
    DTYPE_NVFP4_SCALED = DTYPE_FILE_COUNT, /* blocks of NVFP4, each after the factor of its row, an f32 */
    DTYPE_Q2_0_128, /* Q2_0 in blocks of 128, as in files of Prism (engine/format/gguf_layout.c) */
    DTYPE_COUNT
};

struct dtype_info {
    const char *name;     /* "Q4_1"; NULL for ids that do not exist */
    uint32_t block_elems; /* elements in a block, 1 for plain types */
    uint32_t block_bytes;
};

/* Returns the row of a type, or NULL if no such type exists. */
const struct dtype_info *dtype_info(uint32_t id);

/* Returns the type that files have for it, which differs for types that exist in memory only. */
enum dtype dtype_in_file(enum dtype type);

/* Compute the bytes of a row of n elements, or of a tensor of n_rows such rows. Return false if n is not a multiple of
 * the block or the product exceeds 64 bits. `type` must exist. */
MUST_CHECK bool dtype_row_bytes(enum dtype type, uint64_t n, uint64_t *bytes);
MUST_CHECK bool dtype_tensor_bytes(enum dtype type, uint64_t n, uint64_t n_rows, uint64_t *bytes);

/* IEEE half and bfloat16 conversions; round to nearest even; exact both ways if the value fits. Inline, because packing
 * converts every scale of a model. */
uint16_t dtype_f32_to_bf16(float f);

static inline float dtype_f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t dtype_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float dtype_bf16_to_f32(uint16_t b) { return dtype_f32_of_bits((uint32_t)b << 16); }

static inline float dtype_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 0x1Fu;
    uint32_t fraction = h & 0x3FFu;
    if (exponent == 0x1F) { /* infinity or NaN */
        return dtype_f32_of_bits(sign | 0x7F800000u | fraction << 13);
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return dtype_f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13); /* 112 = 127 - 15, the bias difference */
}

static inline uint16_t dtype_f32_to_f16(float f)
{
    uint32_t bits = dtype_f32_bits(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) { /* NaN stays NaN, quiet */
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
    }
    if (magnitude >= 0x47800000u) { /* 65536 and more */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 aligns the fraction so that the FPU rounds */
        float shifted = dtype_f32_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (dtype_f32_bits(shifted) - 0x3F000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | ((magnitude + 0xFFFu + odd - 0x38000000u) >> 13)); /* a carry into infinity is correct */
}

#endif
