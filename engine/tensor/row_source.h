/* Rows of a weight that are made when they are read: for tensors that lie in their file as no dtype describes (codes
 * and scales in tensors of their own, packed along columns, transposed), and for weights that become another type at
 * load. What a source gives has a dtype, so whoever packs or computes knows nothing of formats.
 *
 * Threads: sources are constant; all functions may be called from any thread. */
#ifndef INFCGI_TENSOR_ROW_SOURCE_H
#define INFCGI_TENSOR_ROW_SOURCE_H

#include <stdint.h>

/* Inputs are read in runs that begin at multiples of this. */
enum { ROW_SOURCE_RUN = 32 };

struct row_source {
    const struct row_source_ops *ops;
};

struct row_source_ops {
    /* out[n] = inputs [from, from + n) of row `row`, as the file means them. `from` is a multiple of ROW_SOURCE_RUN; n
     * is one too, or ends with the row. */
    void (*read)(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out);

    /* Rows [row, row + n) in the dtype of the tensor that has the source, one behind the other at out, unaligned. What
     * rounding that takes is said where the source is made. Several rows at once are quicker where the file keeps
     * columns together. */
    void (*encode)(const struct row_source *s, uint32_t row, uint32_t n, void *out);

    /* Rows [row, row + n) will not be read again: calls drop for bytes of the file that nothing else needs. Bytes that
     * rows share are dropped with the last row. */
    void (*done)(const struct row_source *s, uint32_t row, uint32_t n,
                 void (*drop)(void *arg, const void *data, uint64_t bytes), void *arg);
};

#endif
