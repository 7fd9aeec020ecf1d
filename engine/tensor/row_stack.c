#include "engine/tensor/row_stack.h"

struct row_stack {
    struct row_source base;
    const struct row_source *const *parts;
};

/* Returns the part that has row `row` and makes *row an index in that part. Limits *n to the rows in the part from
 * there on. */
static const struct row_source *part_of(const struct row_source *s, uint32_t *row, uint32_t *n)
{
    const struct row_stack *stack = (const struct row_stack *)(const void *)s;
    uint32_t each = stack->parts[0]->n_rows;
    const struct row_source *part = stack->parts[*row / each];
    *row %= each;
    *n = MIN_OF(*n, each - *row);
    return part;
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    uint32_t one = 1;
    const struct row_source *part = part_of(s, &row, &one);
    part->ops->read(part, row, from, n, out);
}

static const void *at_part(const struct row_source *s, const struct row_part *wanted, uint64_t *stride)
{
    struct row_part there = *wanted;
    const struct row_source *part = part_of(s, &there.row, &there.n_rows);
    return there.n_rows == wanted->n_rows && part->ops->at != NULL ? part->ops->at(part, &there, stride) : NULL;
}

static void encode_part(const struct row_source *s, const struct row_part *wanted, void *out, uint64_t stride)
{
    struct row_part there = *wanted;
    for (uint32_t at = 0; at < wanted->n_rows; at += there.n_rows) {
        there.row = wanted->row + at;
        there.n_rows = wanted->n_rows - at;
        const struct row_source *part = part_of(s, &there.row, &there.n_rows);
        part->ops->encode(part, &there, (unsigned char *)out + at * stride, stride);
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    for (uint32_t end = row + n, here; row < end; row += here) {
        uint32_t in_part = row;
        here = end - row;
        const struct row_source *part = part_of(s, &in_part, &here);
        part->ops->done(part, in_part, here, drop, arg);
    }
}

const struct row_source *row_stack_new(struct arena *a, const struct row_source *const *parts, uint32_t n)
{
    static const struct row_source_ops ops = {
        .read = read_row, .at = at_part, .encode = encode_part, .done = rows_done};
    struct row_stack *s = arena_zalloc(a, sizeof *s);
    const struct row_source **copy = arena_alloc(a, n * sizeof *copy);
    if (s == NULL || copy == NULL) {
        return NULL;
    }
    memcpy(copy, parts, n * sizeof *copy);
    s->base = row_source_of(&ops, parts[0]->type, parts[0]->n_rows * n, parts[0]->n_in, parts[0]->grain);
    s->parts = copy;
    return &s->base;
}
