/* Transposes matrices: each `run` rows of another source are a matrix whose columns become rows. `encode` rounds to a
 * float type. Threads: as row_source.h. */
#ifndef INFCGI_TENSOR_ROW_TURNED_H
#define INFCGI_TENSOR_ROW_TURNED_H

#include "engine/tensor/row_source.h"

/* Row m * of->n_in + c is column c of rows [m * run, (m + 1) * run). type: F32, F16 or BF16. Borrows `of`. Returns NULL
 * when out of memory and for a NULL `of`. */
MUST_CHECK const struct row_source *row_turned_new(struct arena *a, const struct row_source *of, uint32_t run,
                                                   enum dtype type);

#endif
