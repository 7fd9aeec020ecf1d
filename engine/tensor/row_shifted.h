/* A table twice: its rows, and behind them the same rows with the difference of two other rows added, in float. So
 * tokens have two embeddings, one for each text of a pair, and whatever computes with a table need not know of it.
 * Threads: as row_source.h. */
#ifndef INFCGI_TENSOR_ROW_SHIFTED_H
#define INFCGI_TENSOR_ROW_SHIFTED_H

#include "engine/tensor/row_source.h"

/* [2 n][n_in] of F32, of [n][n_in]: row n + i = row i + (by's row 1 - by's row 0). `by` has at least two rows of as many
 * inputs. Sources are borrowed and outlive it. NULL when out of memory, and for a NULL source. */
MUST_CHECK const struct row_source *row_shifted_new(struct arena *a, const struct row_source *of,
                                                    const struct row_source *by);

#endif
