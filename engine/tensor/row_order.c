#include "engine/tensor/row_order.h"

#include "engine/base/compiler.h"

/* Where the elements of one axis are in the other source: runs of `run` that start at first[], or without `first`
 * contiguous elements that start at `from`. */
struct axis {
    const uint32_t *first;
    uint32_t run, from;
};

struct row_order {
    struct row_source base;
    const struct row_source *of;
    struct axis rows, columns;
};

uint32_t row_order_run(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint32_t place(const struct axis *a, uint32_t i)
{
    return a->first != NULL ? a->first[i / a->run] + i % a->run : a->from + i;
}

/* Returns how many of [i, i + n), from i on, are contiguous in the source. */
static uint32_t count_together(const struct axis *a, uint32_t i, uint32_t n)
{
    uint32_t count = a->first != NULL ? a->run - i % a->run : n;
    while (count < n && place(a, i + count) == place(a, i) + count) {
        count += a->run;
    }
    return MIN_OF(count, n);
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct row_order *o = (const void *)s;
    for (uint32_t end = from + n, here; from < end; from += here, out += here) {
        here = count_together(&o->columns, from, end - from);
        o->of->ops->read(o->of, place(&o->rows, row), place(&o->columns, from), here, out);
    }
}

static const void *at_part(const struct row_source *s, const struct row_part *part, uint64_t *stride)
{
    const struct row_order *o = (const void *)s;
    if (o->of->ops->at == NULL || count_together(&o->rows, part->row, part->n_rows) != part->n_rows ||
        count_together(&o->columns, part->from, part->n_in) != part->n_in) {
        return NULL;
    }
    const struct row_part there = {place(&o->rows, part->row), part->n_rows, place(&o->columns, part->from),
                                   part->n_in};
    return o->of->ops->at(o->of, &there, stride);
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    const struct row_order *o = (const void *)s;
    uint32_t n_rows, n_in;
    for (uint32_t row = 0; row < part->n_rows; row += n_rows) {
        n_rows = count_together(&o->rows, part->row + row, part->n_rows - row);
        for (uint32_t in = 0; in < part->n_in; in += n_in) {
            n_in = count_together(&o->columns, part->from + in, part->n_in - in);
            const struct row_part there = {place(&o->rows, part->row + row), n_rows,
                                           place(&o->columns, part->from + in), n_in};
            o->of->ops->encode(o->of, &there, (unsigned char *)out + row * stride + row_source_bytes(s, in), stride);
        }
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct row_order *o = (const void *)s;
    for (uint32_t end = row + n, here; row < end; row += here) {
        here = count_together(&o->rows, row, end - row);
        o->of->ops->done(o->of, place(&o->rows, row), here, drop, arg);
    }
}

/* Makes n rows, or with is_columns n inputs, of another source. */
static const struct row_source *add(struct arena *a, const struct row_source *of, bool is_columns, uint32_t n,
                                    struct axis axis)
{
    static const struct row_source_ops ops = {
        .read = read_row, .at = at_part, .encode = encode_part, .done = rows_done};
    struct row_order *o = of != NULL ? arena_zalloc(a, sizeof *o) : NULL;
    if (o == NULL) {
        return NULL;
    }
    o->base = row_source_of(&ops, of->type, is_columns ? of->n_rows : n, is_columns ? n : of->n_in, of->grain);
    o->of = of;
    *(is_columns ? &o->columns : &o->rows) = axis;
    return &o->base;
}

const struct row_source *row_order_rows(struct arena *a, const struct row_source *of, const uint32_t *first,
                                        uint32_t n_runs, uint32_t run)
{
    return first != NULL ? add(a, of, false, n_runs * run, (struct axis){.first = first, .run = run}) : NULL;
}

const struct row_source *row_order_columns(struct arena *a, const struct row_source *of, const uint32_t *first,
                                           uint32_t n_runs, uint32_t run)
{
    return first != NULL ? add(a, of, true, n_runs * run, (struct axis){.first = first, .run = run}) : NULL;
}

const struct row_source *row_order_row_range(struct arena *a, const struct row_source *of, uint32_t first, uint32_t n)
{
    return add(a, of, false, n, (struct axis){.from = first});
}

const struct row_source *row_order_column_range(struct arena *a, const struct row_source *of, uint32_t first,
                                                uint32_t n)
{
    return add(a, of, true, n, (struct axis){.from = first});
}
