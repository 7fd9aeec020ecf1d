#include "engine/tensor/row_scaled.h"

#include <string.h>

enum { AT_ONCE = ROW_SOURCE_MAX_GRAIN };

struct row_scaled {
    struct row_source base;
    const struct row_source *of;
    const float *factors;
};

static const struct row_scaled *self_of(const struct row_source *s)
{
    return (const struct row_scaled *)(const void *)s;
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct row_scaled *r = self_of(s);
    r->of->ops->read(r->of, row, from, n, out);
    for (uint32_t i = 0; i < n; i++) {
        out[i] *= r->factors[row];
    }
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    float room[AT_ONCE];
    uint32_t bytes = dtype_info(s->type)->block_bytes;
    for (uint32_t row = 0; row < part->n_rows; row++) {
        for (uint32_t at = 0, n; at < part->n_in; at += n) {
            n = MIN_OF(part->n_in - at, (uint32_t)AT_ONCE);
            read_row(s, part->row + row, part->from + at, n, room);
            unsigned char *to = (unsigned char *)out + row * stride + (uint64_t)at * bytes;
            for (uint32_t i = 0; i < n; i++) {
                uint16_t half = s->type == DTYPE_F16 ? dtype_f32_to_f16(room[i]) : dtype_f32_to_bf16(room[i]);
                memcpy(to + (size_t)i * bytes, s->type == DTYPE_F32 ? (const void *)&room[i] : &half, bytes);
            }
        }
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct row_source *of = self_of(s)->of;
    of->ops->done(of, row, n, drop, arg);
}

const struct row_source *row_scaled_new(struct arena *a, const struct row_source *of, const float *factors)
{
    static const struct row_source_ops ops = {.read = read_row, .encode = encode_part, .done = rows_done};
    struct row_scaled *r = of != NULL && factors != NULL ? arena_zalloc(a, sizeof *r) : NULL;
    if (r == NULL) {
        return NULL;
    }
    bool is_float = of->type == DTYPE_F32 || of->type == DTYPE_F16 || of->type == DTYPE_BF16;
    r->base = row_source_of(&ops, is_float ? of->type : DTYPE_F16, of->n_rows, of->n_in, of->grain);
    r->of = of;
    r->factors = factors;
    return &r->base;
}
