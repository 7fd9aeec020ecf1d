/* The list of executable weight types: quant.c makes its table of it. A new type is one file here that defines its
 * `struct quant_ops` and one row in this list.  Threads: constant data and pure functions. */
#ifndef INFCGI_KERNELS_REF_QUANT_TYPES_H
#define INFCGI_KERNELS_REF_QUANT_TYPES_H

#include "engine/base/compiler.h"
#include "engine/kernels/quant.h"

#include <string.h>

/* X(type, name of its const struct quant_ops) */
#define QUANT_TYPES(X)                                                                                                 \
    X(DTYPE_F32, quant_f32)                                                                                            \
    X(DTYPE_F16, quant_f16)                                                                                            \
    X(DTYPE_BF16, quant_bf16)                                                                                          \
    X(DTYPE_Q4_0, quant_q4_0)                                                                                          \
    X(DTYPE_Q4_1, quant_q4_1)                                                                                          \
    X(DTYPE_Q5_0, quant_q5_0)                                                                                          \
    X(DTYPE_Q5_1, quant_q5_1)                                                                                          \
    X(DTYPE_Q8_0, quant_q8_0)                                                                                          \
    X(DTYPE_Q2_K, quant_q2_k)                                                                                          \
    X(DTYPE_Q3_K, quant_q3_k)                                                                                          \
    X(DTYPE_Q4_K, quant_q4_k)                                                                                          \
    X(DTYPE_Q5_K, quant_q5_k)                                                                                          \
    X(DTYPE_Q6_K, quant_q6_k)                                                                                          \
    X(DTYPE_TQ1_0, quant_tq1_0)                                                                                        \
    X(DTYPE_TQ2_0, quant_tq2_0)                                                                                        \
    X(DTYPE_IQ1_S, quant_iq1_s)                                                                                        \
    X(DTYPE_IQ1_M, quant_iq1_m)                                                                                        \
    X(DTYPE_IQ2_XXS, quant_iq2_xxs)                                                                                    \
    X(DTYPE_IQ2_XS, quant_iq2_xs)                                                                                      \
    X(DTYPE_IQ2_S, quant_iq2_s)                                                                                        \
    X(DTYPE_IQ3_XXS, quant_iq3_xxs)                                                                                    \
    X(DTYPE_IQ3_S, quant_iq3_s)                                                                                        \
    X(DTYPE_IQ4_NL, quant_iq4_nl)                                                                                      \
    X(DTYPE_IQ4_XS, quant_iq4_xs)                                                                                      \
    X(DTYPE_MXFP4, quant_mxfp4)

#define QUANT_DECLARE(type, ops) extern const struct quant_ops ops;
QUANT_TYPES(QUANT_DECLARE)
#undef QUANT_DECLARE

extern const uint8_t quant_iq4_table[16]; /* panel table of IQ4_NL and IQ4_XS; in iq4_nl.c */

/* The row of a quantised type, block by block as `unpack` takes it apart: out = scale * (code - zero point) + min, in
 * f32 without FMA, which is bit for bit what ggml's dequantize_row_* compute (b11434, ggml-quants.c). Table kinds: the
 * code is first replaced by its entry in table[16]. */
static ALWAYS_INLINE void quant_dequantize_table(void (*unpack)(const void *, size_t, struct quant_block *),
                                                 enum panel_kind kind, const uint8_t *table, const void *src, size_t n,
                                                 float *out)
{
    const struct panel_info *info = panel_info(kind);
    struct quant_block b;
    for (size_t i = 0; i < n; i++) {
        size_t in = i % PANEL_BLOCK;
        if (in == 0) {
            unpack(src, i / PANEL_BLOCK, &b);
        }
        size_t part = in / info->block;
        int code = table != NULL ? table[b.codes[in]] : b.codes[in];
        float product = b.scale[part] * (float)(code - info->zero_point);
        out[i] = info->has_min ? product + b.min[part] : product;
    }
}

/* The same for kinds without a table. */
static ALWAYS_INLINE void quant_dequantize(void (*unpack)(const void *, size_t, struct quant_block *),
                                           enum panel_kind kind, const void *src, size_t n, float *out)
{
    quant_dequantize_table(unpack, kind, NULL, src, n, out);
}

/* The half at p, unaligned, little-endian as in every GGUF file we read. */
static ALWAYS_INLINE float quant_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return dtype_f16_to_f32(h);
}

/* The little-endian words at p, unaligned. */
static ALWAYS_INLINE uint16_t quant_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static ALWAYS_INLINE uint32_t quant_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#define QUANT_EACH_BYTE(b) ((uint64_t)(b)*0x0101010101010101u)

/* Eight bytes at p, each shifted right by `shift` bits and masked: what a neighbour shifts in the mask takes away, so
 * codes are taken apart eight at a time (packing runs over gigabytes when a model is loaded). */
static ALWAYS_INLINE uint64_t quant_bits(const uint8_t *p, int shift, uint8_t mask)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v >> shift & QUANT_EACH_BYTE(mask);
}

/* 32 codes of 4 bits from 16 bytes: low nibbles are the first 16 inputs, high nibbles the last. */
static ALWAYS_INLINE void quant_nibbles(const uint8_t *bytes, uint8_t *codes)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint64_t v = quant_bits(bytes + i % 2 * 8, i / 2 * 4, 0x0F);
        memcpy(codes + 8 * i, &v, sizeof v);
    }
}

/* Adds `add` and the fifth bit of each code (bit i of the little-endian word at `high` belongs to input i). A byte of
 * eight bits is copied to eight bytes, of which each keeps its own bit; adding 0x7F carries any bit into the top one.
 */
static ALWAYS_INLINE void quant_fifth_bits(const uint8_t *high, uint8_t add, uint8_t *codes)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint64_t v, own = QUANT_EACH_BYTE(high[i]) & 0x8040201008040201u;
        uint64_t fifth = ((own + QUANT_EACH_BYTE(0x7F)) & QUANT_EACH_BYTE(0x80)) >> 3;
        memcpy(&v, codes + 8 * i, sizeof v);
        v = (v | fifth) + QUANT_EACH_BYTE(add);
        memcpy(codes + 8 * i, &v, sizeof v);
    }
}

/* Six-bit scale and minimum number j (0..7) of a Q4_K or Q5_K super-block from its 12 packed bytes. The first four of
 * each kind are the low six bits of bytes j and j+4; the rest have their low four bits in byte j+4 and their high two
 * in the top bits of bytes j-4 and j. */
static ALWAYS_INLINE void quant_k_scale(const uint8_t *packed, size_t j, float *scale, float *min)
{
    if (j < 4) {
        *scale = (float)(packed[j] & 63);
        *min = (float)(packed[j + 4] & 63);
    } else {
        *scale = (float)((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
        *min = (float)(packed[j + 4] >> 4 | (packed[j] >> 6) << 4);
    }
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

/* Lane `lane` of one code block: for 4 bits, four inputs and the next four make a 32-bit word. */
static ALWAYS_INLINE void quant_store_codes(const uint8_t *codes, int bits, unsigned char *dst, int lane)
{
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        uint64_t v;
        uint32_t word;
        memcpy(&v, codes + 8 * j, sizeof v);
        if (bits == 4) {
            word = (uint32_t)(v | v >> 28); /* codes are below 16, so bytes do not run into one another */
            memcpy(dst + 64 * j + 4 * (size_t)lane, &word, sizeof word);
            continue;
        }
        word = (uint32_t)v;
        memcpy(dst + 128 * j + 4 * (size_t)lane, &word, sizeof word);
        word = (uint32_t)(v >> 32);
        memcpy(dst + 128 * j + 64 + 4 * (size_t)lane, &word, sizeof word);
    }
}

/* How scales become halves: rounded from scale[], or taken as the file has them. */
enum quant_scales { QUANT_ROUNDED, QUANT_HALVES };

/* quant_ops.pack of a type, made of its unpack. The other parameters are constants, so that all of it is one loop:
 * those of the panel kind, and how scales are made. Blocks outside, lanes inside: the panel is written once from front
 * to back while 16 rows are read side by side, which the hardware prefetchers follow. */
static ALWAYS_INLINE void quant_pack(void (*unpack)(const void *, size_t, struct quant_block *), int bits, int block,
                                     bool has_min, enum quant_scales scales, const void *src, size_t row_bytes,
                                     int n_rows, size_t n_blocks, const struct quant_panel *out)
{
    size_t parts = (size_t)(PANEL_BLOCK / block), code_bytes = (size_t)bits * PANEL_BLOCK * PANEL_ROWS / 8;
    for (size_t i = 0; i < n_blocks; i++) {
        for (int lane = 0; lane < n_rows; lane++) {
            struct quant_block b;
            unpack((const uint8_t *)src + (size_t)lane * row_bytes, i, &b);
            quant_store_codes(b.codes, bits, out->codes + i * code_bytes, lane);
            for (size_t part = 0; part < parts; part++) {
                size_t at = (i * parts + part) * PANEL_ROWS + (size_t)lane;
                out->scales[at] = scales == QUANT_HALVES ? b.half_scale : dtype_f32_to_f16(b.scale[part]);
                if (has_min) {
                    out->mins[at] = scales == QUANT_HALVES ? b.half_min : dtype_f32_to_f16(b.min[part]);
                }
            }
        }
    }
}

#endif
