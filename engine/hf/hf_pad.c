#include "engine/hf/hf_pad.h"

#include "engine/plan/plan.h"
#include "engine/tensor/row_order.h"

#include <string.h>

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
    struct gguf_tensor *t = find(h, name), *embd = find(h, "token_embd.weight");
    if (t == NULL || t->data == NULL || t->n_dims != 2 || embd == NULL || embd->dims[1] <= t->dims[1] ||
        embd->dims[1] > PLAN_MAX_VOCAB || t->dims[0] > PLAN_MAX_WIDTH) {
        return ERR_OK;
    }
    uint32_t *rows = arena_alloc(&h->b.arena, (size_t)embd->dims[1] * sizeof *rows);
    for (uint32_t i = 0; rows != NULL && i < embd->dims[1]; i++) {
        rows[i] = i < t->dims[1] ? i : 0;
    }
    gguf_build_rows(&h->b, t, row_order_rows(&h->b.arena, t->source, rows, (uint32_t)embd->dims[1], 1), 1);
    return ERR_OK;
}
