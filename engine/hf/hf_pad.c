#include "engine/hf/hf_pad.h"

#include "engine/plan/plan.h"

#include <string.h>

/* A table whose rows behind the last one are row 0. */
struct padded {
    struct row_source base;
    const unsigned char *data;
    enum dtype type; /* F32, F16, BF16 */
    uint32_t n_rows;
    uint64_t row_bytes;
};

static const struct padded *padded_of(const struct row_source *s) { return (const struct padded *)(const void *)s; }

static const unsigned char *padded_row(const struct padded *p, uint32_t row)
{
    return p->data + (row < p->n_rows ? row : 0) * p->row_bytes;
}

static void read_padded(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct padded *p = padded_of(s);
    const unsigned char *at = padded_row(p, row) + (size_t)from * dtype_info(p->type)->block_bytes;
    uint16_t half;
    if (p->type == DTYPE_F32) {
        memcpy(out, at, n * sizeof *out);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&half, at + 2 * (size_t)i, sizeof half);
        out[i] = p->type == DTYPE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
    }
}

static void encode_padded(const struct row_source *s, uint32_t row, uint32_t n, void *out)
{
    const struct padded *p = padded_of(s);
    unsigned char *to = out;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to + i * p->row_bytes, padded_row(p, row + i), (size_t)p->row_bytes);
    }
}

static void padded_done(const struct row_source *s, uint32_t row, uint32_t n,
                        void (*drop)(void *arg, const void *data, uint64_t bytes), void *arg)
{
    const struct padded *p = padded_of(s);
    uint32_t end = MIN_OF(row + n, p->n_rows);
    row = MAX_OF(row, 1); /* the first is read again */
    if (row < end) {
        drop(arg, padded_row(p, row), (end - row) * p->row_bytes);
    }
}

static struct gguf_tensor *find(const struct hf *h, const char *name)
{
    for (size_t i = 0; i < h->b.n_tensors; i++) {
        struct gguf_tensor *t = &h->b.tensors[i];
        if (t->name.len == strlen(name) && memcmp(t->name.data, name, t->name.len) == 0) {
            return t;
        }
    }
    return NULL;
}

enum err hf_pad_table(struct hf *h, const char *name)
{
    static const struct row_source_ops ops = {.read = read_padded, .encode = encode_padded, .done = padded_done};
    struct gguf_tensor *t = find(h, name), *embd = find(h, "token_embd.weight");
    if (t == NULL || t->data == NULL || t->n_dims != 2 || embd == NULL || embd->dims[1] <= t->dims[1] ||
        embd->dims[1] > PLAN_MAX_VOCAB || t->dims[0] > PLAN_MAX_WIDTH) {
        return ERR_OK;
    }
    struct padded *p = arena_zalloc(&h->b.arena, sizeof *p);
    if (p == NULL) {
        return err_set(h->info, ERR_NOMEM, NULL, "out of memory for the tensor '%s'", name);
    }
    *p = (struct padded){.base = {&ops},
                         .data = t->data,
                         .type = t->type,
                         .n_rows = (uint32_t)t->dims[1],
                         .row_bytes = t->bytes / t->dims[1]};
    t->data = NULL;
    t->source = &p->base;
    t->dims[1] = embd->dims[1];
    t->bytes = t->dims[1] * p->row_bytes;
    return ERR_OK;
}
