#include "engine/convert/convert_latent.h"

#include "engine/format/gguf_build.h"
#include "engine/tensor/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = GGUF_MAX_TENSOR_NAME_BYTES + 1, MAX_SIZE = 1 << 16 };

static const char whole_suffix[] = ".attn_kv_b.weight";

/* Sizes of a head. */
struct sizes {
    char arch[65];
    uint64_t nope, value, rope;
};

/* Rows of one of the stacks out of the tensor that holds both. */
struct part {
    struct row_source base;
    const struct gguf_tensor *whole;
    uint32_t n_nope, n_value, n_latent;
};

static float value_at(const struct part *p, uint32_t row, uint32_t column)
{
    const struct gguf_tensor *t = p->whole;
    uint64_t at = (uint64_t)row * p->n_latent + column;
    if (t->source != NULL) {
        float run[ROW_SOURCE_RUN];
        uint32_t from = column / ROW_SOURCE_RUN * ROW_SOURCE_RUN, left = p->n_latent - from;
        t->source->ops->read(t->source, row, from, left < ROW_SOURCE_RUN ? left : ROW_SOURCE_RUN, run);
        return run[column - from];
    }
    if (t->type == DTYPE_F32) {
        return ((const float *)t->data)[at];
    }
    uint16_t half = ((const uint16_t *)t->data)[at];
    return t->type == DTYPE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
}

/* Row h * n_latent + l of the keys' stack: column l of the n_nope first rows of head h. */
static void read_keys(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct part *p = (const struct part *)(const void *)s;
    uint32_t first = row / p->n_latent * (p->n_nope + p->n_value);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = value_at(p, first + from + i, row % p->n_latent);
    }
}

static void encode_keys(const struct row_source *s, uint32_t row, uint32_t n, void *out)
{
    const struct part *p = (const struct part *)(const void *)s;
    unsigned char *to = out;
    for (uint32_t r = row; r < row + n; r++) {
        for (uint32_t i = 0; i < p->n_nope; i++) {
            float v;
            read_keys(s, r, i, 1, &v);
            bool is_wide = p->whole->source == NULL && p->whole->type == DTYPE_F32;
            bool is_half = p->whole->source == NULL && p->whole->type == DTYPE_F16;
            uint16_t half = is_half ? dtype_f32_to_f16(v) : dtype_f32_to_bf16(v);
            memcpy(to, is_wide ? (const void *)&v : &half, is_wide ? sizeof v : sizeof half);
            to += is_wide ? sizeof v : sizeof half;
        }
    }
}

/* Row of the tensor that holds both for row h * n_value + j of the values' stack. */
static uint32_t value_row(const struct part *p, uint32_t row)
{
    return row / p->n_value * (p->n_nope + p->n_value) + p->n_nope + row % p->n_value;
}

static void read_values(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct part *p = (const struct part *)(const void *)s;
    p->whole->source->ops->read(p->whole->source, value_row(p, row), from, n, out);
}

static void encode_values(const struct row_source *s, uint32_t row, uint32_t n, void *out)
{
    const struct part *p = (const struct part *)(const void *)s;
    uint64_t row_bytes = p->whole->bytes / p->whole->dims[1];
    for (uint32_t i = 0; i < n; i++) {
        p->whole->source->ops->encode(p->whole->source, value_row(p, row + i), 1, (unsigned char *)out + i * row_bytes);
    }
}

/* Both parts read the same bytes, so neither knows when they are done with. */
static void not_done(const struct row_source *s, uint32_t row, uint32_t n,
                     void (*drop)(void *arg, const void *data, uint64_t bytes), void *arg)
{
    (void)s;
    (void)row;
    (void)n;
    (void)drop;
    (void)arg;
}

static const struct row_source_ops keys_ops = {read_keys, encode_keys, not_done};
static const struct row_source_ops values_ops = {read_values, encode_values, not_done};

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static bool is_whole(const struct gguf_tensor *t)
{
    size_t n = sizeof whole_suffix - 1;
    return t->name.len > n && memcmp(t->name.data + t->name.len - n, whole_suffix, n) == 0 && t->n_dims == 2;
}

static bool is_float(const struct gguf_tensor *t)
{
    return t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16;
}

static void name_part(const struct gguf_tensor *t, const char *suffix, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%.*s%s", (int)(t->name.len - (sizeof whole_suffix - 1)), t->name.data, suffix);
}

static struct part *add_part(struct gguf_build *b, const struct gguf_tensor *t, const struct sizes *z,
                             const struct row_source_ops *ops)
{
    struct part *p = arena_zalloc(&b->arena, sizeof *p);
    if (p == NULL) {
        b->err = ERR_NOMEM;
        return NULL;
    }
    *p = (struct part){{ops}, t, (uint32_t)z->nope, (uint32_t)z->value, (uint32_t)t->dims[0]};
    return p;
}

static void add_keys(struct gguf_build *b, const struct gguf_tensor *t, const struct sizes *z, uint64_t n_heads)
{
    char name[NAME_BYTES];
    struct part *p = add_part(b, t, z, &keys_ops);
    struct gguf_tensor out = {.type = t->source == NULL ? t->type : DTYPE_BF16,
                              .n_dims = 3,
                              .dims = {z->nope, t->dims[0], n_heads, 1},
                              .source = p != NULL ? &p->base : NULL};
    name_part(t, ".attn_k_b.weight", name);
    if (!dtype_tensor_bytes(out.type, z->nope, t->dims[0] * n_heads, &out.bytes)) {
        b->err = ERR_NOMEM;
    }
    gguf_build_tensor(b, name, &out);
}

static void add_values(struct gguf_build *b, const struct gguf_tensor *t, const struct sizes *z, uint64_t n_heads)
{
    char name[NAME_BYTES];
    uint64_t row_bytes = t->bytes / t->dims[1];
    struct gguf_tensor out = {.type = t->type,
                              .n_dims = 3,
                              .dims = {t->dims[0], z->value, n_heads, 1},
                              .bytes = row_bytes * z->value * n_heads};
    if (t->source != NULL) {
        struct part *p = add_part(b, t, z, &values_ops);
        out.source = p != NULL ? &p->base : NULL;
    } else {
        const void **pieces = arena_alloc(&b->arena, (size_t)n_heads * sizeof *pieces);
        for (uint64_t h = 0; pieces != NULL && h < n_heads; h++) {
            pieces[h] = (const char *)t->data + (h * (z->nope + z->value) + z->nope) * row_bytes;
        }
        b->err = pieces == NULL ? ERR_NOMEM : b->err;
        out.pieces = pieces;
    }
    name_part(t, ".attn_v_b.weight", name);
    gguf_build_tensor(b, name, &out);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Heads' sizes; all 0 when g has no such tensors, or they are blocks. */
static enum err find_sizes(const struct gguf *g, struct sizes *z, struct err_info *info)
{
    struct gguf_str arch;
    char key[128];
    uint64_t key_length;
    *z = (struct sizes){.nope = 0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (is_whole(t) && t->source == NULL && (!is_float(t) || t->data == NULL)) {
            return ERR_OK;
        }
    }
    TRY(gguf_get_str_or_null(g, "general.architecture", &arch, info));
    snprintf(z->arch, sizeof z->arch, "%.*s", (int)MIN_OF(arch.len, sizeof z->arch - 1), arch.len > 0 ? arch.data : "");
    snprintf(key, sizeof key, "%s.attention.key_length_mla", z->arch);
    TRY(gguf_get_u64_or(g, key, 0, &key_length, info));
    snprintf(key, sizeof key, "%s.attention.value_length_mla", z->arch);
    TRY(gguf_get_u64_or(g, key, 0, &z->value, info));
    snprintf(key, sizeof key, "%s.rope.dimension_count", z->arch);
    TRY(gguf_get_u64_or(g, key, 0, &z->rope, info));
    bool ok = key_length > z->rope && key_length <= MAX_SIZE && z->value > 0 && z->value <= MAX_SIZE;
    z->nope = ok ? key_length - z->rope : 0;
    return ERR_OK;
}

/* One latent stands for all heads' keys and values. */
static void put_keys(struct gguf_build *b, const struct gguf *g, const struct sizes *z, uint64_t n_latent)
{
    static const char *const names[] = {"attention.head_count_kv", "attention.key_length", "attention.value_length"};
    const uint64_t values[] = {1, n_latent + z->rope, n_latent};
    char mine[ARRAY_LEN(names)][128], key[GGUF_MAX_KEY_BYTES + 1];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(mine[i], sizeof mine[i], "%s.%s", z->arch, names[i]);
        gguf_build_u32(b, mine[i], (uint32_t)values[i]);
    }
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        snprintf(key, sizeof key, "%.*s", (int)kv->key.len, kv->key.data);
        if (strcmp(key, mine[0]) != 0 && strcmp(key, mine[1]) != 0 && strcmp(key, mine[2]) != 0) {
            gguf_build_copy(b, key, kv);
        }
    }
}

enum err convert_latent_split(const struct gguf *g, struct gguf **out, struct err_info *info)
{
    struct sizes z;
    struct gguf_build b;
    uint64_t n_latent = 0;
    *out = NULL;
    TRY(find_sizes(g, &z, info));
    for (size_t i = 0; z.nope != 0 && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (is_whole(t) && (t->dims[1] % (z.nope + z.value) != 0 || t->dims[1] > UINT32_MAX)) {
            return err_set(info, ERR_BAD_TENSOR_SHAPE, NULL,
                           "tensor '%.*s': expected a multiple of %" PRIu64 " rows, found %" PRIu64, (int)t->name.len,
                           t->name.data, z.nope + z.value, t->dims[1]);
        }
        n_latent = is_whole(t) ? t->dims[0] : n_latent;
    }
    if (n_latent == 0) {
        return ERR_OK;
    }
    gguf_build_init(&b);
    put_keys(&b, g, &z, n_latent);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        if (!is_whole(t)) {
            gguf_build_tensor(&b, name, t);
        } else {
            add_keys(&b, t, &z, t->dims[1] / (z.nope + z.value));
            add_values(&b, t, &z, t->dims[1] / (z.nope + z.value));
        }
    }
    enum err err = gguf_build_finish(&b, NULL, 0, NULL, NULL, out, info);
    gguf_build_fini(&b);
    return err;
}
