#include "engine/tensor/row_source.h"

struct row_source row_source_of(const struct row_source_ops *ops, enum dtype type, uint32_t n_rows, uint32_t n_in,
                                uint32_t grain)
{
    uint32_t block = dtype_info(type)->block_elems;
    struct row_source s = {.ops = ops, .type = type, .n_rows = n_rows, .n_in = n_in, .grain = MAX_OF(grain, block)};
    s.row_bytes = row_source_bytes(&s, n_in);
    return s;
}

void row_source_encode(const struct row_source *s, uint32_t row, uint32_t n, void *out)
{
    s->ops->encode(s, &(struct row_part){row, n, 0, s->n_in}, out, s->row_bytes);
}

const void *row_source_rows(const struct row_source *s, uint32_t row, uint32_t n, void *room, uint64_t *stride)
{
    const struct row_part part = {row, n, 0, s->n_in};
    const void *at = s->ops->at != NULL ? s->ops->at(s, &part, stride) : NULL;
    if (at != NULL) {
        return at;
    }
    *stride = s->row_bytes;
    s->ops->encode(s, &part, room, s->row_bytes);
    return room;
}
