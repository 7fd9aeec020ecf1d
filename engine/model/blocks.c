/* Reads single hyper-parameters and binds tensors. */
#include "engine/model/blocks.h"

#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 128 };

enum err blocks_get_u32(const struct blocks *b, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                        uint32_t *out)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    uint64_t v = fallback;
    if (fallback == UINT64_MAX) {
        TRY(gguf_get_u64(b->g, full, &v, b->info));
    } else {
        TRY(gguf_get_u64_or(b->g, full, fallback, &v, b->info));
    }
    if (v < min || v > max) {
        return err_set(b->info, ERR_BAD_HPARAM, full, "%s: expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, full,
                       min, max, v);
    }
    *out = (uint32_t)v;
    return ERR_OK;
}

enum err blocks_get_f32(const struct blocks *b, const char *key, double min, double max, double fallback, float *out)
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    double v = fallback;
    if (isnan(fallback)) {
        TRY(gguf_get_f64(b->g, full, &v, b->info));
    } else {
        TRY(gguf_get_f64_or(b->g, full, fallback, &v, b->info));
    }
    if (!(v >= min && v <= max)) { /* also catches NaN */
        return err_set(b->info, ERR_BAD_HPARAM, full, "%s: expected %g to %g, found %g", full, min, max, v);
    }
    *out = (float)v;
    return ERR_OK;
}

enum err blocks_get_layers(const struct blocks *b, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                           uint32_t out[PLAN_MAX_LAYERS])
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    const struct gguf_kv *kv = gguf_find(b->g, full);
    if (kv == NULL || kv->type != GGUF_ARRAY) {
        TRY(blocks_get_u32(b, key, min, max, fallback, &out[0]));
        for (uint32_t i = 1; i < b->h.n_layers; i++) {
            out[i] = out[0];
        }
        return ERR_OK;
    }
    TRY(gguf_get_array(b->g, full, kv->elem_type == GGUF_U32 ? GGUF_U32 : GGUF_I32, &kv, b->info));
    if (kv->n != b->h.n_layers && kv->n != 1) {
        return err_set_at(b->info, ERR_BAD_HPARAM, kv->offset, "%s: expected %u elements, one a layer, found %" PRIu64,
                          full, b->h.n_layers, kv->n);
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        int64_t v = gguf_elem_i64(kv, kv->n == 1 ? 0 : i);
        if (v < 0 || (uint64_t)v < min || (uint64_t)v > max) {
            return err_set(b->info, ERR_BAD_HPARAM, full, "%s[%u]: expected %" PRIu64 " to %" PRIu64 ", found %" PRId64,
                           full, i, min, max, v);
        }
        out[i] = (uint32_t)v;
    }
    return ERR_OK;
}

enum err blocks_get_flags(const struct blocks *b, const char *key, bool *found, bool out[PLAN_MAX_LAYERS])
{
    char full[KEY_BYTES];
    snprintf(full, sizeof full, "%s.%s", b->arch, key);
    const struct gguf_kv *kv = gguf_find(b->g, full);
    *found = kv != NULL;
    if (kv == NULL) {
        return ERR_OK;
    }
    TRY(gguf_get_array(b->g, full, GGUF_BOOL, &kv, b->info));
    if (kv->n != b->h.n_layers) {
        return err_set_at(b->info, ERR_BAD_HPARAM, kv->offset, "%s: expected %u elements, one a layer, found %" PRIu64,
                          full, b->h.n_layers, kv->n);
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        out[i] = gguf_elem_i64(kv, i) != 0;
    }
    return ERR_OK;
}

enum err blocks_skip_attention(struct blocks *b)
{
    struct plan *p = b->plan;
    p->kvs = arena_zalloc(&p->arena, p->n_layers * sizeof *p->kvs);
    for (uint32_t i = 0; p->kvs != NULL && i < p->n_layers; i++) {
        p->kvs[i] = (struct plan_kv){.n_kv_heads = p->n_kv_heads,
                                     .head_dim = p->head_dim,
                                     .latent_dim = p->latent_dim,
                                     .layer = b->style.mixer[i] <= BLOCKS_LATENT ? (int32_t)i : PLAN_NONE};
    }
    return p->kvs != NULL ? ERR_OK : err_set(b->info, ERR_NOMEM, NULL, "out of memory for %u layers", p->n_layers);
}

/* Writes a tensor name with its layer number; the format is a constant of infcgi, never from the file. */
static void tensor_name(char *out, size_t cap, const char *name, int layer)
{
    const char *at = layer >= 0 ? strstr(name, "%d") : NULL;
    if (at == NULL) {
        snprintf(out, cap, "%s", name);
    } else {
        snprintf(out, cap, "%.*s%d%s", (int)(at - name), name, layer, at + 2);
    }
}

/* Finds the tensor of `rows` rows of `columns` elements. */
static enum err find(const struct blocks *b, const char *full, uint64_t columns, uint64_t rows, bool optional,
                     const struct gguf_tensor **out)
{
    const struct gguf_tensor *t = gguf_find_tensor(b->g, full);
    *out = t;
    if (t == NULL) {
        return optional ? ERR_OK
                        : err_set(b->info, ERR_MISSING_TENSOR, full,
                                  "%s: expected a tensor [%" PRIu64 ", %" PRIu64 "], found none", full, columns, rows);
    }
    if (t->dims[0] != columns || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, full,
                       "%s: expected [%" PRIu64 ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                       "]",
                       full, columns, rows, t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    }
    return ERR_OK;
}

static enum err not_f32(const struct blocks *b, const char *name, enum dtype found)
{
    return err_set(b->info, ERR_UNSUPPORTED_TYPE, name, "%s: expected F32, found %s", name, dtype_info(found)->name);
}

enum err blocks_read_vector(const struct blocks *b, plan_weight_id id, float *out)
{
    const struct plan_weight *w = &b->plan->weights[id];
    if (w->type != DTYPE_F32) {
        return not_f32(b, w->name, w->type);
    }
    w->source->ops->read(w->source, 0, 0, w->n_in, out);
    return ERR_OK;
}

uint64_t blocks_rows_of(const struct blocks *b, const char *name, int layer)
{
    char full[KEY_BYTES];
    tensor_name(full, sizeof full, name, layer);
    const struct gguf_tensor *t = gguf_find_tensor(b->g, full);
    return t == NULL ? 0 : t->dims[1];
}

enum err blocks_bind_part(struct blocks *b, const char *name, int layer, struct blocks_part part, uint32_t n_out,
                          uint32_t n_in, bool optional, plan_weight_id *id)
{
    char full[KEY_BYTES];
    tensor_name(full, sizeof full, name, layer);
    *id = PLAN_NONE;
    bool is_vector = n_out == 1;
    const struct gguf_tensor *t;
    TRY(find(b, full, is_vector ? part.n_all : n_in, is_vector ? 1 : part.n_all, optional, &t));
    if (t == NULL) {
        return ERR_OK;
    }
    const struct row_source *rows = t->source;
    if (part.n_all != (is_vector ? n_in : n_out)) {
        if (is_vector && (part.first % rows->grain != 0 || n_in % rows->grain != 0)) {
            return not_f32(b, full, t->type);
        }
        rows = (is_vector ? row_order_column_range : row_order_row_range)(&b->plan->arena, rows, part.first,
                                                                          is_vector ? n_in : n_out);
    }
    return plan_add_weight(b->plan, full, rows, id);
}

enum err blocks_bind(struct blocks *b, const char *name, int layer, uint32_t n_out, uint32_t n_in, bool optional,
                     plan_weight_id *id)
{
    struct blocks_part whole = {.n_all = n_out == 1 ? n_in : n_out};
    return blocks_bind_part(b, name, layer, whole, n_out, n_in, optional, id);
}

enum err blocks_bind_stack(struct blocks *b, const char *name, int layer, uint32_t n, uint32_t n_out, uint32_t n_in,
                           bool optional, plan_weight_id *id)
{
    char full[KEY_BYTES];
    tensor_name(full, sizeof full, name, layer);
    *id = PLAN_NONE;
    const uint64_t shape[2][3] = {{n_in, n_out, n}, {n_in, n, 1}};
    const uint64_t *want = shape[n_out == 1];
    const struct gguf_tensor *t = gguf_find_tensor(b->g, full);
    if (t == NULL && optional) {
        return ERR_OK;
    }
    if (t == NULL || memcmp(t->dims, want, sizeof *shape) != 0 || t->dims[3] != 1) {
        return err_set(b->info, t == NULL ? ERR_MISSING_TENSOR : ERR_BAD_TENSOR_SHAPE, full,
                       "%s: expected [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                       "]",
                       full, want[0], want[1], want[2], t == NULL ? 0 : t->dims[0], t == NULL ? 0 : t->dims[1],
                       t == NULL ? 0 : t->dims[2]);
    }
    uint64_t rows = n_out == 1 ? 1 : (uint64_t)n * n_out, columns = n_out == 1 ? (uint64_t)n * n_in : n_in;
    if (rows > UINT32_MAX || columns > UINT32_MAX) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, full, "%s: more than 2^32 rows", full);
    }
    const struct row_source *all = t->source;
    if (n_out == 1 && n != 1) {
        if (t->data == NULL) {
            return not_f32(b, full, t->type);
        }
        all = row_mapped_new(&b->plan->arena, t->type, t->data, 1, (uint32_t)columns);
    }
    return plan_add_weight(b->plan, full, all, id);
}
