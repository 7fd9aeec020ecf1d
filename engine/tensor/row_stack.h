/* Sources of one type, width and number of rows, one behind the other: experts that files keep apart. Threads: as
 * row_source.h. */
#ifndef INFCGI_TENSOR_ROW_STACK_H
#define INFCGI_TENSOR_ROW_STACK_H

#include "engine/tensor/row_source.h"

/* parts[n] are copied, and what they point to borrowed; n >= 1. NULL when out of memory. */
MUST_CHECK const struct row_source *row_stack_new(struct arena *a, const struct row_source *const *parts, uint32_t n);

#endif
