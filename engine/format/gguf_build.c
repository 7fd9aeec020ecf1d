#include "engine/format/gguf_build.h"

#include "engine/base/ck.h"
#include "engine/format/gguf_internal.h"
#include "engine/format/gguf_write.h"

#include <string.h>

void gguf_build_init(struct gguf_build *b)
{
    *b = (struct gguf_build){.err = ERR_OK};
    arena_init(&b->arena, 64 * 1024, 0, MEM_MODEL);
}

void gguf_build_fini(struct gguf_build *b)
{
    arena_fini(&b->arena);
    mem_free(b->kv);
    mem_free(b->tensors);
    *b = (struct gguf_build){.err = ERR_OK};
}

/* Adds a record like kv with `bytes` of value, to fill in; NULL if memory is out. */
static unsigned char *add_kv(struct gguf_build *b, const struct gguf_kv *kv, uint64_t bytes)
{
    char *name = arena_dup(&b->arena, kv->key.data, kv->key.len);
    unsigned char *data = arena_alloc(&b->arena, (size_t)bytes + 1);
    if (name == NULL || data == NULL || mem_grow(&b->kv, b->n_kv, &b->cap_kv, sizeof *b->kv, MEM_MODEL) != ERR_OK) {
        b->err = ERR_NOMEM;
        return NULL;
    }
    struct gguf_kv *new = &b->kv[b->n_kv++];
    *new = *kv;
    new->key.data = name;
    new->data = data;
    new->offset = ERR_NO_OFFSET;
    return data;
}

void gguf_build_copy(struct gguf_build *b, const struct gguf_kv *kv)
{
    uint64_t bytes = gguf_value_bytes(kv);
    unsigned char *to = add_kv(b, kv, bytes);
    if (to != NULL && bytes != 0) {
        memcpy(to, kv->data, (size_t)bytes);
    }
}

/* Returns a record without data. */
static struct gguf_kv record(const char *key, enum gguf_type type, enum gguf_type elem_type, uint64_t n)
{
    return (struct gguf_kv){.key = {key, strlen(key)}, .type = type, .elem_type = elem_type, .n = n};
}

void gguf_build_scalar(struct gguf_build *b, const char *key, enum gguf_type type, const void *value)
{
    struct gguf_kv kv = record(key, type, type, 1);
    kv.data = value;
    gguf_build_copy(b, &kv);
}

void gguf_build_array(struct gguf_build *b, const char *key, enum gguf_type elem_type, uint64_t n, const void *values)
{
    uint64_t bytes;
    struct gguf_kv kv = record(key, GGUF_ARRAY, elem_type, n);
    kv.data = values;
    if (!ck_mul(n, gguf_type_bytes(elem_type), &bytes)) {
        b->err = ERR_NOMEM;
        return;
    }
    gguf_build_copy(b, &kv);
}

void gguf_build_u32(struct gguf_build *b, const char *key, uint32_t v) { gguf_build_scalar(b, key, GGUF_U32, &v); }
void gguf_build_f32(struct gguf_build *b, const char *key, float v) { gguf_build_scalar(b, key, GGUF_F32, &v); }

void gguf_build_bool(struct gguf_build *b, const char *key, bool v)
{
    gguf_build_scalar(b, key, GGUF_BOOL, &(unsigned char){v});
}

void gguf_build_put_str(unsigned char **cursor, const char *s, size_t n)
{
    if (*cursor != NULL) {
        uint64_t length = n;
        memcpy(*cursor, &length, sizeof length);
        memcpy(*cursor + sizeof length, s, n);
        *cursor += sizeof length + n;
    }
}

void gguf_build_str(struct gguf_build *b, const char *key, const char *s, size_t n)
{
    struct gguf_kv kv = record(key, GGUF_STRING, GGUF_STRING, 1);
    unsigned char *to = add_kv(b, &kv, sizeof(uint64_t) + n);
    gguf_build_put_str(&to, s, n);
}

unsigned char *gguf_build_strs(struct gguf_build *b, const char *key, uint64_t n, uint64_t total_bytes)
{
    uint64_t bytes;
    struct gguf_kv kv = record(key, GGUF_ARRAY, GGUF_STRING, n);
    if (!ck_mul(n, sizeof(uint64_t), &bytes) || !ck_add(bytes, total_bytes, &bytes)) {
        b->err = ERR_NOMEM;
        return NULL;
    }
    return add_kv(b, &kv, bytes);
}

void gguf_build_tensor(struct gguf_build *b, const char *name, const struct gguf_tensor *t)
{
    const struct gguf_str from = name != NULL ? (struct gguf_str){name, strlen(name)} : t->name;
    char *copy = arena_dup(&b->arena, from.data, from.len);
    struct row_mapped *rows = t->source == NULL ? arena_zalloc(&b->arena, sizeof *rows) : NULL;
    if (copy == NULL || (t->source == NULL && rows == NULL) ||
        mem_grow(&b->tensors, b->n_tensors, &b->cap_tensors, sizeof *b->tensors, MEM_MODEL) != ERR_OK) {
        b->err = ERR_NOMEM;
        return;
    }
    struct gguf_tensor *new = &b->tensors[b->n_tensors++];
    *new = *t;
    new->name = (struct gguf_str){copy, from.len};
    if (rows != NULL) {
        *rows = gguf_rows_of(t);
        new->source = &rows->base;
    }
}

void gguf_build_rows(struct gguf_build *b, struct gguf_tensor *t, const struct row_source *source, uint64_t n)
{
    if (source == NULL) {
        b->err = ERR_NOMEM;
        return;
    }
    t->source = source;
    t->data = NULL;
    t->type = source->type;
    t->n_dims = n == 1 ? 2 : 3;
    t->dims[0] = source->n_in;
    t->dims[1] = source->n_rows / n;
    t->dims[2] = n;
    t->dims[3] = 1;
    t->bytes = source->row_bytes * source->n_rows;
}

struct gguf_tensor *gguf_build_find(const struct gguf_build *b, const char *name)
{
    for (size_t i = 0; i < b->n_tensors; i++) {
        if (gguf_str_is(b->tensors[i].name, name)) {
            return &b->tensors[i];
        }
    }
    return NULL;
}

static enum err finish(struct gguf_build *b, const struct gguf_files *files, struct gguf *g, struct err_info *info)
{
    size_t n = files != NULL ? files->n : 0;
    g->more = mem_zalloc_array(n + 1, sizeof *g->more, MEM_MODEL);
    g->kv_by_key = mem_zalloc_array(b->n_kv + 1, sizeof *g->kv_by_key, MEM_MODEL);
    g->tensors_by_name = mem_zalloc_array(b->n_tensors + 1, sizeof *g->tensors_by_name, MEM_MODEL);
    if (b->err != ERR_OK || g->more == NULL || g->kv_by_key == NULL || g->tensors_by_name == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the directory of the model");
    }
    for (size_t i = 0; i < n; i++) {
        g->more[i] = files->maps[i];
    }
    g->n_more = n;
    g->kv = b->kv;
    g->n_kv = b->n_kv;
    g->tensors = b->tensors;
    g->n_tensors = b->n_tensors;
    g->arena = b->arena;
    g->words = b->words;
    *b = (struct gguf_build){.err = ERR_OK};
    TRY(gguf_index_keys(g, info));
    const struct gguf_tensor *twice = gguf_index_tensors(g);
    return twice == NULL ? ERR_OK
                         : err_set(info, ERR_BAD_TENSOR_NAME, NULL, "tensor '%.*s': expected once, found a second time",
                                   (int)twice->name.len, twice->name.data);
}

enum err gguf_build_finish(struct gguf_build *b, const struct gguf_files *files, struct gguf **out,
                           struct err_info *info)
{
    struct gguf *g = *out = mem_zalloc(sizeof *g, MEM_MODEL);
    enum err err = g != NULL ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for the model");
    if (err == ERR_OK) {
        g->is_borrowed = true;
        g->map.fd = -1;
        g->version = 3;
        g->alignment = GGUF_DEFAULT_ALIGNMENT;
        arena_init(&g->arena, 64 * 1024, 0, MEM_MODEL);
        err = finish(b, files, g, info);
    }
    gguf_build_fini(b);
    if (err != ERR_OK) {
        gguf_close(out);
    } else if (files != NULL) { /* only on success: otherwise the files are still the caller's */
        g->release = files->release;
        g->release_arg = files->arg;
    }
    return err;
}
