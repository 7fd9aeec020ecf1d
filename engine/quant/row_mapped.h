/* Rows that lie one behind the other, in a file's map or elsewhere: the plain source. `read` is what the type stands
 * for. Threads: as row_source.h. */
#ifndef INFCGI_QUANT_ROW_MAPPED_H
#define INFCGI_QUANT_ROW_MAPPED_H

#include "engine/tensor/row_source.h"

struct row_mapped {
    struct row_source base;
    const void *data; /* borrowed; NULL for a source of which only the size is asked */
};

/* [n_rows][n_in] of any type, of which `read` needs one of quant.h. */
struct row_mapped row_mapped_of(enum dtype type, const void *data, uint32_t n_rows, uint32_t n_in);

/* The same in an arena; NULL when out of memory. */
MUST_CHECK const struct row_source *row_mapped_new(struct arena *a, enum dtype type, const void *data, uint32_t n_rows,
                                                   uint32_t n_in);

#endif
