#include "engine/hf/hf_delta.h"

#include "engine/plan/plan.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96 };

/* Maps GGUF's order to the file's. */
struct tiles {
    struct hf *h;
    uint32_t n_k, n_v, key_dim, value_dim;
    uint32_t n_mixed; /* rows of q, k and values */
    /* Runs of rows: value heads, one row each; gates; q, k and values. */
    struct runs {
        uint32_t *first; /* [n] where each begins in the file */
        uint32_t n, run; /* runs, and rows of a run */
    } heads, gate, mixed;
};

/* Reads the heads' sizes from config.json; *has_order false: the builder rejects them. */
static enum err read_heads(struct hf *h, struct tiles *t, bool *has_order)
{
    *t = (struct tiles){.h = h};
    TRY(hf_get_u32(h, "linear_num_key_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &t->n_k));
    TRY(hf_get_u32(h, "linear_num_value_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &t->n_v));
    TRY(hf_get_u32(h, "linear_key_head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &t->key_dim));
    TRY(hf_get_u32(h, "linear_value_head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &t->value_dim));
    t->n_mixed = 2 * t->n_k * t->key_dim + t->n_v * t->value_dim;
    *has_order = t->n_v % t->n_k == 0;
    return ERR_OK;
}

/* Makes room for n runs. */
static enum err new_runs(struct hf *h, struct runs *r, uint32_t n, uint32_t run)
{
    *r = (struct runs){.first = arena_alloc(&h->b.arena, n * sizeof *r->first), .n = n, .run = run};
    TRY_MEM_FOR(r->first != NULL, h->info, "out of memory for the order of heads");
    return ERR_OK;
}

/* From the value heads of each key head in sequence to alternating ones. */
static enum err find_tiles(struct tiles *t)
{
    uint32_t each = t->n_v / t->n_k, keys = 2 * t->n_k * t->key_dim, run = row_order_run(keys, t->value_dim);
    TRY(new_runs(t->h, &t->heads, t->n_v, 1));
    TRY(new_runs(t->h, &t->gate, t->n_v, t->value_dim));
    TRY(new_runs(t->h, &t->mixed, t->n_mixed / run, run));
    for (uint32_t i = 0; i < t->n_v; i++) {
        t->heads.first[i] = i % t->n_k * each + i / t->n_k;
        t->gate.first[i] = t->heads.first[i] * t->value_dim;
    }
    for (uint32_t i = 0; i < t->mixed.n; i++) {
        uint32_t row = i * run, value = row < keys ? 0 : row - keys;
        t->mixed.first[i] = row < keys ? row : keys + t->gate.first[value / t->value_dim] + value % t->value_dim;
    }
    return ERR_OK;
}

/* From q, k, values and gates per key head to all q, all k, all values; and all gates. */
static enum err find_parts(struct tiles *t)
{
    uint32_t v = t->n_v / t->n_k * t->value_dim, group = 2 * (t->key_dim + v), keys = t->n_k * t->key_dim;
    uint32_t run = row_order_run(t->key_dim, v);
    TRY(new_runs(t->h, &t->gate, t->n_k, v));
    TRY(new_runs(t->h, &t->mixed, t->n_mixed / run, run));
    for (uint32_t i = 0; i < t->n_k; i++) {
        t->gate.first[i] = i * group + 2 * t->key_dim + v;
    }
    for (uint32_t i = 0; i < t->mixed.n; i++) {
        uint32_t row = i * run, in_keys = row % keys, value = row < 2 * keys ? 0 : row - 2 * keys;
        t->mixed.first[i] = row < 2 * keys
                                ? in_keys / t->key_dim * group + row / keys * t->key_dim + in_keys % t->key_dim
                                : t->gate.first[value / v] - v + value % v;
    }
    return ERR_OK;
}

/* Reorders rows of `width` floats in the model's memory. */
static enum err order_values(const struct tiles *t, struct gguf_tensor *of, const struct runs *r, uint32_t width)
{
    float *out = arena_alloc(&t->h->b.arena, (size_t)of->bytes);
    for (uint32_t i = 0; out != NULL && i < r->n; i++) {
        memcpy(out + (size_t)i * r->run * width, (const float *)of->data + (size_t)r->first[i] * width,
               (size_t)r->run * width * sizeof *out);
    }
    of->data = out;
    of->source = row_mapped_new(&t->h->b.arena, DTYPE_F32, out, (uint32_t)of->dims[1], (uint32_t)of->dims[0]);
    TRY_MEM_FOR(out != NULL && of->source != NULL, t->h->info, "out of memory for the order of heads");
    return ERR_OK;
}

/* Reorders rows when they are read. */
static enum err order_rows(const struct tiles *t, struct gguf_tensor *of, const struct runs *r)
{
    struct gguf_build *b = &t->h->b;
    gguf_build_rows(b, of, row_order_rows(&b->arena, of->source, r->first, r->n, r->run), 1);
    return ERR_OK;
}

/* Reorders inputs, per head. */
static enum err order_columns(const struct tiles *t, struct gguf_tensor *of)
{
    struct gguf_build *b = &t->h->b;
    if (t->value_dim % of->source->grain != 0) {
        return err_set(t->h->info, ERR_UNSUPPORTED_TYPE, NULL,
                       "tensor '%.*s': expected value heads of whole blocks of %u, as it is quantised, found heads of "
                       "%u",
                       (int)MIN_OF(of->name.len, (size_t)200), of->name.data, of->source->grain, t->value_dim);
    }
    gguf_build_rows(b, of, row_order_columns(&b->arena, of->source, t->gate.first, t->n_v, t->value_dim), 1);
    return ERR_OK;
}

static bool is_shape(const struct gguf_tensor *t, uint64_t columns, uint64_t rows)
{
    bool fits_columns = columns == 0 ? t->dims[0] <= PLAN_MAX_WIDTH : t->dims[0] == columns;
    return fits_columns && (rows == 0 || t->dims[1] == rows) && t->dims[2] == 1;
}

static enum err order_tensor(const struct tiles *t, struct gguf_tensor *of)
{
    uint32_t values = t->n_v * t->value_dim;
    if (gguf_str_ends(of->name, ".attn_qkv.weight") && is_shape(of, 0, t->n_mixed)) {
        return order_rows(t, of, &t->mixed);
    }
    if (gguf_str_ends(of->name, ".attn_gate.weight") && is_shape(of, 0, values)) {
        return order_rows(t, of, &t->gate);
    }
    if ((gguf_str_ends(of->name, ".ssm_beta.weight") || gguf_str_ends(of->name, ".ssm_alpha.weight")) &&
        is_shape(of, 0, t->n_v)) {
        return order_rows(t, of, &t->heads);
    }
    if (gguf_str_ends(of->name, ".ssm_out.weight") && is_shape(of, values, 0)) {
        return order_columns(t, of);
    }
    bool is_f32 = of->type == DTYPE_F32 && of->data != NULL;
    if (gguf_str_ends(of->name, ".ssm_conv1d.weight") && is_f32 && is_shape(of, 0, t->n_mixed)) {
        return order_values(t, of, &t->mixed, (uint32_t)of->dims[0]);
    }
    if ((gguf_str_ends(of->name, ".ssm_a") || gguf_str_ends(of->name, ".ssm_dt.bias")) && is_f32 &&
        is_shape(of, t->n_v, 1)) {
        return order_values(t, of, &t->heads, 1);
    }
    return ERR_OK;
}

enum err hf_tile_value_heads(struct hf *h)
{
    struct tiles t;
    bool has_order;
    TRY(read_heads(h, &t, &has_order));
    if (!has_order || t.n_v == t.n_k) {
        return ERR_OK;
    }
    TRY(find_tiles(&t));
    for (size_t i = 0; i < h->b.n_tensors; i++) {
        TRY(order_tensor(&t, &h->b.tensors[i]));
    }
    return ERR_OK;
}

/* Splits h's tensor i, which holds both: adds attn_gate, and keeps the rest. */
static enum err split_tensor(const struct tiles *t, size_t i)
{
    static const char end[] = "attn_qkv.weight";
    struct gguf_build *b = &t->h->b;
    struct gguf_tensor gate = b->tensors[i];
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.*sattn_gate.weight", (int)MIN_OF(gate.name.len - (sizeof end - 1), (size_t)64),
             gate.name.data);
    TRY(order_rows(t, &b->tensors[i], &t->mixed));
    TRY(order_rows(t, &gate, &t->gate));
    gguf_build_tensor(b, name, &gate);
    return ERR_OK;
}

enum err hf_split_key_heads(struct hf *h)
{
    struct tiles t;
    bool has_order;
    TRY(read_heads(h, &t, &has_order));
    if (!has_order) {
        return ERR_OK;
    }
    TRY(find_parts(&t));
    size_t n = h->b.n_tensors;
    uint64_t all = (uint64_t)t.n_mixed + (uint64_t)t.n_v * t.value_dim;
    for (size_t i = 0; i < n; i++) {
        if (gguf_str_ends(h->b.tensors[i].name, ".attn_qkv.weight") && is_shape(&h->b.tensors[i], 0, all)) {
            TRY(split_tensor(&t, i));
        }
    }
    return ERR_OK;
}
