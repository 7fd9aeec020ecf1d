#include "engine/tensor/row_turned.h"

enum { AT_ONCE = 16 }; /* columns transposed together: the rows of a panel */

struct row_turned {
    struct row_source base;
    const struct row_source *of;
};

/* Returns the source that s transposes. */
static const struct row_source *turned_of(const struct row_source *s)
{
    return ((const struct row_turned *)(const void *)s)->of;
}

/* Reads columns [c, c + n) of one row of the source, n <= AT_ONCE; returns their address in `room`. */
static const float *read_columns(const struct row_source *of, uint32_t row, uint32_t c, uint32_t n,
                                 float room[AT_ONCE + 2 * ROW_SOURCE_MAX_GRAIN])
{
    uint32_t first = c / of->grain * of->grain, end = (c + n + of->grain - 1) / of->grain * of->grain;
    of->ops->read(of, row, first, MIN_OF(end, of->n_in) - first, room);
    return room + (c - first);
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct row_source *of = turned_of(s);
    float room[AT_ONCE + 2 * ROW_SOURCE_MAX_GRAIN];
    uint32_t first = row / of->n_in * s->n_in + from;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = *read_columns(of, first + i, row % of->n_in, 1, room);
    }
}

/* Encodes up to AT_ONCE rows of one matrix. The source is read in whole blocks, so blocks of 256 are read 16 times;
 * only old files of latent attention have them. */
static void encode_some(const struct row_source *s, const struct row_part *part, unsigned char *out, uint64_t stride)
{
    const struct row_source *of = turned_of(s);
    float room[AT_ONCE + 2 * ROW_SOURCE_MAX_GRAIN];
    uint32_t first = part->row / of->n_in * s->n_in + part->from, bytes = dtype_info(s->type)->block_bytes;
    for (uint32_t k = 0; k < part->n_in; k++) {
        const float *v = read_columns(of, first + k, part->row % of->n_in, part->n_rows, room);
        for (uint32_t i = 0; i < part->n_rows; i++) {
            uint16_t half = s->type == DTYPE_F16 ? dtype_f32_to_f16(v[i]) : dtype_f32_to_bf16(v[i]);
            memcpy(out + i * stride + (size_t)k * bytes, s->type == DTYPE_F32 ? (const void *)&v[i] : &half, bytes);
        }
    }
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    struct row_part some = *part;
    uint32_t columns = turned_of(s)->n_in;
    for (uint32_t at = 0; at < part->n_rows; at += some.n_rows) {
        some.row = part->row + at;
        some.n_rows = MIN_OF(MIN_OF(part->n_rows - at, columns - some.row % columns), (uint32_t)AT_ONCE);
        encode_some(s, &some, (unsigned char *)out + at * stride, stride);
    }
}

/* A matrix is no longer needed after its last column. */
static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct row_source *of = turned_of(s);
    uint32_t first = row / of->n_in, end = (row + n) / of->n_in;
    if (first < end) {
        of->ops->done(of, first * s->n_in, (end - first) * s->n_in, drop, arg);
    }
}

const struct row_source *row_turned_new(struct arena *a, const struct row_source *of, uint32_t run, enum dtype type)
{
    static const struct row_source_ops ops = {.read = read_row, .encode = encode_part, .done = rows_done};
    struct row_turned *t = of != NULL ? arena_zalloc(a, sizeof *t) : NULL;
    if (t == NULL) {
        return NULL;
    }
    t->base = row_source_of(&ops, type, of->n_rows / run * of->n_in, run, 1);
    t->of = of;
    return &t->base;
}
