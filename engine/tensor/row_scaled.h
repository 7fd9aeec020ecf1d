/* Rows of another source, each times its own factor. Threads: as in row_source.h. */
#ifndef INFCGI_TENSOR_ROW_SCALED_H
#define INFCGI_TENSOR_ROW_SCALED_H

#include "engine/tensor/row_source.h"

/* Returns `of` with row i times factors[i]; factors[of->n_rows] are borrowed, and must live as long. The type is that of
 * `of` if it is F32, F16 or BF16, else F16; encoded products are rounded to it, to nearest. Borrows `of`. Returns
 * NULL when out of memory, or for NULL. */
MUST_CHECK const struct row_source *row_scaled_new(struct arena *a, const struct row_source *of, const float *factors);

#endif
