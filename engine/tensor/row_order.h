/* A tensor whose rows, or whose inputs head by head, stand in another order than in the file: for heads that a file
 * keeps in turns, or in the order of another implementation. Nothing is rounded. Threads: as row_source.h. */
#ifndef INFCGI_TENSOR_ROW_ORDER_H
#define INFCGI_TENSOR_ROW_ORDER_H

#include "engine/tensor/dtype.h"
#include "engine/tensor/row_source.h"

#include <stdbool.h>

/* All pointers are borrowed and outlive it. */
struct row_order {
    struct row_source base;          /* ops: row_order_ops */
    const struct row_source *source; /* OPTIONAL: what makes the rows as the file has them; else they lie at data */
    const void *data;                /* F32, F16 or BF16; unaligned */
    enum dtype type;                 /* of the rows, there and here */
    uint64_t row_bytes;
    uint32_t n_in;
    const uint32_t *rows; /* OPTIONAL: row r is row rows[r / row_run] + r % row_run of the file */
    uint32_t row_run;
    const uint32_t *columns; /* OPTIONAL: run c of column_run inputs is run columns[c]; a permutation */
    uint32_t column_run;     /* divides n_in */
};
extern const struct row_source_ops row_order_ops;

/* Can it be read? Rows at data must be floats; runs of inputs must be of whole blocks, and of a source's runs. */
bool row_order_is_valid(const struct row_order *o);

/* The longest run of which both lengths are whole multiples; 0 when both are 0. */
uint32_t row_order_run(uint32_t a, uint32_t b);

#endif
