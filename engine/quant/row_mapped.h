/* Rows stored contiguously, in a mapped file or elsewhere: the plain source. `read` dequantizes the type. Threads: as
 * row_source.h. */
#ifndef INFCGI_QUANT_ROW_MAPPED_H
#define INFCGI_QUANT_ROW_MAPPED_H

#include "engine/tensor/row_source.h"

struct row_mapped {
    struct row_source base;
    const void *data; /* borrowed; NULL for a source used only for its size */
};

/* Returns a source [n_rows][n_in] of any type; `read` requires a type of quant.h. Borrows data. */
struct row_mapped row_mapped_of(enum dtype type, const void *data, uint32_t n_rows, uint32_t n_in);

/* Like row_mapped_of(), but in an arena. Returns NULL when out of memory. */
MUST_CHECK const struct row_source *row_mapped_new(struct arena *a, enum dtype type, const void *data, uint32_t n_rows,
                                                   uint32_t n_in);

#endif
