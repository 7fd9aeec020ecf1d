/* Rows of NVFP4 with a factor for each matrix: GGUF files have the factors in another tensor. Threads: as row_source.h. */
#ifndef INFCGI_QUANT_ROW_FACTORED_H
#define INFCGI_QUANT_ROW_FACTORED_H

#include "engine/tensor/row_source.h"

/* Factors with which every scale of a block fits a half, the largest ones to 2^-10; and 0. */
#define ROW_FACTORED_LEAST 0x1p-22f
#define ROW_FACTORED_MOST  0x1p8f

/* Returns rows [of->n_rows] of type NVFP4_SCALED. `of` is NVFP4, row r of it is multiplied by factors[r / each]. Borrows
 * `of` and factors. Returns NULL when out of memory. */
MUST_CHECK const struct row_source *row_factored_new(struct arena *a, const struct row_source *of, const float *factors,
                                                     uint32_t each);

/* The reverse, for a source of type NVFP4_SCALED: its rows without factors, of type NVFP4, and the factor of a row.
 * Borrows `of`. row_unfactored_new returns NULL when out of memory. */
MUST_CHECK const struct row_source *row_unfactored_new(struct arena *a, const struct row_source *of);
float row_factored_at(const struct row_source *of, uint32_t row);

#endif
