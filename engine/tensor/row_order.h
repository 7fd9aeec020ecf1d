/* Selects rows or inputs of another source in a given order: parts of a tensor that holds several weights, heads that a
 * file interleaves or orders differently, shares of several devices. Nothing is rounded. All pointers are borrowed and
 * outlive the source. Functions return NULL when out of memory and for a NULL `of`. Threads: as row_source.h. */
#ifndef INFCGI_TENSOR_ROW_ORDER_H
#define INFCGI_TENSOR_ROW_ORDER_H

#include "engine/tensor/row_source.h"

/* Selects n_runs runs of `run` rows: run r begins at row first[r]. */
MUST_CHECK const struct row_source *row_order_rows(struct arena *a, const struct row_source *of, const uint32_t *first,
                                                   uint32_t n_runs, uint32_t run);

/* Selects n_runs runs of `run` inputs: run r begins at input first[r]. All are multiples of the source's grain. */
MUST_CHECK const struct row_source *row_order_columns(struct arena *a, const struct row_source *of,
                                                      const uint32_t *first, uint32_t n_runs, uint32_t run);

/* Select rows, or inputs, [first, first + n). */
MUST_CHECK const struct row_source *row_order_row_range(struct arena *a, const struct row_source *of, uint32_t first,
                                                        uint32_t n);
MUST_CHECK const struct row_source *row_order_column_range(struct arena *a, const struct row_source *of, uint32_t first,
                                                           uint32_t n);

/* Returns the longest run that divides both lengths; 0 if both are 0. */
uint32_t row_order_run(uint32_t a, uint32_t b);

#endif
