/* Doubles a table: its rows, then the same rows plus the difference of two other rows, in float. So a token has two
 * embeddings, one for each text of a pair, without changes to the code that uses the table. Threads: as row_source.h. */
#ifndef INFCGI_TENSOR_ROW_SHIFTED_H
#define INFCGI_TENSOR_ROW_SHIFTED_H

#include "engine/tensor/row_source.h"

/* Returns [2 n][n_in] of F32 from [n][n_in]: row n + i = row i + (by's row 1 - by's row 0). `by` has two or more rows
 * with the same number of inputs. Sources are borrowed and outlive the result. Returns NULL when out of memory and for
 * a NULL source. */
MUST_CHECK const struct row_source *row_shifted_new(struct arena *a, const struct row_source *of,
                                                    const struct row_source *by);

#endif
