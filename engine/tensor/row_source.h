/* Sources of the rows of a weight. Rows are stored in a file (engine/quant/row_mapped.h), selected from another source
 * (row_order.h), stacked from several (row_stack.h), transposed (row_turned.h), multiplied (row_scaled.h), or computed
 * on read: from codes and scales in separate tensors, or converted to another type at load. A source has a dtype, so
 * packing and computation do not know how weights are stored.
 *
 * Threads: sources are constant; any thread can call all functions. */
#ifndef INFCGI_TENSOR_ROW_SOURCE_H
#define INFCGI_TENSOR_ROW_SOURCE_H

#include "engine/base/mem.h"
#include "engine/tensor/dtype.h"

/* Upper bound of `grain`: the largest block. */
enum { ROW_SOURCE_MAX_GRAIN = 256 };

struct row_source {
    const struct row_source_ops *ops;
    enum dtype type; /* of encoded rows */
    uint32_t n_rows, n_in;
    /* Reads and encodes begin at a multiple of grain and cover a multiple of it, or end at the row's end. A multiple of
     * the type's block. */
    uint32_t grain;
    uint64_t row_bytes; /* of an encoded row */
};

/* Inputs [from, from + n_in) of rows [row, row + n_rows). */
struct row_part {
    uint32_t row, n_rows, from, n_in;
};

/* Receives bytes of the file that are no longer needed. */
typedef void row_drop_fn(void *arg, const void *data, uint64_t bytes);

struct row_source_ops {
    /* Writes out[n] = inputs [from, from + n) of row `row`, as float values. */
    void (*read)(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out);

    /* OPTIONAL: returns the address of the encoded part, whose rows are *stride bytes apart; NULL if it is not stored
     * so. */
    const void *(*at)(const struct row_source *s, const struct row_part *part, uint64_t *stride);

    /* Writes the part to `out` in the source's type, unaligned, rows `stride` bytes apart. The source's constructor
     * documents any rounding. Several rows per call are faster if the file stores columns together. */
    void (*encode)(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride);

    /* Calls drop for the bytes of rows [row, row + n), because they will not be read again, or to read them ahead.
     * Bytes that rows share come with the last row. */
    void (*done)(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg);
};

/* Returns the fields of a source. grain: that of the source it reads, 1 for none. */
struct row_source row_source_of(const struct row_source_ops *ops, enum dtype type, uint32_t n_rows, uint32_t n_in,
                                uint32_t grain);

/* Returns the bytes of n inputs of a row; n is in whole blocks. */
static inline uint64_t row_source_bytes(const struct row_source *s, uint32_t n)
{
    const struct dtype_info *info = dtype_info(s->type);
    return (uint64_t)(n / info->block_elems) * info->block_bytes;
}

/* Encodes whole rows [row, row + n) to `out`, contiguously. */
void row_source_encode(const struct row_source *s, uint32_t row, uint32_t n, void *out);

/* Returns encoded rows [row, row + n), *stride bytes apart: in place, or in room[n * row_bytes]. */
const void *row_source_rows(const struct row_source *s, uint32_t row, uint32_t n, void *room, uint64_t *stride);

#endif
