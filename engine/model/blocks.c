/* Reads single hyper-parameters and binds tensors. */
#include "engine/model/blocks.h"

#include "engine/model/model_nearest.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 128 };

const char *blocks_key(const struct blocks *b, const char *key, char room[BLOCKS_KEY_BYTES])
{
    snprintf(room, BLOCKS_KEY_BYTES, "%s.%s", b->arch, key);
    if (b->probe != NULL) {
        model_probe_key(b->probe, room);
    }
    return room;
}

enum err blocks_expect(const struct blocks *b, bool fits, const char *key, const char *fmt, ...)
{
    char room[BLOCKS_KEY_BYTES], text[ERR_TEXT_BYTES];
    va_list args;
    if (fits) {
        return ERR_OK;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    blocks_key(b, key, room);
    return err_set(b->info, ERR_BAD_HPARAM, room, "%s: %s", room, text);
}

bool blocks_has_key(const struct blocks *b, const char *key)
{
    char room[BLOCKS_KEY_BYTES];
    return gguf_find(b->g, blocks_key(b, key, room)) != NULL;
}

enum err blocks_get_bool(const struct blocks *b, const char *key, bool fallback, bool *out)
{
    char room[BLOCKS_KEY_BYTES];
    return gguf_get_bool_or(b->g, blocks_key(b, key, room), fallback, out, b->info);
}

enum err blocks_get_u32(const struct blocks *b, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                        uint32_t *out)
{
    char room[BLOCKS_KEY_BYTES];
    const char *full = blocks_key(b, key, room);
    uint64_t v = fallback;
    TRY(fallback == UINT64_MAX ? gguf_get_u64(b->g, full, &v, b->info)
                               : gguf_get_u64_or(b->g, full, fallback, &v, b->info));
    TRY(blocks_expect(b, v >= min && v <= max, key, "expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, min, max,
                      v));
    *out = (uint32_t)v;
    return ERR_OK;
}

enum err blocks_get_f32(const struct blocks *b, const char *key, double min, double max, double fallback, float *out)
{
    char room[BLOCKS_KEY_BYTES];
    const char *full = blocks_key(b, key, room);
    double v = fallback;
    TRY(isnan(fallback) ? gguf_get_f64(b->g, full, &v, b->info) : gguf_get_f64_or(b->g, full, fallback, &v, b->info));
    TRY(blocks_expect(b, v >= min && v <= max, key, "expected %g to %g, found %g", min, max, v)); /* also catches NaN */
    *out = (float)v;
    return ERR_OK;
}

enum err blocks_get_array(const struct blocks *b, const char *key, enum gguf_type type, const struct gguf_kv **out)
{
    char room[BLOCKS_KEY_BYTES];
    const char *full = blocks_key(b, key, room);
    *out = gguf_find(b->g, full);
    if (*out == NULL) {
        return ERR_OK;
    }
    TRY(gguf_get_array(b->g, full, type, out, b->info));
    return (*out)->n == b->h.n_layers
               ? ERR_OK
               : err_set_at(b->info, ERR_BAD_HPARAM, (*out)->offset,
                            "%s: expected %u elements, one a layer, found %" PRIu64, full, b->h.n_layers, (*out)->n);
}

enum err blocks_get_layers(const struct blocks *b, const char *key, uint64_t min, uint64_t max, uint64_t fallback,
                           uint32_t out[PLAN_MAX_LAYERS])
{
    char room[BLOCKS_KEY_BYTES];
    const char *full = blocks_key(b, key, room);
    const struct gguf_kv *kv = gguf_find(b->g, full);
    if (kv == NULL || kv->type != GGUF_ARRAY) {
        TRY(blocks_get_u32(b, key, min, max, fallback, &out[0]));
        for (uint32_t i = 1; i < b->h.n_layers; i++) {
            out[i] = out[0];
        }
        return ERR_OK;
    }
    enum gguf_type type = kv->elem_type == GGUF_U32 ? GGUF_U32 : GGUF_I32;
    TRY(kv->n == 1 ? gguf_get_array(b->g, full, type, &kv, b->info) : blocks_get_array(b, key, type, &kv));
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
    char room[BLOCKS_KEY_BYTES];
    const struct gguf_kv *kv = gguf_find(b->g, blocks_key(b, key, room));
    bool is_number = kv != NULL && kv->type == GGUF_ARRAY && (kv->elem_type == GGUF_I32 || kv->elem_type == GGUF_U32);
    TRY(blocks_get_array(b, key, is_number ? kv->elem_type : GGUF_BOOL, &kv));
    *found = kv != NULL;
    for (uint32_t i = 0; *found && i < b->h.n_layers; i++) {
        int64_t v = gguf_elem_i64(kv, i);
        TRY(blocks_expect(b, v == 0 || v == 1, key, "expected 0 or 1 for layer %u, found %" PRId64, i, v));
        out[i] = v == 1;
    }
    return ERR_OK;
}

enum err blocks_skip_attention(struct blocks *b, const char *what)
{
    struct plan *p = b->plan;
    TRY(blocks_expect(b, !p->is_bidirectional, "attention.causal", "expected true with %s, found false", what));
    p->kvs = arena_zalloc(&p->arena, p->n_layers * sizeof *p->kvs);
    TRY_MEM_FOR(p->kvs != NULL, b->info, "out of memory for %u layers", p->n_layers);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        p->kvs[i] = (struct plan_kv){.n_kv_heads = p->n_kv_heads,
                                     .head_dim = p->head_dim,
                                     .value_dim = p->value_dim,
                                     .latent_dim = p->latent_dim,
                                     .layer = b->style.mixer[i] <= BLOCKS_LATENT ? (int32_t)i : PLAN_NONE};
    }
    return ERR_OK;
}

enum err blocks_read_mixers(struct blocks *b, enum blocks_mixer other, const char *what)
{
    uint32_t heads[PLAN_MAX_LAYERS];
    bool has_any = false;
    TRY(blocks_get_layers(b, "attention.head_count_kv", 0, b->h.n_heads, b->h.n_heads, heads));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.mixer[i] = heads[i] == 0 ? other : b->is_latent ? BLOCKS_LATENT : BLOCKS_ATTENTION;
        has_any |= heads[i] == 0;
    }
    return has_any ? blocks_skip_attention(b, what) : ERR_OK;
}

/* Writes a tensor name with the number of the layer being built; the format is a constant of infcgi, never from the
 * file. */
static void tensor_name(const struct blocks *b, char out[NAME_BYTES], const char *name)
{
    const char *at = strstr(name, "%d");
    const char *before = b->layers != NULL && strncmp(name, "blk.", 4) == 0 ? b->layers : "";
    if (at == NULL) {
        snprintf(out, NAME_BYTES, "%s%s", before, name);
    } else {
        snprintf(out, NAME_BYTES, "%s%.*s%d%s", before, (int)(at - name), name, (int)b->plan->layer - (int)b->n_before,
                 at + 2);
    }
}

/* Finds a tensor, of the head's layer in the head's file if that is another. */
static const struct gguf_tensor *find_tensor(const struct blocks *b, const char *name)
{
    bool is_head = b->head != NULL && b->plan->layer == (int32_t)b->h.n_layers && strncmp(name, "blk.", 4) == 0;
    const struct gguf_tensor *t = gguf_find_tensor(is_head ? b->head : b->g, name);
    if (b->probe != NULL && t != NULL) {
        model_probe_tensor(b->probe, t);
    }
    return t;
}

/* Takes zeros for a tensor that a probed file lacks. */
static enum err take_zeros(const struct blocks *b, const char *name, uint64_t n_in, uint64_t n_rows,
                           const struct row_source **out)
{
    *out = model_probe_lack(b->probe, name, n_in, n_rows);
    TRY_MEM_FOR(*out != NULL, b->info, "out of memory for '%s'", name);
    return ERR_OK;
}

enum err blocks_find(const struct blocks *b, const char *name, uint64_t n_in, uint64_t n_rows,
                     const struct row_source **out)
{
    const struct gguf_tensor *t = find_tensor(b, name);
    *out = t != NULL ? t->source : NULL;
    if (t != NULL && (t->dims[0] != n_in || t->dims[1] != n_rows || t->dims[2] != 1 || t->dims[3] != 1)) {
        if (b->probe != NULL) {
            return take_zeros(b, name, n_in, n_rows, out);
        }
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, name,
                       "%s: expected [%" PRIu64 ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                       "]",
                       name, n_in, n_rows, t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    }
    return ERR_OK;
}

/* Finds a tensor that must exist. */
static enum err find_needed(const struct blocks *b, const char *name, uint64_t n_in, uint64_t n_rows,
                            const struct row_source **out)
{
    TRY(blocks_find(b, name, n_in, n_rows, out));
    if (*out == NULL && b->probe != NULL) {
        return take_zeros(b, name, n_in, n_rows, out);
    }
    return *out != NULL ? ERR_OK
                        : err_set(b->info, ERR_MISSING_TENSOR, name,
                                  "%s: expected a tensor [%" PRIu64 ", %" PRIu64 "], found none", name, n_in, n_rows);
}

enum err blocks_not_f32(const struct blocks *b, const char *name, enum dtype found)
{
    return err_set(b->info, ERR_UNSUPPORTED_TYPE, name, "%s: expected F32, found %s", name, dtype_info(found)->name);
}

enum err blocks_read_vector(const struct blocks *b, plan_weight_id id, float *out)
{
    const struct plan_weight *w = &b->plan->weights[id];
    if (w->type != DTYPE_F32) {
        return blocks_not_f32(b, w->name, w->type);
    }
    w->source->ops->read(w->source, 0, 0, w->n_in, out);
    return ERR_OK;
}

uint64_t blocks_rows_of(const struct blocks *b, const char *name)
{
    char full[NAME_BYTES];
    tensor_name(b, full, name);
    const struct gguf_tensor *t = find_tensor(b, full);
    return t == NULL ? 0 : t->dims[1];
}

enum err blocks_bind_rows(struct blocks *b, const char *name, struct blocks_part part, uint32_t n_in,
                          plan_weight_id *id)
{
    char full[NAME_BYTES];
    const struct row_source *rows;
    tensor_name(b, full, name);
    TRY(find_needed(b, full, n_in, part.n_all, &rows));
    if (part.n != part.n_all) {
        rows = row_order_row_range(&b->plan->arena, rows, part.first, part.n);
    }
    return plan_add_weight(b->plan, full, rows, id);
}

enum err blocks_bind_elements(struct blocks *b, const char *name, struct blocks_part part, plan_weight_id *id)
{
    char full[NAME_BYTES];
    const struct row_source *row;
    tensor_name(b, full, name);
    *id = PLAN_NONE;
    TRY(blocks_find(b, full, part.n_all, 1, &row));
    if (row == NULL) {
        return ERR_OK;
    }
    if (part.n != part.n_all) {
        if (part.first % row->grain != 0 || part.n % row->grain != 0) {
            return blocks_not_f32(b, full, row->type);
        }
        row = row_order_column_range(&b->plan->arena, row, part.first, part.n);
    }
    return plan_add_weight(b->plan, full, row, id);
}

enum err blocks_bind(struct blocks *b, const char *name, uint32_t n_out, uint32_t n_in, plan_weight_id *id)
{
    return blocks_bind_rows(b, name, (struct blocks_part){0, n_out, n_out}, n_in, id);
}

enum err blocks_bind_inputs(struct blocks *b, const char *name, uint32_t n_out, uint32_t first, uint32_t n_in,
                            uint32_t n_all, plan_weight_id *id)
{
    char full[NAME_BYTES];
    const struct row_source *rows;
    tensor_name(b, full, name);
    TRY(find_needed(b, full, n_all, n_out, &rows));
    if (first % rows->grain != 0 || n_in % rows->grain != 0) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, full,
                       "%s: expected parts of %" PRIu32 " inputs to be whole blocks, found blocks of %" PRIu32, full,
                       n_in, rows->grain);
    }
    return plan_add_weight(b->plan, full, row_order_column_range(&b->plan->arena, rows, first, n_in), id);
}

enum err blocks_bind_optional(struct blocks *b, const char *name, uint32_t n_out, uint32_t n_in, plan_weight_id *id)
{
    *id = PLAN_NONE;
    return blocks_rows_of(b, name) == 0 ? ERR_OK : blocks_bind(b, name, n_out, n_in, id);
}

enum err blocks_bind_part(struct blocks *b, const char *stem, struct blocks_part part, struct plan_step *s, int i)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", stem);
    TRY(blocks_bind_rows(b, name, part, b->plan->bufs[s->src].width, &s->w[i]));
    snprintf(name, sizeof name, "%s.bias", stem);
    return blocks_bind_elements(b, name, part, &s->bias[i]);
}

enum err blocks_bind_stack(struct blocks *b, const char *name, uint32_t n, uint32_t n_out, uint32_t n_in,
                           plan_weight_id *id)
{
    char full[NAME_BYTES];
    tensor_name(b, full, name);
    const uint64_t shape[2][3] = {{n_in, n_out, n}, {n_in, n, 1}};
    const uint64_t *want = shape[n_out == 1];
    const struct gguf_tensor *t = find_tensor(b, full);
    bool fits = t != NULL && t->dims[3] == 1 &&
                (memcmp(t->dims, want, sizeof *shape) == 0 || memcmp(t->dims, shape[0], sizeof *shape) == 0);
    if (!fits) {
        if (b->probe != NULL) {
            const struct row_source *zeros;
            TRY(take_zeros(b, full, want[0], want[1] * want[2], &zeros));
            return plan_add_weight(b->plan, full, zeros, id);
        }
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
            return blocks_not_f32(b, full, t->type);
        }
        all = row_mapped_new(&b->plan->arena, t->type, t->data, 1, (uint32_t)columns);
    }
    return plan_add_weight(b->plan, full, all, id);
}
