/* Packed weights: the one form in which the CPU back end keeps matrices, for one activation row and for many.
 *
 * A matrix W [N][K] (N output rows) becomes ceil(N/16) panels of 16 output rows. In a panel, lane = output row; rows
 * that do not exist have zero scales (quantised kinds) or zero weights (float kinds). Quantised kinds hold unsigned
 * codes c in blocks of inputs with a half-precision scale d and either a minimum m (w = d*c + m) or a fixed zero point
 * (w = d*(c-z)). Table kinds hold indexes of 4 bits into a table of 16 codes that stands in each panel (w =
 * d*(table[c]-z)): a fixed curve of values, or magnitudes and signs.
 *
 *   panel of a quantised kind, n_blocks = K/32:
 *     codes   [n_blocks][block bytes]   64-byte aligned
 *       4-bit, 256 bytes a block: 4 x 64 bytes; in the j-th 64 bytes lane l owns bytes 4l..4l+3; low nibbles are inputs
 *              8j..8j+3 of the block, high nibbles inputs 8j+4..8j+7, so one load gives two vpdpbusd operands
 *       8-bit, 512 bytes a block: 8 x 64 bytes; in the j-th 64 bytes lane l's bytes 4l..4l+3 are inputs 4j..4j+3
 *     scales  [n_blocks * 32/block][16] f16, 32-byte aligned
 *             (bf16 in T4_BF16, whose scales are powers of two from 2^-128 to 2^127: exact there, not in a half)
 *     mins    [n_blocks * 32/block][16] f16 (kinds with minimums only)
 *     padded to a multiple of 64 bytes
 *     table   [4][16] bytes, four times the same (table kinds only); 1 .. 255, so that table - z fits +-127
 *   panel of a float kind: [K][16] elements, padded to a multiple of 64 bytes
 *
 * Source of the layout: measured on AVX-512 VNNI (docs/internals/kernels.md). Threads: pure functions. */
#ifndef INFCGI_KERNELS_PANEL_H
#define INFCGI_KERNELS_PANEL_H

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PANEL_ROWS = 16,  /* output rows in a panel: the f32 lanes of a 512-bit register */
    PANEL_BLOCK = 32, /* inputs in a block of codes */
};

enum panel_kind {
    PANEL_F32,
    PANEL_F16,
    PANEL_BF16,
    PANEL_U4,         /* 4-bit codes, scale per 32, zero point 8: Q4_0, TQ1_0, TQ2_0 (codes + 7) */
    PANEL_U4_MIN,     /* 4-bit codes, scale and minimum per 32: Q4_1, Q4_K */
    PANEL_U8,         /* 8-bit codes, scale per 32, zero point 128: Q5_0 (codes + 112), Q8_0 (codes + 128) */
    PANEL_U8_MIN,     /* 8-bit codes, scale and minimum per 32: Q5_1, Q5_K */
    PANEL_U8_B16,     /* 8-bit codes, scale per 16, zero point 128: Q6_K (codes + 96) */
    PANEL_U4_B16,     /* 4-bit codes, scale per 16, zero point 8: Q3_K (codes + 4) */
    PANEL_U4_MIN_B16, /* 4-bit codes, scale and minimum per 16: Q2_K */
    PANEL_T4,         /* 4-bit indexes, table, scale per 32, zero point 128: IQ4_NL, IQ4_XS, IQ3_*, IQ2_XXS, IQ1_S */
    PANEL_T4_B16,     /* 4-bit indexes, table, scale per 16, zero point 128: IQ2_XS, IQ2_S, IQ1_M */
    PANEL_T4_BF16,    /* 4-bit indexes, table, bf16 scale per 32, zero point 128: MXFP4 */
    PANEL_KIND_COUNT
};

struct panel_info {
    const char *name;   /* "u4_min" */
    uint8_t bits;       /* of a code or element: 4, 8, 16 or 32 */
    uint8_t block;      /* inputs a scale covers: 32 or 16; 0 for float kinds */
    uint8_t zero_point; /* subtracted from codes; 0 where there are minimums */
    bool has_min;
    bool is_float;
    bool has_table;
    bool has_bf16_scale;
};
const struct panel_info *panel_info(enum panel_kind kind);

/* Bytes of one panel for K inputs (quantised kinds: K a multiple of 32; checked when weights are bound). */
size_t panel_bytes(enum panel_kind kind, size_t k);

/* Offsets inside a quantised panel. */
size_t panel_scale_offset(enum panel_kind kind, size_t k);
size_t panel_min_offset(enum panel_kind kind, size_t k);
size_t panel_table_offset(enum panel_kind kind, size_t k);

/* Packs output rows src[0..n_rows) (n_rows <= 16) of type `type`, each of k elements at `row_bytes` apart, into one
 * panel. dst   panel_bytes(kind, k), 64-byte aligned, fully written `kind` must be quant_ops(type)->panel. */
void panel_pack(enum dtype type, const void *src, size_t row_bytes, int n_rows, size_t k, void *dst);

/* Unpacks lane `lane` of a panel into out[k] f32: what the packed form stands for. */
void panel_unpack_row(enum panel_kind kind, const void *panel, size_t k, int lane, float *out);

#endif
