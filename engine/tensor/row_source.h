/* Where the rows of a weight come from. They may lie in a file as they are (engine/quant/row_mapped.h), be some of
 * another source's (row_order.h), those of several (row_stack.h), columns of one (row_turned.h), or be made when they
 * are read: of codes and scales in tensors of their own, or of another type at load. What a source gives has a dtype,
 * so whoever packs or computes knows nothing of how weights are stored.
 *
 * Threads: sources are constant; all functions may be called from any thread. */
#ifndef INFCGI_TENSOR_ROW_SOURCE_H
#define INFCGI_TENSOR_ROW_SOURCE_H

#include "engine/base/mem.h"
#include "engine/tensor/dtype.h"

/* Most that a source's `grain` is: the largest block. */
enum { ROW_SOURCE_MAX_GRAIN = 256 };

struct row_source {
    const struct row_source_ops *ops;
    enum dtype type; /* of encoded rows */
    uint32_t n_rows, n_in;
    /* Inputs are read and encoded from multiples of this on, so many or a multiple at a time, or up to the row's end; a
     * multiple of the type's block. */
    uint32_t grain;
    uint64_t row_bytes; /* of an encoded row */
};

/* Inputs [from, from + n_in) of rows [row, row + n_rows). */
struct row_part {
    uint32_t row, n_rows, from, n_in;
};

/* Told of bytes of the file that nothing else needs. */
typedef void row_drop_fn(void *arg, const void *data, uint64_t bytes);

struct row_source_ops {
    /* out[n] = inputs [from, from + n) of row `row`, as the file means them. */
    void (*read)(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out);

    /* OPTIONAL: where the encoded part lies, one row *stride bytes behind the other; NULL when it does not lie so. */
    const void *(*at)(const struct row_source *s, const struct row_part *part, uint64_t *stride);

    /* The part in the source's type to `out`, unaligned, one row `stride` bytes behind the other. What rounding that
     * takes is said where the source is made. Several rows at once are quicker where the file keeps columns together.
     */
    void (*encode)(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride);

    /* Rows [row, row + n) will not be read again: calls drop. Bytes that rows share are dropped with the last row. */
    void (*done)(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg);
};

/* The fields of a source; grain: that of whatever it reads, 1 for none. */
struct row_source row_source_of(const struct row_source_ops *ops, enum dtype type, uint32_t n_rows, uint32_t n_in,
                                uint32_t grain);

/* Bytes of n inputs, whole blocks, of a row. */
static inline uint64_t row_source_bytes(const struct row_source *s, uint32_t n)
{
    const struct dtype_info *info = dtype_info(s->type);
    return (uint64_t)(n / info->block_elems) * info->block_bytes;
}

/* Whole rows [row, row + n) encoded to `out`, one behind the other. */
void row_source_encode(const struct row_source *s, uint32_t row, uint32_t n, void *out);

/* Whole rows [row, row + n), encoded: where they lie, or in room[n * row_bytes]; *stride bytes apart. */
const void *row_source_rows(const struct row_source *s, uint32_t row, uint32_t n, void *room, uint64_t *stride);

#endif
