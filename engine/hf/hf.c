/* Converts config.json and tensors of a family into a struct gguf. Names of config.json: Hugging Face transformers 4.57
 * and 5. */
#include "engine/hf/hf.h"

#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "engine/format/tokenizer_json.h"
#include "engine/hf/hf_internal.h"
#include "engine/hf/hf_layers.h"
#include "engine/hf/hf_quant.h"
#include "engine/hf/hf_rope.h"
#include "engine/plan/plan.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"
#include "engine/tensor/row_stack.h"
#include "engine/tensor/row_turned.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 4 << 20, CONFIG_DEPTH = 16, NAME_BYTES = HF_NAME_BYTES, KEY_BYTES = 128 };

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Finds the name of an object within another, up to `deeper` levels below its members. */
static bool find_object(const json_t *in, const json_t *object, int deeper, char out[KEY_BYTES])
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)in, name, v)
    {
        char inner[KEY_BYTES];
        if (v == object) {
            snprintf(out, KEY_BYTES, "%.60s", name);
            return true;
        }
        if (deeper > 0 && json_is_object(v) && find_object(v, object, deeper - 1, inner)) {
            snprintf(out, KEY_BYTES, "%.60s.%.60s", name, inner);
            return true;
        }
    }
    return false;
}

const char *hf_path(const struct hf *h, const json_t *object, const char *key, char room[128])
{
    char outer[KEY_BYTES];
    for (const struct hf_alias *a = h->family->aliases; object == h->config && a != NULL && a->name != NULL; a++) {
        const json_t *v = json_object_get(h->config, key); /* apply_aliases has set both names */
        key = v != NULL && strcmp(a->name, key) == 0 && v == json_object_get(h->config, a->other) ? a->other : key;
    }
    if (object == NULL || object == h->config || !find_object(h->config, object, 1, outer)) {
        snprintf(room, KEY_BYTES, "%s", key);
    } else {
        snprintf(room, KEY_BYTES, "%.63s.%.63s", outer, key);
    }
    return room;
}

enum err hf_get_u32(const struct hf *h, const char *key, uint64_t min, uint64_t max, uint64_t fallback, uint32_t *out)
{
    char name[KEY_BYTES];
    const json_t *v = json_read_get(h->config, key);
    if (v == NULL && fallback != UINT64_MAX) {
        *out = (uint32_t)fallback;
        return ERR_OK;
    }
    hf_path(h, h->config, key, name);
    if (!json_is_integer(v)) {
        return hf_bad_value(h, name, "an integer", v);
    }
    json_int_t i = json_integer_value(v);
    if (i < 0 || (uint64_t)i < min || (uint64_t)i > max) {
        return hf_bad(h, name, "expected %" PRIu64 " to %" PRIu64 ", found %lld", min, max, (long long)i);
    }
    *out = (uint32_t)i;
    return ERR_OK;
}

enum err hf_get_f64(const struct hf *h, const json_t *object, const char *key, double min, double max, double fallback,
                    double *out)
{
    char name[KEY_BYTES];
    const json_t *v = json_read_get(object, key);
    if (v == NULL && !isnan(fallback)) {
        *out = fallback;
        return ERR_OK;
    }
    hf_path(h, object, key, name);
    if (!json_is_number(v)) {
        return hf_bad_value(h, name, "a number", v);
    }
    *out = json_number_value(v);
    bool is_in_range = *out >= min && *out <= max;
    return is_in_range ? ERR_OK : hf_bad(h, name, "expected %g to %g, found %g", min, max, *out);
}

const char *hf_key(struct hf *h, const char *key)
{
    snprintf(h->key, sizeof h->key, "%s.%s", h->family->arch, key);
    return h->key;
}

enum err hf_add_query_scale(struct hf *h)
{
    double scalar;
    TRY(hf_get_f64(h, h->config, "query_pre_attn_scalar", 1e-6, 1e9, NAN, &scalar));
    gguf_build_f32(&h->b, hf_key(h, "attention.scale"), (float)(1 / sqrt(scalar)));
    return ERR_OK;
}

enum err hf_check_sparse(struct hf *h)
{
    const json_t *dense = json_read_get(h->config, "mlp_only_layers");
    uint32_t step;
    TRY(hf_get_u32(h, "decoder_sparse_step", 0, INT32_MAX, 1, &step));
    if (step != 1) {
        return hf_bad(h, "decoder_sparse_step", "expected 1, experts in every layer, found %" PRIu32, step);
    }
    if (dense != NULL && (!json_is_array(dense) || json_array_size(dense) != 0)) {
        return hf_bad(h, "mlp_only_layers", "expected an empty array, experts in every layer, found %s of %zu",
                      json_read_type_name(dense), json_array_size(dense));
    }
    return ERR_OK;
}

enum err hf_get_dense(const struct hf *h, uint32_t fallback, uint32_t *out)
{
    static const char key[] = "mlp_layer_types";
    const json_t *types = json_read_get(h->config, key);
    size_t n = json_array_size(types);
    if (types != NULL && !json_is_array(types)) {
        return hf_bad_value(h, key, "an array of names, one a layer", types);
    }
    *out = n == 0 ? fallback : 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(types, i);
        bool is_dense = json_read_is(v, "dense");
        if (!is_dense && !json_read_is(v, "sparse")) {
            return hf_bad_value(h, key, "dense and sparse", v);
        }
        if (is_dense && *out < i) {
            return hf_bad(h, key, "expected dense layers before all sparse ones, found one after %zu", i);
        }
        *out += is_dense;
    }
    return ERR_OK;
}

/* Keys of every family; the first four are required. */
static const struct hf_key common_keys[] = {
    {"hidden_size", "embedding_length", HF_U32},
    {"num_hidden_layers", "block_count", HF_U32},
    {"num_attention_heads", "attention.head_count", HF_U32},
    {"max_position_embeddings", "context_length", HF_U32},
    {"intermediate_size", "feed_forward_length", HF_U32},
    {"num_key_value_heads", "attention.head_count_kv", HF_U32},
    {"head_dim", "attention.key_length", HF_U32},
    {"head_dim", "attention.value_length", HF_U32},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HF_F32},
    {NULL, NULL, HF_U32},
};
enum { N_REQUIRED = 4 };

/* Versions of transformers write the number of experts under either name. */
static const char *name_in_config(const struct hf *h, const char *name)
{
    static const char other[] = "num_local_experts";
    bool is_other = strcmp(name, "num_experts") == 0 && json_read_get(h->config, name) == NULL;
    return is_other && json_read_get(h->config, other) != NULL ? other : name;
}

static enum err copy_key(struct hf *h, const struct hf_key *k, bool must_be)
{
    char key[KEY_BYTES];
    const char *name = name_in_config(h, k->json);
    const json_t *v = json_read_get(h->config, name);
    if (k->gguf != NULL) {
        hf_words_add(h, k->gguf, hf_path(h, h->config, name, key));
    }
    if (k->kind == HF_CAP && json_is_null(json_object_get(h->config, name))) {
        gguf_build_f32(&h->b, hf_key(h, k->gguf), 0);
        return ERR_OK;
    }
    if ((v == NULL && !must_be) || k->gguf == NULL || k->kind == HF_WORD) {
        return ERR_OK;
    }
    if (k->kind == HF_U32) {
        uint32_t u;
        TRY(hf_get_u32(h, name, 0, UINT32_MAX - 1, UINT64_MAX, &u));
        u += h->has_head && strcmp(k->gguf, "block_count") == 0; /* as in GGUF files */
        gguf_build_u32(&h->b, hf_key(h, k->gguf), u);
    } else if (k->kind == HF_F32 || k->kind == HF_CAP) {
        double d;
        TRY(hf_get_f64(h, h->config, name, -3e38, 3e38, NAN, &d));
        gguf_build_f32(&h->b, hf_key(h, k->gguf), (float)d);
    } else if (json_is_boolean(v)) {
        gguf_build_bool(&h->b, hf_key(h, k->gguf), json_is_true(v));
    } else {
        return hf_bad_value(h, name, "a boolean", v);
    }
    return ERR_OK;
}

bool hf_has_key(const struct hf_family *family, const char *json)
{
    const struct hf_key *k = family->keys;
    while (k != NULL && k->json != NULL && strcmp(k->json, json) != 0) {
        k++;
    }
    return k != NULL && k->json != NULL;
}

static enum err copy_keys(struct hf *h)
{
    bool is_interleaved = h->family->has_rope_pairs && !json_is_false(json_read_get(h->config, "rope_interleave"));
    gguf_build_str(&h->b, "general.architecture", h->family->arch, strlen(h->family->arch));
    if (!h->family->lacks_attention) {
        gguf_build_bool(&h->b, "infcgi.rope_is_neox", !is_interleaved);
    }
    TRY(hf_add_layer_types(h));
    for (size_t i = 0; common_keys[i].json != NULL; i++) {
        if (!hf_has_key(h->family, common_keys[i].json)) {
            TRY(copy_key(h, &common_keys[i], i < N_REQUIRED));
        }
    }
    for (const struct hf_key *k = h->family->keys; k != NULL && k->json != NULL; k++) {
        TRY(copy_key(h, k, false));
    }
    TRY(hf_modules_add(h));
    return h->family->lacks_attention ? ERR_OK : hf_add_rope(h);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static bool has_expert(const struct hf_name *n)
{
    const char *first = strchr(n->hf, '{');
    return first != NULL && strchr(first + 1, '{') != NULL;
}

/* One of the experts' matrices, until all are found. */
struct piece {
    char name[NAME_BYTES];
    uint32_t expert;
    bool is_quantised;
    const struct st_tensor *t;
};

enum err hf_float_type(const struct hf *h, const struct st_tensor *t, enum dtype *out)
{
    switch (t->dtype) {
    case ST_F32:
        *out = DTYPE_F32;
        return ERR_OK;
    case ST_F16:
        *out = DTYPE_F16;
        return ERR_OK;
    case ST_BF16:
        *out = DTYPE_BF16;
        return ERR_OK;
    default:
        return hf_bad_tensor(h, ERR_UNSUPPORTED_TYPE, t->name, "expected F32, F16 or BF16, found %s",
                             st_dtype_name(t->dtype));
    }
}

static float element(const struct st_tensor *t, uint64_t i)
{
    if (t->dtype == ST_F32) {
        float f;
        memcpy(&f, (const char *)t->data + i * sizeof f, sizeof f);
        return f;
    }
    uint16_t half;
    memcpy(&half, (const char *)t->data + i * sizeof half, sizeof half);
    return t->dtype == ST_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
}

/* Returns `bytes` for the data of t, in the model's memory; NULL after an error. */
static void *data_for(struct hf *h, const struct st_tensor *t, uint64_t bytes)
{
    void *data = arena_alloc(&h->b.arena, (size_t)bytes + 1);
    if (data == NULL) {
        err_set(h->info, ERR_NOMEM, NULL, "out of memory for the tensor '%.255s'", t->name);
    }
    return data;
}

/* Returns n elements of t as F32, each `step`-th from `first` on; NULL after an error. */
static float *read_floats(struct hf *h, const struct st_tensor *t, uint64_t first, uint64_t step, uint64_t n)
{
    float *data = data_for(h, t, n * sizeof *data);
    for (uint64_t i = 0; data != NULL && i < n; i++) {
        data[i] = element(t, first + step * i);
    }
    return data;
}

static uint64_t n_elements(const struct st_tensor *t) { return t->bytes / (st_dtype_bits(t->dtype) / 8); }

static void change_floats(float *data, uint64_t n, enum hf_change change)
{
    for (uint64_t i = 0; i < n; i++) {
        if (change == HF_PLUS_ONE) {
            data[i] += 1.0f;
        } else if (change == HF_MINUS_EXP || change == HF_FLAT_MINUS_EXP) {
            data[i] = (float)-exp(data[i]);
        }
    }
}

/* Converts vectors to F32, as everywhere in GGUF. */
static enum err add_vector(struct hf *h, const char *name, const struct st_tensor *t, enum hf_change change)
{
    enum dtype type;
    TRY(hf_float_type(h, t, &type));
    uint64_t n = n_elements(t);
    float *data = read_floats(h, t, 0, 1, n);
    TRY_MEM(data != NULL);
    change_floats(data, n, change);
    struct gguf_tensor out = {
        .type = DTYPE_F32, .n_dims = 1, .dims = {n, 1, 1, 1}, .data = data, .bytes = n * sizeof *data};
    gguf_build_tensor(&h->b, name, &out);
    return ERR_OK;
}

/* Computes shape and type of t in GGUF. copies: of the data, too. */
static enum err convert(struct hf *h, const struct st_tensor *t, bool copies, struct gguf_tensor *out)
{
    *out = (struct gguf_tensor){.n_dims = t->n_dims, .dims = {1, 1, 1, 1}, .data = t->data, .bytes = t->bytes};
    TRY(hf_float_type(h, t, &out->type));
    if (t->n_dims < 1 || t->n_dims > 3 || t->bytes == 0) {
        return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, t->name,
                             "expected 1 to 3 dimensions of 1 or more, found another shape");
    }
    for (int i = 0; i < t->n_dims; i++) {
        out->dims[i] = t->dims[t->n_dims - 1 - i];
    }
    bool is_aligned = (uintptr_t)t->data % (st_dtype_bits(t->dtype) / 8) == 0; /* the format guarantees none */
    if (copies || !is_aligned) {
        void *copy = data_for(h, t, t->bytes);
        TRY_MEM(copy != NULL);
        out->data = memcpy(copy, t->data, (size_t)t->bytes);
    }
    return ERR_OK;
}

enum err hf_add_copy(struct hf *h, const char *name, const struct st_tensor *t)
{
    struct gguf_tensor out;
    if (t->n_dims == 1) {
        return add_vector(h, name, t, HF_SAME);
    }
    TRY(convert(h, t, true, &out));
    gguf_build_tensor(&h->b, name, &out);
    return ERR_OK;
}

static enum err add_tensor(struct hf *h, const struct hf_name *n, const char *name, const struct st_tensor *t)
{
    bool is_norm = gguf_str_ends((struct gguf_str){t->name, strlen(t->name)}, "norm.weight");
    bool is_plus_one = n->change == HF_PLUS_ONE || (h->family->norms_plus_one && is_norm);
    if (t->n_dims == 1 || n->change == HF_FLAT || n->change == HF_FLAT_MINUS_EXP) {
        return add_vector(h, name, t, is_plus_one ? HF_PLUS_ONE : n->change);
    }
    struct gguf_tensor out;
    TRY(convert(h, t, false, &out));
    if (n->change == HF_AS_F32 || n->change == HF_CONV || n->change == HF_MINUS_EXP) {
        uint64_t n_all = n_elements(t);
        float *data = read_floats(h, t, 0, 1, n_all);
        TRY_MEM(data != NULL);
        out.type = DTYPE_F32;
        out.data = data;
        out.bytes = n_all * sizeof *data;
        change_floats(data, n_all, n->change);
    }
    if (n->change == HF_CONV && out.n_dims == 3 && out.dims[1] == 1) {
        out.n_dims = 2;
        out.dims[1] = out.dims[2];
        out.dims[2] = 1;
    }
    gguf_build_tensor(&h->b, name, &out);
    return ERR_OK;
}

static int order_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->expert > y->expert) - (x->expert < y->expert);
}

/* Like add_stack(), for quantised matrices. */
static enum err add_quantised_stack(struct hf *h, const struct piece *p, size_t n)
{
    struct hf_rows **rows = arena_alloc(&h->b.arena, n * sizeof *rows);
    TRY_MEM_FOR(rows != NULL, h->info, "out of memory for '%.95s'", p->name);
    for (size_t i = 0; i < n; i++) {
        if (p[i].expert != i || !p[i].is_quantised) {
            return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, p[i].t->name,
                                 "expected experts from 0 on, all of them quantised, found another");
        }
        TRY(hf_quant_bind(h, p[i].t, &rows[i]));
    }
    struct gguf_tensor out;
    TRY(hf_quant_tensor(h, p->name, rows, n, &out));
    out.n_dims = 3;
    gguf_build_tensor(&h->b, p->name, &out);
    return ERR_OK;
}

/* Adds pieces[n] of one name, experts 0 to n - 1, as one tensor. */
static enum err add_stack(struct hf *h, const struct piece *p, size_t n)
{
    if (p->is_quantised) {
        return add_quantised_stack(h, p, n);
    }
    const struct row_source **parts = arena_alloc(&h->b.arena, n * sizeof *parts);
    TRY_MEM_FOR(parts != NULL, h->info, "out of memory for the experts of '%.95s'", p->name);
    struct gguf_tensor out = {0};
    for (size_t i = 0; i < n; i++) {
        struct gguf_tensor t;
        TRY(convert(h, p[i].t, false, &t));
        bool is_same = i == 0 || (t.type == out.type && memcmp(t.dims, out.dims, sizeof t.dims) == 0);
        if (p[i].expert != i || t.n_dims != 2 || !is_same) {
            return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, p[i].t->name,
                                 "expected experts from 0 on, matrices of one type and shape, found another");
        }
        parts[i] = row_mapped_new(&h->b.arena, t.type, t.data, (uint32_t)t.dims[1], (uint32_t)t.dims[0]);
        TRY_MEM_FOR(parts[i] != NULL, h->info, "out of memory for the experts of '%.95s'", p->name);
        out = i == 0 ? t : out;
    }
    gguf_build_rows(&h->b, &out, row_stack_new(&h->b.arena, parts, (uint32_t)n), n);
    out.n_dims = 3;
    gguf_build_tensor(&h->b, p->name, &out);
    return ERR_OK;
}

static enum err add_stacks(struct hf *h, struct piece *p, size_t n)
{
    qsort(p, n, sizeof *p, order_pieces);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(p[end].name, p[i].name) == 0;) {
            end++;
        }
        TRY(add_stack(h, p + i, end - i));
    }
    return ERR_OK;
}

static enum err add_quantised(struct hf *h, const struct hf_name *n, const char *name, const struct st_tensor *t)
{
    struct hf_rows *rows;
    struct gguf_tensor out;
    TRY(hf_quant_bind(h, t, &rows));
    TRY(hf_quant_tensor(h, name, &rows, 1, &out));
    if (n->change == HF_UNPACKED) {
        uint64_t width = out.dims[0];
        float *data = data_for(h, t, width * out.dims[1] * sizeof *data);
        TRY_MEM(data != NULL);
        for (uint32_t row = 0; row < out.dims[1]; row++) {
            out.source->ops->read(out.source, row, 0, (uint32_t)width, data + row * width);
        }
        out.type = DTYPE_F32;
        out.source = NULL; /* of the data */
        out.data = data;
        out.bytes = width * out.dims[1] * sizeof *data;
    }
    gguf_build_tensor(&h->b, name, &out);
    return ERR_OK;
}

/* Does the tensor belong to an omitted layer: one after the last that predicts further tokens, and not the head? A layer
 * beyond these means that config.json belongs to a smaller model. */
static enum err is_left_out(const struct hf *h, const struct hf_name *n, uint32_t layer, const struct st_tensor *t,
                            bool *out)
{
    static const char key[] = "num_hidden_layers";
    uint32_t n_layers, n_predicting;
    *out = false;
    TRY(hf_get_u32(h, key, 0, UINT32_MAX, UINT64_MAX, &n_layers));
    if (n->gguf == NULL || strncmp(n->gguf, "blk.{}", 6) != 0 || layer < n_layers) {
        return ERR_OK;
    }
    if (layer == n_layers && h->has_head) {
        return ERR_OK;
    }
    TRY(hf_get_u32(h, "num_nextn_predict_layers", 0, UINT32_MAX, 0, &n_predicting));
    *out = layer - n_layers < n_predicting;
    return *out ? ERR_OK
                : hf_bad(h, key, "expected %" PRIu32 " or more, as there is '%.255s', found %" PRIu32, layer + 1,
                         t->name, n_layers);
}

/* Returns the row for t, NULL if it is unknown; number[2] gets the numbers that {} stands for. */
static const struct hf_name *look_up_row(const struct hf *h, const struct st_tensor *t, uint32_t number[2],
                                         bool *is_quantised)
{
    char room[SAFETENSORS_MAX_NAME_BYTES + 1], plain[SAFETENSORS_MAX_NAME_BYTES + 1];
    char of_head[SAFETENSORS_MAX_NAME_BYTES + 1];
    const char *name = hf_head_name(h, t->name, of_head);
    *is_quantised = hf_quant_is_weight(h, t, hf_names_in_text(name, room), plain);
    number[0] = number[1] = 0;
    return hf_names_find(h->family, *is_quantised ? plain : name, number);
}

/* Returns the row for t, NULL if it is not needed. */
static const struct hf_name *find_row(const struct hf *h, const struct st_tensor *t, uint32_t number[2],
                                      bool *is_quantised)
{
    const struct hf_name *n = look_up_row(h, t, number, is_quantised);
    return n != NULL && n->change != HF_DROP ? n : NULL;
}

static const struct hf_name *look_up(const struct hf *h, const struct st_tensor *t)
{
    uint32_t number[2];
    bool is_quantised;
    return look_up_row(h, t, number, &is_quantised);
}

/* Returns the folder's tensor that becomes the GGUF tensor of that name; NULL: there is none. */
static const struct st_tensor *find_source(const struct hf *h, const char *gguf)
{
    for (size_t i = 0; i < safetensors_folder_n_tensors(h->tensors); i++) {
        const struct st_tensor *t = safetensors_folder_at(h->tensors, i);
        uint32_t number[2];
        bool is_quantised;
        const struct hf_name *n = find_row(h, t, number, &is_quantised);
        if (n != NULL && strcmp(n->gguf, gguf) == 0) {
            return t;
        }
    }
    return NULL;
}

static bool is_copy(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims && a->bytes == b->bytes &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0 && memcmp(a->data, b->data, a->bytes) == 0;
}

/* Returns the head's name in GGUF. If config.json ties it to the embedding, a head with other values is still used, as
 * by transformers (tie_weights) and vLLM, and a head without an embedding serves as both. NULL: it is a copy.
 *
 * For a head that config.json ties, each open reads both tensors up to the first difference: all of them if it is a
 * copy. The embedding is read anyway, so a copy costs one more read of the head, and saves its packed weights. */
static const char *name_head(const struct hf *h, const char *name, const struct st_tensor *head)
{
    static const char embedding[] = "token_embd.weight";
    const struct st_tensor *embd = find_source(h, embedding);
    if (embd == NULL) {
        return hf_says_tied(h) || json_read_get(h->config, "tie_word_embeddings") == NULL ? embedding : name;
    }
    return hf_says_tied(h) && is_copy(head, embd) ? NULL : name;
}

static enum err add_tensors(struct hf *h, struct piece *pieces)
{
    static const char head[] = "output.weight";
    size_t n_pieces = 0;
    for (size_t i = 0; i < safetensors_folder_n_tensors(h->tensors); i++) {
        const struct st_tensor *t = safetensors_folder_at(h->tensors, i);
        uint32_t number[2];
        bool is_quantised, is_out;
        const struct hf_name *n = find_row(h, t, number, &is_quantised);
        const char *as = n != NULL ? n->gguf : NULL;
        as = as != NULL && strcmp(as, head) == 0 ? name_head(h, head, t) : as;
        if (as == NULL) {
            continue; /* vision or audio parts of a model, and copies */
        }
        TRY(is_left_out(h, n, number[0], t, &is_out));
        if (is_out) {
            continue;
        }
        h->quant.n_found += is_quantised;
        char name[NAME_BYTES];
        hf_names_write(as, number[0], name);
        if (has_expert(n) || n->change == HF_STACK) {
            uint32_t matrix = n->change == HF_STACK ? number[0] : number[1];
            pieces[n_pieces] = (struct piece){.expert = matrix, .is_quantised = is_quantised, .t = t};
            memcpy(pieces[n_pieces++].name, name, sizeof name);
        } else {
            TRY(is_quantised ? add_quantised(h, n, name, t) : add_tensor(h, n, name, t));
        }
    }
    return add_stacks(h, pieces, n_pieces);
}

static enum err find_tensor(const struct hf *h, const char *name, const struct st_tensor **out)
{
    *out = safetensors_folder_find(h->tensors, name);
    return *out != NULL ? ERR_OK : hf_bad_tensor(h, ERR_MISSING_TENSOR, name, "expected, found none");
}

/* Adds the first half of each of n matrices' rows, and the other half. */
static void add_halves(struct hf *h, const struct row_source *all, uint32_t n, const char *const names[2])
{
    for (uint32_t k = 0; k < 2; k++) {
        struct gguf_tensor out = {.n_dims = 0};
        uint32_t *begin = arena_alloc(&h->b.arena, (size_t)n * sizeof *begin);
        uint32_t half = all != NULL ? all->n_rows / n / 2 : 0;
        for (uint32_t i = 0; begin != NULL && i < n; i++) {
            begin[i] = (2 * i + k) * half;
        }
        gguf_build_rows(&h->b, &out, all != NULL ? row_order_rows(&h->b.arena, all, begin, n, half) : NULL, n);
        out.n_dims = 3;
        gguf_build_tensor(&h->b, names[k], &out);
    }
}

enum err hf_add_expert_halves(struct hf *h, const char *name, const char *first, const char *second)
{
    const struct st_tensor *t;
    struct gguf_tensor whole;
    TRY(find_tensor(h, name, &t));
    TRY(convert(h, t, false, &whole));
    uint64_t n = whole.dims[2], n_rows = n * whole.dims[1];
    if (whole.n_dims != 3 || whole.dims[1] % 2 != 0 || n_rows > UINT32_MAX || whole.dims[0] > UINT32_MAX) {
        return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, name,
                             "expected matrices of an even number of rows, found another shape");
    }
    add_halves(h, row_mapped_new(&h->b.arena, whole.type, whole.data, (uint32_t)n_rows, (uint32_t)whole.dims[0]),
               (uint32_t)n, (const char *const[]){first, second});
    return ERR_OK;
}

enum err hf_add_experts(struct hf *h, const char *name, uint32_t n_out, uint32_t n_in, bool is_turned,
                        const char *const as[2])
{
    const struct st_tensor *t;
    struct gguf_tensor all;
    TRY(find_tensor(h, name, &t));
    TRY(convert(h, t, false, &all));
    bool is_plain = !is_turned && all.dims[0] == n_in && all.dims[1] == n_out;
    bool fits = is_plain || (all.dims[0] == n_out && all.dims[1] == n_in);
    uint64_t n = all.dims[2], n_rows = all.dims[1] * n;
    if (all.n_dims != 3 || !fits || n_rows > UINT32_MAX) {
        return hf_bad_tensor(
            h, ERR_BAD_TENSOR_SHAPE, name, "expected matrices [%" PRIu32 ", %" PRIu32 "]%s, found another shape",
            is_turned ? n_in : n_out, is_turned ? n_out : n_in, is_turned ? "" : " or transposed ones");
    }
    const struct row_source *rows =
        row_mapped_new(&h->b.arena, all.type, all.data, (uint32_t)n_rows, (uint32_t)all.dims[0]);
    rows = is_plain ? rows : row_turned_new(&h->b.arena, rows, n_in, all.type);
    if (as[1] != NULL) {
        add_halves(h, rows, (uint32_t)n, as);
        return ERR_OK;
    }
    gguf_build_rows(&h->b, &all, rows, n);
    all.n_dims = 3;
    gguf_build_tensor(&h->b, as[0], &all);
    return ERR_OK;
}

enum err hf_add_every_second(struct hf *h, const char *name, const char *first, const char *second)
{
    const struct st_tensor *t;
    enum dtype type;
    TRY(find_tensor(h, name, &t));
    TRY(hf_float_type(h, t, &type));
    if (t->n_dims != 2 || t->dims[0] == 0 || t->dims[1] == 0 || t->dims[1] % 2 != 0) {
        return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, name,
                             "expected rows of an even number of elements, found another shape");
    }
    uint64_t n = t->dims[0] * t->dims[1] / 2; /* bounded by the file's size */
    const char *const names[] = {first, second};
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        float *data = read_floats(h, t, k, 2, n);
        TRY_MEM(data != NULL);
        struct gguf_tensor out = {.type = DTYPE_F32,
                                  .n_dims = 2,
                                  .dims = {t->dims[1] / 2, t->dims[0], 1, 1},
                                  .data = data,
                                  .bytes = n * sizeof *data};
        gguf_build_tensor(&h->b, names[k], &out);
    }
    return ERR_OK;
}

enum err hf_pad_table(struct hf *h, const char *name)
{
    struct gguf_tensor *t = gguf_build_find(&h->b, name);
    const struct gguf_tensor *embd = gguf_build_find(&h->b, "token_embd.weight");
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

/* --- the folder --------------------------------------------------------------------------------------------------- */

/* Replaces Infinity, which Python writes and JSON lacks, by the largest number of the same length. */
static void make_finite(struct buf *text)
{
    static const char word[] = "Infinity", number[] = "1e+308  ";
    bool is_string = false;
    for (size_t i = 0; i < text->len; i++) {
        is_string ^= text->data[i] == '"';
        i += is_string && text->data[i] == '\\'; /* skips the escaped character */
        if (!is_string && text->len - i >= sizeof word - 1 && memcmp(text->data + i, word, sizeof word - 1) == 0) {
            memcpy(text->data + i, number, sizeof number - 1);
        }
    }
}

static enum err read_config(const char *folder, json_t **out, struct err_info *info)
{
    char path[SAFETENSORS_PATH_BYTES];
    struct buf text;
    *out = NULL;
    TRY(safetensors_path(folder, "config.json", path, info));
    buf_init(&text, CONFIG_BYTES, MEM_GENERAL);
    enum err err = io_read_file(path, CONFIG_BYTES, &text, info);
    make_finite(&text);
    err = err != ERR_OK ? err : json_read_file(text.data, text.len, CONFIG_DEPTH, "config.json", out, info);
    buf_fini(&text);
    if (err != ERR_OK && err != ERR_NOMEM) {
        struct err_info said = info != NULL ? *info : (struct err_info){.code = err};
        bool is_named = strncmp(said.text, "config.json", 11) == 0;
        return err_set(info, ERR_BAD_CONFIG, NULL, "%s%s", is_named ? "" : "config.json: ", said.text);
    }
    return err;
}

static const struct hf_family *find_family(const struct hf_family *const *families, const char *architecture)
{
    for (; architecture != NULL && *families != NULL; families++) {
        for (const char *const *a = (*families)->architectures; *a != NULL; a++) {
            if (strcmp(*a, architecture) == 0) {
                return *families;
            }
        }
    }
    return NULL;
}

/* Writes ". The nearest is .." about the folder's tensors, or "". */
static void write_nearest(struct hf *h, const struct hf_family *const *families, char out[HF_NEAREST_BYTES + 32])
{
    char nearest[HF_NEAREST_BYTES] = "";
    struct safetensors_folder *tensors = NULL;
    struct err_info ignored;
    if (safetensors_folder_open(h->folder, &tensors, &ignored) == ERR_OK) {
        h->tensors = tensors;
        h->info = &ignored;
        h->family = families[0];
        if (hf_quant_read(h, &h->quant) != ERR_OK) {
            h->quant = (struct hf_quant){.scheme = HF_PLAIN};
        }
        hf_nearest(h, families, look_up, nearest);
    }
    safetensors_folder_close(&tensors);
    snprintf(out, HF_NEAREST_BYTES + 32, "%s%s", nearest[0] != '\0' ? ". The nearest is " : "", nearest);
}

static enum err unknown(const struct hf *h, const struct hf_family *const *families)
{
    char nearest[HF_NEAREST_BYTES + 32], known[ERR_TEXT_BYTES - 192] = "", shown[JSON_READ_SHOWN];
    const json_t *names = json_read_get(h->root, "architectures"), *first = json_array_get(names, 0);
    struct hf other = *h;
    if (!json_is_string(first)) {
        return err_set(h->info, ERR_UNSUPPORTED_ARCH, "architectures",
                       "config.json: architectures: expected an array of names, found %s",
                       json_is_array(names) ? "another" : json_read_show(names, shown));
    }
    write_nearest(&other, families, nearest);
    for (; *families != NULL; families++) {
        for (const char *const *a = (*families)->architectures; *a != NULL; a++) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof known - n, "%s%s", n == 0 ? "" : ", ", *a);
        }
    }
    return err_set(h->info, ERR_UNSUPPORTED_ARCH, "architectures",
                   "config.json: architectures: found %s; known are %s%s", json_read_show(first, shown), known,
                   nearest);
}

/* Adds the family's keys of the config under the common names. */
static enum err apply_aliases(struct hf *h)
{
    for (const struct hf_alias *a = h->family->aliases; a != NULL && a->name != NULL; a++) {
        json_t *v = json_object_get(h->config, a->other);
        if (v != NULL && json_read_get(h->config, a->name) == NULL &&
            json_object_set((json_t *)h->config, a->name, v) != 0) { /* the reader owns the tree */
            return err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
        }
    }
    return ERR_OK;
}

/* Adds the defaults that config.json leaves out: transformers writes only differences from them. */
static enum err apply_defaults(struct hf *h)
{
    json_t *defaults;
    if (h->family->defaults == NULL) {
        return ERR_OK;
    }
    TRY(json_read(h->family->defaults, strlen(h->family->defaults), CONFIG_DEPTH, "defaults", &defaults, h->info));
    int failed = json_object_update_missing((json_t *)h->config, defaults);
    json_decref(defaults);
    return failed == 0 ? ERR_OK : err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
}

static enum err fill(struct hf *h)
{
    TRY(apply_aliases(h));
    TRY(hf_check_values(h));
    TRY(apply_defaults(h));
    TRY(h->family->prepare != NULL ? h->family->prepare(h) : ERR_OK);
    TRY(hf_quant_read(h, &h->quant));
    hf_head_find(h);
    TRY(copy_keys(h));
    if (h->has_head) {
        gguf_build_u32(&h->b, hf_key(h, "nextn_predict_layers"), 1);
    }
    size_t n = safetensors_folder_n_tensors(h->tensors);
    struct piece *pieces = mem_zalloc_array(n + 1, sizeof *pieces, MEM_GENERAL);
    TRY_MEM_FOR(pieces != NULL, h->info, "out of memory for the directory of the model");
    enum err err = add_tensors(h, pieces);
    mem_free(pieces);
    TRY(err);
    if (h->b.err != ERR_OK) { /* a tensor that could not be added is not missing */
        return err_set(h->info, ERR_NOMEM, NULL, "out of memory for the directory of the model");
    }
    TRY(hf_check(h));
    TRY(h->family->finish != NULL ? h->family->finish(h) : ERR_OK);
    return hf_quant_check(h);
}

/* Adds the file's name to the error of a tensor. */
static void name_shard(const struct hf *h)
{
    const struct st_tensor *t = h->info == NULL ? NULL : safetensors_folder_find(h->tensors, h->info->where);
    if (t == NULL || strncmp(h->info->text, "config.json", sizeof "config.json" - 1) == 0) {
        return;
    }
    err_name_file(h->info, safetensors_folder_file_of(h->tensors, t));
}

static void release(void *arg)
{
    struct safetensors_folder *f = arg;
    safetensors_folder_close(&f);
}

enum err hf_open(const char *folder, const struct hf_family *const *families, struct gguf **out, struct err_info *info)
{
    *out = NULL;
    json_t *config;
    struct safetensors_folder *tensors = NULL;
    TRY(read_config(folder, &config, info));
    const char *architecture = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    const json_t *text = json_read_get(config, "text_config");
    struct hf h = {.family = find_family(families, architecture),
                   .folder = folder,
                   .root = config,
                   .config = json_is_object(text) ? text : config,
                   .info = info};
    if (h.family != NULL && h.family->choose != NULL) {
        h.family = h.family->choose(h.config);
    }
    gguf_build_init(&h.b);
    hf_words_init(&h);
    enum err err = h.family != NULL ? safetensors_folder_open(folder, &tensors, info) : unknown(&h, families);
    h.tensors = tensors;
    if (err == ERR_OK && (err = fill(&h)) != ERR_OK) {
        name_shard(&h);
    }
    const struct gguf_tensor *embd = gguf_build_find(&h.b, "token_embd.weight");
    err = err != ERR_OK ? err : tokenizer_json_add(folder, config, embd != NULL ? embd->dims[1] : 0, &h.b, info);
    if (err == ERR_OK) {
        struct gguf_files files = {.release = release, .arg = tensors};
        hf_words_done(&h);
        files.maps = safetensors_folder_maps(tensors, &files.n);
        err = gguf_build_finish(&h.b, &files, out, info);
    }
    gguf_build_fini(&h.b);
    if (err != ERR_OK) {
        safetensors_folder_close(&tensors);
    }
    json_decref(config);
    return err;
}
