/* Packed weights: the one form in which the CPU back end keeps matrices, for one activation row and for many.
 *
 * A matrix W [N][K] (N output rows) becomes ceil(N/16) panels of 16 output rows. In a panel, lane = output row; rows
 * that do not exist have zero scales (quantized kinds) or zero weights (float kinds). Quantized kinds hold unsigned
 * codes c in blocks of 32 inputs with a scale d and either a minimum m (w = d*c + m) or a fixed zero point
 * (w = d*(c-z)). Table kinds hold indexes of 4 bits into a table of 16 codes in each panel (w = d*(table[c]-z)): a
 * fixed curve of values, or magnitudes and signs. A block has its size in the file, within 3 %, because products with
 * one row are bound by memory.
 *
 *   panel of a quantized kind: groups of 8 blocks (the last can be smaller), each padded to a multiple of 64 bytes:
 *     codes   [blocks][64 * bits]   a word of four bytes belongs to a lane; word v of a lane holds inputs 4v .. 4v+3 of
 *                                   the block, one byte per input, whose bits can be in different lines of 64 bytes:
 *       8-bit: line v is word v of every lane
 *       4-bit: line i has word 2i in the low nibbles, word 2i+1 in the high ones: one load, two vpdpbusd operands
 *       5-bit: as 4-bit; then one line with the fifth bit of word v in bit v
 *       6-bit: as 4-bit; then two lines, line h with the high bits of word 4h+m in bits 2m and 2m+1
 *       2-bit: two lines, line h with word 4h+m in bits 2m and 2m+1
 *       3-bit: as 2-bit; then one line with the third bit of word v in bit v
 *     scales  [blocks * 32/block][16]    f16 (bf16 in T4_BF16, whose scales are powers of two from 2^-128 to 2^127:
 *                                        exact there, not in a half); in kinds with units int8, d = unit * int8
 *     mins    [blocks * 32/block][16]    f16, in kinds with units int8, m = min unit * int8 (kinds with minimums only)
 *     unit, min unit  [16] f16 each      (kinds with units, with minimums)
 *   after the groups:
 *     table   [4][16] bytes, four copies (table kinds only); 1 .. 255, so that table - z fits +-127
 *   panel of a float kind: [K][16] elements, padded to a multiple of 64 bytes
 *
 * Source of the layout: measured on AVX-512 VNNI (docs/internals/kernels.md). Threads: pure functions. */
#ifndef INFCGI_QUANT_PANEL_H
#define INFCGI_QUANT_PANEL_H

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PANEL_ROWS = 16,  /* output rows in a panel: the f32 lanes of a 512-bit register */
    PANEL_BLOCK = 32, /* inputs in a block of codes */
    PANEL_GROUP = 8,  /* blocks in a group: the super-block of K types */
};

/* X(KIND, name, bits, block, zero point, has_min, has_table, has_bf16_scale, has_unit): the quantized kinds.
 *   U4        Q4_0, TQ*, Q1_0, Q2_0 (code + 7)   U2_MIN_K  Q2_K
 *   U4_MIN    Q4_1                               U3_K      Q3_K
 *   U5        Q5_0                               U4_MIN_K  Q4_K
 *   U5_MIN    Q5_1                               U5_MIN_K  Q5_K
 *   U8        Q8_0 (codes + 128)                 U6_K      Q6_K
 *   T4        IQ4_NL, IQ4_XS, IQ3_*, IQ2_XXS, IQ1_S     T4_B16  IQ2_XS, IQ2_S, IQ1_M, NVFP4     T4_BF16  MXFP4 */
#define PANEL_QUANT_KINDS(X)                                                                                           \
    X(U4, u4, 4, 32, 8, 0, 0, 0, 0)                                                                                    \
    X(U4_MIN, u4_min, 4, 32, 0, 1, 0, 0, 0)                                                                            \
    X(U5, u5, 5, 32, 16, 0, 0, 0, 0)                                                                                   \
    X(U5_MIN, u5_min, 5, 32, 0, 1, 0, 0, 0)                                                                            \
    X(U8, u8, 8, 32, 128, 0, 0, 0, 0)                                                                                  \
    X(U2_MIN_K, u2_min_k, 2, 16, 0, 1, 0, 0, 1)                                                                        \
    X(U3_K, u3_k, 3, 16, 4, 0, 0, 0, 1)                                                                                \
    X(U4_MIN_K, u4_min_k, 4, 32, 0, 1, 0, 0, 1)                                                                        \
    X(U5_MIN_K, u5_min_k, 5, 32, 0, 1, 0, 0, 1)                                                                        \
    X(U6_K, u6_k, 6, 16, 32, 0, 0, 0, 1)                                                                               \
    X(T4, t4, 4, 32, 128, 0, 1, 0, 0)                                                                                  \
    X(T4_B16, t4_b16, 4, 16, 128, 0, 1, 0, 0)                                                                          \
    X(T4_BF16, t4_bf16, 4, 32, 128, 0, 1, 1, 0)

enum panel_kind {
    PANEL_F32,
    PANEL_F16,
    PANEL_BF16,
#define PANEL_ENUM(kind, ...) PANEL_##kind,
    PANEL_QUANT_KINDS(PANEL_ENUM)
#undef PANEL_ENUM
        PANEL_KIND_COUNT
};

struct panel_info {
    const char *name;   /* "u4_min" */
    uint8_t bits;       /* of a code or element: 2 .. 6, 8, 16 or 32 */
    uint8_t block;      /* inputs a scale covers: 32 or 16; 0 for float kinds */
    uint8_t zero_point; /* subtracted from codes; 0 in kinds with minimums */
    bool has_min;
    bool is_float;
    bool has_table;
    bool has_bf16_scale;
    bool has_unit; /* scales and minimums are int8 times a unit of the group */
};
const struct panel_info *panel_info(enum panel_kind kind);

/* Returns the bytes of one panel for K inputs (quantized kinds: K a multiple of 32; checked when weights are bound). */
size_t panel_bytes(enum panel_kind kind, size_t k);

/* Returns the bytes of a whole group. */
size_t panel_group_bytes(enum panel_kind kind);

/* Offsets of a group's parts in a quantized panel, in bytes from its start. */
struct panel_group {
    size_t codes;          /* of its first block */
    size_t scales, mins;   /* of its first block */
    size_t unit, min_unit; /* kinds with units */
    size_t n_blocks;       /* PANEL_GROUP; fewer in the last group */
};
struct panel_group panel_group_at(enum panel_kind kind, size_t k, size_t group);

size_t panel_table_offset(enum panel_kind kind, size_t k);

/* Return scale or minimum `at` of a lane, in order of inputs; exact. */
float panel_scale(enum panel_kind kind, const void *panel, size_t k, size_t at, int lane);
float panel_min(enum panel_kind kind, const void *panel, size_t k, size_t at, int lane);

/* Returns the code of input `in` of a lane; in table kinds its entry in the table. */
int panel_code(enum panel_kind kind, const void *panel, size_t k, size_t in, int lane);

/* Unpacks lane `lane` of a panel to out[k], the exact f32 values of the packed form. */
void panel_unpack_row(enum panel_kind kind, const void *panel, size_t k, int lane, float *out);

#endif
