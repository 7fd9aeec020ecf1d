#include "engine/quant/row_factored.h"

#include "engine/quant/quant.h"

enum { BLOCKS_AT_ONCE = 16, PLAIN_BYTES = 36, FACTOR_BYTES = 4, SCALED_BYTES = FACTOR_BYTES + PLAIN_BYTES };

/* factors NULL: rows of `of` lose theirs. */
struct row_factored {
    struct row_source base;
    const struct row_source *of;
    const float *factors;
    uint32_t each;
};

static const struct row_factored *self_of(const struct row_source *s)
{
    return (const struct row_factored *)(const void *)s;
}

/* Encodes inputs [from, from + n) of one row. */
static void encode_row(const struct row_factored *r, uint32_t row, uint32_t from, uint32_t n, unsigned char *to)
{
    const uint32_t block = dtype_info(r->base.type)->block_elems;
    unsigned char room[BLOCKS_AT_ONCE * SCALED_BYTES];
    for (uint32_t end = from + n, here; from < end; from += here) {
        here = MIN_OF(end - from, BLOCKS_AT_ONCE * block);
        r->of->ops->encode(r->of, &(struct row_part){row, 1, from, here}, room, row_source_bytes(r->of, here));
        for (size_t i = 0; i < here / block; i++) {
            if (r->factors == NULL) {
                memcpy(to, room + i * SCALED_BYTES + FACTOR_BYTES, PLAIN_BYTES);
                to += PLAIN_BYTES;
            } else {
                memcpy(to, &r->factors[row / r->each], FACTOR_BYTES);
                memcpy(to + FACTOR_BYTES, room + i * PLAIN_BYTES, PLAIN_BYTES);
                to += SCALED_BYTES;
            }
        }
    }
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    for (uint32_t i = 0; i < part->n_rows; i++) {
        encode_row(self_of(s), part->row + i, part->from, part->n_in, (unsigned char *)out + i * stride);
    }
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const uint32_t block = dtype_info(s->type)->block_elems;
    unsigned char room[SCALED_BYTES];
    for (uint32_t at = 0; at < n; at += block) {
        encode_row(self_of(s), row, from + at, block, room);
        quant_ops(s->type)->dequantize(room, block, out + at);
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct row_source *of = self_of(s)->of;
    of->ops->done(of, row, n, drop, arg);
}

static const struct row_source *add(struct arena *a, const struct row_source *of, const float *factors, uint32_t each,
                                    enum dtype type)
{
    static const struct row_source_ops ops = {.read = read_row, .encode = encode_part, .done = rows_done};
    struct row_factored *r = arena_zalloc(a, sizeof *r);
    if (r == NULL) {
        return NULL;
    }
    r->base = row_source_of(&ops, type, of->n_rows, of->n_in, of->grain);
    r->of = of;
    r->factors = factors;
    r->each = each;
    return &r->base;
}

const struct row_source *row_factored_new(struct arena *a, const struct row_source *of, const float *factors,
                                          uint32_t each)
{
    return add(a, of, factors, each, DTYPE_NVFP4_SCALED);
}

const struct row_source *row_unfactored_new(struct arena *a, const struct row_source *of)
{
    return add(a, of, NULL, 1, DTYPE_NVFP4);
}

float row_factored_at(const struct row_source *of, uint32_t row)
{
    unsigned char room[SCALED_BYTES];
    float factor;
    of->ops->encode(of, &(struct row_part){row, 1, 0, dtype_info(of->type)->block_elems}, room, of->row_bytes);
    memcpy(&factor, room, sizeof factor);
    return factor;
}
