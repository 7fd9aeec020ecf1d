/* The list of executable weight types, from which quant.c builds its table. A new type is one file here that defines
 * its `struct quant_ops` and one row in this list. Threads: constant data and pure functions. */
#ifndef INFCGI_QUANT_QUANT_TYPES_H
#define INFCGI_QUANT_QUANT_TYPES_H

#include "engine/base/compiler.h"
#include "engine/quant/quant.h"

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
    X(DTYPE_MXFP4, quant_mxfp4)                                                                                        \
    X(DTYPE_NVFP4, quant_nvfp4)                                                                                        \
    X(DTYPE_NVFP4_SCALED, quant_nvfp4_scaled)                                                                          \
    X(DTYPE_Q1_0, quant_q1_0)                                                                                          \
    X(DTYPE_Q2_0, quant_q2_0)                                                                                          \
    X(DTYPE_Q2_0_128, quant_q2_0_128)

#define QUANT_DECLARE(type, ops) extern const struct quant_ops ops;
QUANT_TYPES(QUANT_DECLARE)
#undef QUANT_DECLARE

extern const uint8_t quant_fp4_table[16]; /* panel table of MXFP4 and NVFP4, values doubled; in mxfp4.c */
extern const uint8_t quant_iq4_table[16]; /* panel table of IQ4_NL and IQ4_XS; in iq4_nl.c */

/* Dequantizes a row block by block with `unpack`: out = scale * (code - zero point) + min, in f32 without FMA, bit for
 * bit like ggml's dequantize_row_* (b11434, ggml-quants.c). table: of table kinds [16], which replaces each code; NULL
 * for other kinds. */
static ALWAYS_INLINE void quant_dequantize(void (*unpack)(const void *, size_t, struct quant_block *),
                                           enum panel_kind kind, const uint8_t *table, const void *src, size_t n,
                                           float *out)
{
    const struct panel_info *info = panel_info(kind);
    struct quant_block b = {.min = {0, 0}};
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

/* Returns the half at p, unaligned, little-endian as in every supported GGUF file. */
static ALWAYS_INLINE float quant_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return dtype_f16_to_f32(h);
}

/* Return the little-endian words at p, unaligned. */
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

/* 16 bytes in a register. */
typedef uint64_t quant_bytes VECTOR_OF(16);

/* Returns 16 bytes at p, each shifted right by `shift` bits and masked. The mask removes the bits of neighbors, so codes
 * are extracted 16 at a time (packing reads gigabytes when a model loads). */
static ALWAYS_INLINE quant_bytes quant_bits(const uint8_t *p, int shift, uint8_t mask)
{
    quant_bytes v;
    memcpy(&v, p, sizeof v);
    return v >> (uint64_t)shift & QUANT_EACH_BYTE(mask);
}

/* Extracts 32 codes of 4 bits from 16 bytes: low nibbles are the first 16 inputs, high nibbles the last. */
static ALWAYS_INLINE void quant_nibbles(const uint8_t *bytes, uint8_t *codes)
{
    UNROLL_FULLY
    for (int i = 0; i < 2; i++) {
        quant_bytes v = quant_bits(bytes, i * 4, 0x0F);
        memcpy(codes + 16 * i, &v, sizeof v);
    }
}

/* Adds the fifth bit of each code (bit i of the little-endian word at `high` belongs to input i). A byte is copied to
 * eight bytes, each keeps its own bit, and adding 0x7F carries that into the top bit. */
static ALWAYS_INLINE void quant_fifth_bits(const uint8_t *high, uint8_t *codes)
{
    UNROLL_FULLY
    for (int i = 0; i < 4; i++) {
        uint64_t v, own = QUANT_EACH_BYTE(high[i]) & 0x8040201008040201u;
        uint64_t fifth = ((own + QUANT_EACH_BYTE(0x7F)) & QUANT_EACH_BYTE(0x80)) >> 3;
        memcpy(&v, codes + 8 * i, sizeof v);
        v |= fifth;
        memcpy(codes + 8 * i, &v, sizeof v);
    }
}

/* Set scale (minimum) `part` of a block of a kind with units: the half at d times step, or minus that. */
static ALWAYS_INLINE void quant_set_scale(struct quant_block *out, int part, const uint8_t *d, int step)
{
    out->unit = quant_u16(d);
    out->step[part] = (int8_t)step;
    out->scale[part] = quant_half(d) * (float)step;
}

static ALWAYS_INLINE void quant_set_min(struct quant_block *out, int part, const uint8_t *dmin, int step)
{
    out->min_unit = quant_u16(dmin) ^ 0x8000;
    out->min_step[part] = (int8_t)step;
    out->min[part] = -(quant_half(dmin) * (float)step);
}

/* Sets the six-bit scale and minimum of block j (0..7) of a Q4_K or Q5_K super-block, which begins with halves d and
 * dmin and 12 packed bytes. The first four of each kind are the low six bits of bytes j and j+4; the rest have their
 * low four bits in byte j+4 and their high two in the top bits of bytes j-4 and j. */
static ALWAYS_INLINE void quant_k_scale(const uint8_t *block, size_t j, struct quant_block *out)
{
    const uint8_t *packed = block + 4;
    if (j < 4) {
        quant_set_scale(out, 0, block, packed[j] & 63);
        quant_set_min(out, 0, block + 2, packed[j + 4] & 63);
    } else {
        quant_set_scale(out, 0, block, (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
        quant_set_min(out, 0, block + 2, packed[j + 4] >> 4 | (packed[j] >> 6) << 4);
    }
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

enum { QUANT_LANES = 4 }; /* lanes whose codes are stored together */

/* A word of four codes of each of these lanes. */
typedef uint32_t quant_words VECTOR_OF(16);

/* Stores a word of each lane of a code block to line `line` of 64 bytes; `dst` is the first lane's word of the first
 * line. */
static ALWAYS_INLINE void quant_store_words(quant_words words, unsigned char *dst, size_t line)
{
    memcpy(dst + 64 * line, &words, sizeof words);
}

/* Returns `n` bits of each byte of the words, from bit `from` on. */
static ALWAYS_INLINE quant_words quant_word_bits(quant_words words, uint32_t from, int n)
{
    /* Bytes are below 64 if from > 0, so no bit moves to another byte. */
    return words >> from & 0x01010101u * ((1u << n) - 1);
}

static ALWAYS_INLINE void quant_store_u4(const quant_words *words, unsigned char *dst)
{
    UNROLL_FULLY
    for (size_t i = 0; i < 4; i++) {
        quant_store_words(quant_word_bits(words[2 * i], 0, 4) | quant_word_bits(words[2 * i + 1], 0, 4) << 4, dst, i);
    }
}

/* Stores two lines of bit pairs. */
static ALWAYS_INLINE void quant_store_pairs(const quant_words *words, uint32_t from, unsigned char *dst, size_t line)
{
    UNROLL_FULLY
    for (size_t h = 0; h < 2; h++) {
        quant_words line_words = {0};
        UNROLL_FULLY
        for (uint32_t m = 0; m < 4; m++) {
            line_words |= quant_word_bits(words[4 * h + m], from, 2) << 2 * m;
        }
        quant_store_words(line_words, dst, line + h);
    }
}

/* Stores one line of single bits. */
static ALWAYS_INLINE void quant_store_singles(const quant_words *words, uint32_t from, unsigned char *dst, size_t line)
{
    quant_words line_words = {0};
    UNROLL_FULLY
    for (uint32_t v = 0; v < 8; v++) {
        line_words |= quant_word_bits(words[v], from, 1) << v;
    }
    quant_store_words(line_words, dst, line);
}

/* Sets words[v] = word v of each lane, for four of the lanes' words from `first` on. */
static ALWAYS_INLINE void quant_turn(uint8_t codes[QUANT_LANES][PANEL_BLOCK], size_t first, quant_words *words)
{
    quant_words lane[QUANT_LANES];
    memcpy(&lane[0], codes[0] + 4 * first, sizeof lane[0]);
    memcpy(&lane[1], codes[1] + 4 * first, sizeof lane[1]);
    memcpy(&lane[2], codes[2] + 4 * first, sizeof lane[2]);
    memcpy(&lane[3], codes[3] + 4 * first, sizeof lane[3]);
    quant_words a = VECTOR_PICK(lane[0], lane[1], 0, 4, 1, 5), b = VECTOR_PICK(lane[2], lane[3], 0, 4, 1, 5);
    quant_words c = VECTOR_PICK(lane[0], lane[1], 2, 6, 3, 7), d = VECTOR_PICK(lane[2], lane[3], 2, 6, 3, 7);
    words[first] = VECTOR_PICK(a, b, 0, 1, 4, 5);
    words[first + 1] = VECTOR_PICK(a, b, 2, 3, 6, 7);
    words[first + 2] = VECTOR_PICK(c, d, 0, 1, 4, 5);
    words[first + 3] = VECTOR_PICK(c, d, 2, 3, 6, 7);
}

/* Stores a block of QUANT_LANES lanes. dst: the first lane's word of the block's first line. */
static ALWAYS_INLINE void quant_store_codes(uint8_t codes[QUANT_LANES][PANEL_BLOCK], int bits, unsigned char *dst)
{
    quant_words words[PANEL_BLOCK / 4];
    quant_turn(codes, 0, words);
    quant_turn(codes, 4, words);
    switch (bits) {
    case 2:
        quant_store_pairs(words, 0, dst, 0);
        break;
    case 3:
        quant_store_pairs(words, 0, dst, 0);
        quant_store_singles(words, 2, dst, 2);
        break;
    case 4:
        quant_store_u4(words, dst);
        break;
    case 5:
        quant_store_u4(words, dst);
        quant_store_singles(words, 4, dst, 4);
        break;
    case 6:
        quant_store_u4(words, dst);
        quant_store_pairs(words, 4, dst, 4);
        break;
    default:
        UNROLL_FULLY
        for (size_t v = 0; v < 8; v++) {
            quant_store_words(words[v], dst, v);
        }
    }
}

/* Stores scales and minimums of one lane of block b (of its group g). */
static ALWAYS_INLINE void quant_store_scales(const struct panel_info *info, bool are_halves,
                                             const struct quant_block *from, const struct panel_group *g, size_t b,
                                             size_t lane, unsigned char *panel)
{
    size_t parts = PANEL_BLOCK / info->block;
    uint16_t *scales = (uint16_t *)(void *)(panel + g->scales), *mins = (uint16_t *)(void *)(panel + g->mins);
    for (size_t part = 0; part < parts; part++) {
        size_t at = (b * parts + part) * PANEL_ROWS + lane;
        if (info->has_unit) {
            panel[g->scales + at] = (unsigned char)from->step[part];
        } else {
            scales[at] = are_halves             ? from->unit
                         : info->has_bf16_scale ? dtype_f32_to_bf16(from->scale[part])
                                                : dtype_f32_to_f16(from->scale[part]);
        }
        if (info->has_min && info->has_unit) {
            panel[g->mins + at] = (unsigned char)from->min_step[part];
        } else if (info->has_min) {
            mins[at] = are_halves ? from->min_unit : dtype_f32_to_f16(from->min[part]);
        }
    }
    if (info->has_unit && b == 0) {
        memcpy(panel + g->unit + 2 * lane, &from->unit, sizeof from->unit);
        if (info->has_min) {
            memcpy(panel + g->min_unit + 2 * lane, &from->min_unit, sizeof from->min_unit);
        }
    }
}

/* Packs block b of a group, QUANT_LANES lanes from `first` on; the panel has n. */
static ALWAYS_INLINE void quant_pack_lanes(void (*unpack)(const void *, size_t, struct quant_block *),
                                           const struct panel_info *info, bool are_halves,
                                           const struct quant_rows *from, const struct panel_group *g, size_t b,
                                           size_t first, size_t n, unsigned char *panel)
{
    uint8_t codes[QUANT_LANES][PANEL_BLOCK];
    UNROLL_FULLY
    for (size_t i = 0; i < QUANT_LANES; i++) {
        if (first + i >= n) {
            memset(codes[i], 0, sizeof codes[i]);
            continue;
        }
        struct quant_block block;
        unpack((const uint8_t *)from->rows + (first + i) * from->row_bytes, from->i_block + b, &block);
        memcpy(codes[i], block.codes, sizeof codes[i]);
        quant_store_scales(info, are_halves, &block, g, b, first + i, panel);
    }
    size_t code_bytes = (size_t)info->bits * PANEL_BLOCK * PANEL_ROWS / 8;
    quant_store_codes(codes, info->bits, panel + g->codes + b * code_bytes + 4 * first);
}

/* Packs a group of a panel from the file's rows. quant_ops.pack of a type calls it with constants, so that it compiles
 * to one loop. are_halves: scales and minimums are copied from the file. */
static ALWAYS_INLINE void quant_pack(void (*unpack)(const void *, size_t, struct quant_block *),
                                     const struct panel_info *info, bool are_halves, const struct quant_rows *rows,
                                     const struct panel_group *group, unsigned char *panel)
{
    const struct quant_rows from = *rows; /* in registers: stores through `panel` cannot change them */
    const struct panel_group g = *group;
    size_t n = (size_t)from.n;
    for (size_t b = 0; b < g.n_blocks; b++) {
        for (size_t first = 0; first < n; first += QUANT_LANES) {
            quant_pack_lanes(unpack, info, are_halves, &from, &g, b, first, n, panel);
        }
    }
}

/* The kinds as constants. */
static const struct panel_info quant_kinds[PANEL_KIND_COUNT] = {
#define QUANT_ROW(kind, kind_name, n_bits, n_block, zero, min, table, bf16_scale, unit)                                \
    [PANEL_##kind] = {.bits = n_bits, .block = n_block, .has_min = min, .has_bf16_scale = bf16_scale, .has_unit = unit},
    PANEL_QUANT_KINDS(QUANT_ROW)
#undef QUANT_ROW
};

/* Defines quant_<name> from `unpack`. of_table: of table kinds, else NULL; pack_fn: `pack`, or NULL. */
#define QUANT_TYPE(name, kind, of_table, pack_fn)                                                                      \
    static void dequantize(const void *src, size_t n, float *out)                                                      \
    {                                                                                                                  \
        quant_dequantize(unpack, kind, of_table, src, n, out);                                                         \
    }                                                                                                                  \
    const struct quant_ops quant_##name = {                                                                            \
        .panel = kind, .table = of_table, .dequantize = dequantize, .unpack = unpack, .pack = pack_fn};

/* Likewise with `pack`, for a type whose blocks begin with halves, or which has units; unpack must be ALWAYS_INLINE. */
#define QUANT_PACKED_TYPE(name, kind)                                                                                  \
    static void pack(const struct quant_rows *from, const struct panel_group *g, unsigned char *panel)                 \
    {                                                                                                                  \
        quant_pack(unpack, &quant_kinds[kind], true, from, g, panel);                                                  \
    }                                                                                                                  \
    QUANT_TYPE(name, kind, NULL, pack)

#endif
