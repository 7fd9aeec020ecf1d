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
    uint32_t n_mixed;      /* rows of q, k and values */
    const uint32_t *heads; /* [n_v] value heads */
    const uint32_t *gate;  /* where runs of gate_run gate rows begin */
    const uint32_t *mixed; /* where runs of mixed_run rows of q, k and values begin */
    uint32_t gate_run, mixed_run;
};

static enum err no_memory(const struct hf *h)
{
    return err_set(h->info, ERR_NOMEM, NULL, "out of memory for the order of heads");
}

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

/* From the value heads of each key head in sequence to alternating ones. */
static enum err find_tiles(struct tiles *t)
{
    struct hf *h = t->h;
    uint32_t each = t->n_v / t->n_k, keys = 2 * t->n_k * t->key_dim;
    t->gate_run = t->value_dim;
    t->mixed_run = row_order_run(keys, t->value_dim);
    uint32_t n_runs = t->n_mixed / t->mixed_run;
    uint32_t *heads = arena_alloc(&h->b.arena, t->n_v * sizeof *heads);
    uint32_t *gate = arena_alloc(&h->b.arena, t->n_v * sizeof *gate);
    uint32_t *mixed = arena_alloc(&h->b.arena, n_runs * sizeof *mixed);
    if (heads == NULL || gate == NULL || mixed == NULL) {
        return no_memory(h);
    }
    for (uint32_t i = 0; i < t->n_v; i++) {
        heads[i] = i % t->n_k * each + i / t->n_k;
        gate[i] = heads[i] * t->value_dim;
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        uint32_t row = i * t->mixed_run, value = row < keys ? 0 : row - keys;
        mixed[i] = row < keys ? row : keys + gate[value / t->value_dim] + value % t->value_dim;
    }
    t->heads = heads;
    t->gate = gate;
    t->mixed = mixed;
    return ERR_OK;
}

/* From q, k, values and gates per key head to all q, all k, all values; and all gates. */
static enum err find_parts(struct tiles *t)
{
    struct hf *h = t->h;
    uint32_t v = t->n_v / t->n_k * t->value_dim, group = 2 * (t->key_dim + v), keys = t->n_k * t->key_dim;
    t->gate_run = v;
    t->mixed_run = row_order_run(t->key_dim, v);
    uint32_t n_runs = t->n_mixed / t->mixed_run;
    uint32_t *gate = arena_alloc(&h->b.arena, t->n_k * sizeof *gate);
    uint32_t *mixed = arena_alloc(&h->b.arena, n_runs * sizeof *mixed);
    if (gate == NULL || mixed == NULL) {
        return no_memory(h);
    }
    for (uint32_t i = 0; i < t->n_k; i++) {
        gate[i] = i * group + 2 * t->key_dim + v;
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        uint32_t row = i * t->mixed_run, in_keys = row % keys, value = row < 2 * keys ? 0 : row - 2 * keys;
        mixed[i] = row < 2 * keys ? in_keys / t->key_dim * group + row / keys * t->key_dim + in_keys % t->key_dim
                                  : gate[value / v] - v + value % v;
    }
    t->gate = gate;
    t->mixed = mixed;
    return ERR_OK;
}

/* Reorders runs of `run` rows of `width` floats, in the model's memory. */
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
    of->source = row_mapped_new(&t->h->b.arena, DTYPE_F32, out, (uint32_t)of->dims[1], (uint32_t)of->dims[0]);
    return of->source != NULL ? ERR_OK : no_memory(t->h);
}

/* Reorders n_runs runs of `run` rows that begin at first[], when they are read. */
static void order_rows(const struct tiles *t, struct gguf_tensor *of, const uint32_t *first, uint32_t n_runs,
                       uint32_t run)
{
    struct gguf_build *b = &t->h->b;
    gguf_build_rows(b, of, row_order_rows(&b->arena, of->source, first, n_runs, run), 1);
}

/* The same for inputs, per head. */
static enum err order_columns(const struct tiles *t, struct gguf_tensor *of)
{
    struct gguf_build *b = &t->h->b;
    if (t->value_dim % of->source->grain != 0) {
        return err_set(t->h->info, ERR_UNSUPPORTED_TYPE, NULL,
                       "tensor '%.*s': expected value heads of whole blocks of %u, as it is quantised, found heads of "
                       "%u",
                       (int)MIN_OF(of->name.len, (size_t)200), of->name.data, of->source->grain, t->value_dim);
    }
    gguf_build_rows(b, of, row_order_columns(&b->arena, of->source, t->gate, t->n_v, t->value_dim), 1);
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
    return fits_columns && (rows == 0 || t->dims[1] == rows) && t->dims[2] == 1;
}

static enum err order_tensor(const struct tiles *t, struct gguf_tensor *of)
{
    uint32_t values = t->n_v * t->value_dim;
    if (ends_with(of->name, ".attn_qkv.weight") && is_shape(of, 0, t->n_mixed)) {
        order_rows(t, of, t->mixed, t->n_mixed / t->mixed_run, t->mixed_run);
        return ERR_OK;
    }
    if (ends_with(of->name, ".attn_gate.weight") && is_shape(of, 0, values)) {
        order_rows(t, of, t->gate, t->n_v, t->gate_run);
        return ERR_OK;
    }
    if ((ends_with(of->name, ".ssm_beta.weight") || ends_with(of->name, ".ssm_alpha.weight")) &&
        is_shape(of, 0, t->n_v)) {
        order_rows(t, of, t->heads, t->n_v, 1);
        return ERR_OK;
    }
    if (ends_with(of->name, ".ssm_out.weight") && is_shape(of, values, 0)) {
        return order_columns(t, of);
    }
    bool is_f32 = of->type == DTYPE_F32 && of->data != NULL;
    if (ends_with(of->name, ".ssm_conv1d.weight") && is_f32 && is_shape(of, 0, t->n_mixed)) {
        return order_values(t, of, t->mixed, t->mixed_run, t->n_mixed / t->mixed_run, (uint32_t)of->dims[0]);
    }
    if ((ends_with(of->name, ".ssm_a") || ends_with(of->name, ".ssm_dt.bias")) && is_f32 && is_shape(of, t->n_v, 1)) {
        return order_values(t, of, t->heads, 1, t->n_v, 1);
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
static void split_tensor(const struct tiles *t, size_t i)
{
    static const char end[] = "attn_qkv.weight";
    struct gguf_build *b = &t->h->b;
    struct gguf_tensor gate = b->tensors[i];
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.*sattn_gate.weight", (int)MIN_OF(gate.name.len - (sizeof end - 1), (size_t)64),
             gate.name.data);
    order_rows(t, &b->tensors[i], t->mixed, t->n_mixed / t->mixed_run, t->mixed_run);
    order_rows(t, &gate, t->gate, t->n_k, t->gate_run);
    gguf_build_tensor(b, name, &gate);
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
        if (ends_with(h->b.tensors[i].name, ".attn_qkv.weight") && is_shape(&h->b.tensors[i], 0, all)) {
            split_tensor(&t, i);
        }
    }
    return ERR_OK;
}
