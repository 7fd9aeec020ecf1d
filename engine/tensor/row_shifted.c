/* The difference is read once, when the source is created. */
#include "engine/tensor/row_shifted.h"

#include "engine/base/compiler.h"

#include <string.h>

struct row_shifted {
    struct row_source base;
    const struct row_source *of;
    float *shift; /* [n_in] */
};

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct row_shifted *h = (const void *)s;
    bool is_second = row >= h->of->n_rows;
    h->of->ops->read(h->of, is_second ? row - h->of->n_rows : row, from, n, out);
    for (uint32_t i = 0; is_second && i < n; i++) {
        out[i] += h->shift[from + i];
    }
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    enum { PIECE = ROW_SOURCE_MAX_GRAIN };
    float piece[PIECE];
    for (uint32_t row = 0; row < part->n_rows; row++) {
        unsigned char *to = (unsigned char *)out + row * stride;
        for (uint32_t at = 0, n; at < part->n_in; at += n) { /* a multiple of the grain at a time: it divides 256 */
            n = MIN_OF(part->n_in - at, (uint32_t)PIECE);
            read_row(s, part->row + row, part->from + at, n, piece);
            memcpy(to + at * sizeof *piece, piece, n * sizeof *piece);
        }
    }
}

/* Both halves read the same bytes: they are dropped with the second. */
static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct row_source *of = ((const struct row_shifted *)(const void *)s)->of;
    uint32_t first = MAX_OF(row, of->n_rows), end = row + n;
    if (first < end) {
        of->ops->done(of, first - of->n_rows, end - first, drop, arg);
    }
}

const struct row_source *row_shifted_new(struct arena *a, const struct row_source *of, const struct row_source *by)
{
    static const struct row_source_ops ops = {.read = read_row, .encode = encode_part, .done = rows_done};
    struct row_shifted *h = of != NULL && by != NULL ? arena_zalloc(a, sizeof *h) : NULL;
    float *shift = h != NULL ? arena_zalloc_array(a, 2 * (size_t)of->n_in, sizeof *shift) : NULL;
    if (shift == NULL) {
        return NULL;
    }
    float *first = shift + of->n_in;
    by->ops->read(by, 1, 0, of->n_in, shift);
    by->ops->read(by, 0, 0, of->n_in, first);
    for (uint32_t i = 0; i < of->n_in; i++) {
        shift[i] -= first[i];
    }
    h->base = row_source_of(&ops, DTYPE_F32, 2 * of->n_rows, of->n_in, of->grain);
    h->of = of;
    h->shift = shift;
    return &h->base;
}
