#include "engine/quant/row_mapped.h"

#include "engine/quant/quant.h"

static const unsigned char *place(const struct row_source *s, uint32_t row, uint32_t from)
{
    const struct row_mapped *m = (const struct row_mapped *)(const void *)s;
    return (const unsigned char *)m->data + row * s->row_bytes + row_source_bytes(s, from);
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    quant_ops(s->type)->dequantize(place(s, row, from), n, out);
}

static const void *at_part(const struct row_source *s, const struct row_part *part, uint64_t *stride)
{
    *stride = s->row_bytes;
    return place(s, part->row, part->from);
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    for (uint32_t i = 0; i < part->n_rows; i++) {
        memcpy((unsigned char *)out + i * stride, place(s, part->row + i, part->from),
               (size_t)row_source_bytes(s, part->n_in));
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    drop(arg, place(s, row, 0), n * s->row_bytes);
}

struct row_mapped row_mapped_of(enum dtype type, const void *data, uint32_t n_rows, uint32_t n_in)
{
    static const struct row_source_ops ops = {
        .read = read_row, .at = at_part, .encode = encode_part, .done = rows_done};
    return (struct row_mapped){row_source_of(&ops, type, n_rows, n_in, 1), data};
}

const struct row_source *row_mapped_new(struct arena *a, enum dtype type, const void *data, uint32_t n_rows,
                                        uint32_t n_in)
{
    struct row_mapped *m = arena_zalloc(a, sizeof *m);
    if (m == NULL) {
        return NULL;
    }
    *m = row_mapped_of(type, data, n_rows, n_in);
    return &m->base;
}
