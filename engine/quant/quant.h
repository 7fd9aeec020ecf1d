/* Operations per executable weight type: dequantize a row (the reference result) and unpack a block for packing. Each
 * has one file engine/quant/<type>.c and one row in quant.c. Threads: pure functions. */
#ifndef INFCGI_QUANT_QUANT_H
#define INFCGI_QUANT_QUANT_H

#include "engine/quant/panel.h"
#include "engine/tensor/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* Codes of 32 consecutive inputs in the panel kind's terms. Kinds with `block` 32 use scale[0] (and min[0]); 16 uses
 * both. */
struct quant_block {
    uint8_t codes[PANEL_BLOCK]; /* unsigned, zero point of the panel kind included; indexes of table kinds */
    float scale[2];
    float min[2];
    /* Kinds with units: scale = unit * step, min = min_unit * min_step, exact. */
    int8_t step[2], min_step[2];
    uint16_t unit, min_unit; /* f16; types with `pack` and no units: scale[0] and min[0] as in the file */
};

/* Up to 16 rows of a file, row_bytes apart, from block i_block on. */
struct quant_rows {
    const void *rows;
    size_t row_bytes;
    int n;
    size_t i_block;
};

struct quant_ops {
    enum panel_kind panel;
    const uint8_t *table; /* [16] of table kinds: value of each code plus the zero point; NULL for other kinds */

    /* Writes the values of a row of n elements (a multiple of the type's block) to out. src: the row's bytes,
     * unaligned. */
    void (*dequantize)(const void *src, size_t n, float *out);

    /* Unpacks inputs 32*i_block .. +31 of the row. NULL for float types. */
    void (*unpack)(const void *src, size_t i_block, struct quant_block *out);

    /* OPTIONAL: like unpack, but packs the blocks of group g of a panel in one loop, several times faster. Lanes of
     * missing rows are not touched. */
    void (*pack)(const struct quant_rows *from, const struct panel_group *g, unsigned char *panel);
};

/* Returns NULL if the type cannot be executed. */
const struct quant_ops *quant_ops(enum dtype type);

#endif
