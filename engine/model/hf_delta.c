#include "engine/model/hf_delta.h"

#include "engine/plan/plan.h"
#include "engine/tensor/row_order.h"

#include <string.h>

/* Which of the file's is each of ours. */
struct tiles {
    struct hf *h;
    uint32_t n_k, n_v, key_dim, value_dim;
    const uint32_t *heads; /* [n_v] value heads */
    const uint32_t *gate;  /* [n_v] where their rows begin */
    const uint32_t *mixed; /* where runs of mixed_run rows begin, of q, k and values */
    uint32_t mixed_run, n_mixed;
};

static enum err no_memory(const struct hf *h)
{
    return err_set(h->info, ERR_NOMEM, NULL, "out of memory for the order of value heads");
}

static enum err find_order(struct tiles *t)
{
    struct hf *h = t->h;
    uint32_t each = t->n_v / t->n_k, keys = 2 * t->n_k * t->key_dim;
    t->mixed_run = row_order_run(keys, t->value_dim);
    t->n_mixed = (keys + t->n_v * t->value_dim) / t->mixed_run;
    uint32_t *heads = arena_alloc(&h->b.arena, t->n_v * sizeof *heads);
    uint32_t *gate = arena_alloc(&h->b.arena, t->n_v * sizeof *gate);
    uint32_t *mixed = arena_alloc(&h->b.arena, t->n_mixed * sizeof *mixed);
    if (heads == NULL || gate == NULL || mixed == NULL) {
        return no_memory(h);
    }
    for (uint32_t i = 0; i < t->n_v; i++) {
        heads[i] = i % t->n_k * each + i / t->n_k;
        gate[i] = heads[i] * t->value_dim;
    }
    for (uint32_t i = 0; i < t->n_mixed; i++) {
        uint32_t row = i * t->mixed_run, value = row < keys ? 0 : row - keys;
        mixed[i] = row < keys ? row : keys + gate[value / t->value_dim] + value % t->value_dim;
    }
    t->heads = heads;
    t->gate = gate;
    t->mixed = mixed;
    return ERR_OK;
}

/* Runs of `run` rows of so many floats in another order, in memory of the model. */
static enum err order_values(const struct tiles *t, struct gguf_tensor *of, const uint32_t *first, uint32_t run,
                             uint32_t n_runs, uint32_t width)
{
    float *out = arena_alloc(&t->h->b.arena, (size_t)of->bytes);
    if (out == NULL) {
        return no_memory(t->h);
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        memcpy(out + (size_t)i * run * width, (const float *)of->data + (size_t)first[i] * width,
               (size_t)run * width * sizeof *out);
    }
    of->data = out;
    return ERR_OK;
}

/* Rows, or with `columns` heads of inputs, in another order, made when they are read. */
static enum err order_rows(const struct tiles *t, struct gguf_tensor *of, const uint32_t *rows, uint32_t run,
                           const uint32_t *columns)
{
    struct row_order *o = arena_zalloc(&t->h->b.arena, sizeof *o);
    if (o == NULL) {
        return no_memory(t->h);
    }
    *o = (struct row_order){.base = {&row_order_ops},
                            .source = of->source,
                            .data = of->data,
                            .type = of->type,
                            .row_bytes = of->bytes / of->dims[1],
                            .n_in = (uint32_t)of->dims[0],
                            .rows = rows,
                            .row_run = run,
                            .columns = columns,
                            .column_run = t->value_dim};
    if (!row_order_is_valid(o)) {
        return err_set(t->h->info, ERR_UNSUPPORTED_TYPE, NULL,
                       "tensor '%.*s': expected value heads of whole blocks of 32, as it is quantised, found heads of "
                       "%u",
                       (int)MIN_OF(of->name.len, (size_t)200), of->name.data, t->value_dim);
    }
    of->source = &o->base;
    of->data = NULL;
    return ERR_OK;
}

static bool ends_with(struct gguf_str name, const char *end)
{
    size_t n = strlen(end);
    return name.len >= n && memcmp(name.data + name.len - n, end, n) == 0;
}

static bool is_shape(const struct gguf_tensor *t, uint64_t columns, uint64_t rows)
{
    bool fits_columns = columns == 0 ? t->dims[0] <= PLAN_MAX_WIDTH : t->dims[0] == columns;
    return fits_columns && (rows == 0 || t->dims[1] == rows) && t->dims[2] == 1 && t->pieces == NULL;
}

static enum err order_tensor(const struct tiles *t, struct gguf_tensor *of)
{
    uint32_t values = t->n_v * t->value_dim, mixed = t->n_mixed * t->mixed_run;
    if (ends_with(of->name, ".attn_qkv.weight") && is_shape(of, 0, mixed)) {
        return order_rows(t, of, t->mixed, t->mixed_run, NULL);
    }
    if (ends_with(of->name, ".attn_gate.weight") && is_shape(of, 0, values)) {
        return order_rows(t, of, t->gate, t->value_dim, NULL);
    }
    if ((ends_with(of->name, ".ssm_beta.weight") || ends_with(of->name, ".ssm_alpha.weight")) &&
        is_shape(of, 0, t->n_v)) {
        return order_rows(t, of, t->heads, 1, NULL);
    }
    if (ends_with(of->name, ".ssm_out.weight") && is_shape(of, values, 0)) {
        return order_rows(t, of, NULL, 0, t->heads);
    }
    bool is_f32 = of->type == DTYPE_F32 && of->source == NULL;
    if (ends_with(of->name, ".ssm_conv1d.weight") && is_f32 && is_shape(of, 0, mixed)) {
        return order_values(t, of, t->mixed, t->mixed_run, t->n_mixed, (uint32_t)of->dims[0]);
    }
    if ((ends_with(of->name, ".ssm_a") || ends_with(of->name, ".ssm_dt.bias")) && is_f32 && is_shape(of, t->n_v, 1)) {
        return order_values(t, of, t->heads, 1, t->n_v, 1);
    }
    return ERR_OK;
}

enum err hf_tile_value_heads(struct hf *h)
{
    struct tiles t = {.h = h};
    TRY(hf_get_u32(h, "linear_num_key_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &t.n_k));
    TRY(hf_get_u32(h, "linear_num_value_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &t.n_v));
    TRY(hf_get_u32(h, "linear_key_head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &t.key_dim));
    TRY(hf_get_u32(h, "linear_value_head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &t.value_dim));
    if (t.n_v % t.n_k != 0 || t.n_v == t.n_k) {
        return ERR_OK; /* refused by the builder; one order only */
    }
    TRY(find_order(&t));
    for (size_t i = 0; i < h->b.n_tensors; i++) {
        TRY(order_tensor(&t, &h->b.tensors[i]));
    }
    return ERR_OK;
}
