/* Concatenates sources of one type, width and number of rows: experts that files store separately. Threads: as
 * row_source.h. */
#ifndef INFCGI_TENSOR_ROW_STACK_H
#define INFCGI_TENSOR_ROW_STACK_H

#include "engine/tensor/row_source.h"

/* Copies parts[n], n >= 1, and borrows what they point to. Returns NULL when out of memory. */
MUST_CHECK const struct row_source *row_stack_new(struct arena *a, const struct row_source *const *parts, uint32_t n);

#endif
