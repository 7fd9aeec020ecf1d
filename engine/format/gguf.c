/* The GGUF object: opening, lookup, typed getters. gguf_parse.c parses. */
#include "engine/format/gguf_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type) { return types[type].name; }
size_t gguf_type_bytes(enum gguf_type type) { return types[type].bytes; }

bool gguf_str_is(struct gguf_str s, const char *text) { return s.len == strlen(text) && gguf_str_ends(s, text); }

bool gguf_str_ends(struct gguf_str s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && (n == 0 || memcmp(s.data + s.len - n, text, n) == 0);
}

static enum err new_gguf(struct gguf **out, struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for the model file");
    (*out)->map.fd = -1;
    return ERR_OK;
}

/* Closes *out if it could not be opened. */
static enum err opened(struct gguf **out, enum err err)
{
    if (err != ERR_OK) {
        gguf_close(out);
    }
    return err;
}

enum err gguf_open_file(const char *path, struct gguf **out, struct err_info *info)
{
    TRY(new_gguf(out, info));
    enum err err = io_map_open(path, &(*out)->map, info);
    return opened(out, err != ERR_OK ? err : gguf_parse(*out, info));
}

enum err gguf_open(const char *path, struct gguf **out, struct err_info *info)
{
    TRY(gguf_open_file(path, out, info));
    enum err err = gguf_join_parts(path, out, info);
    return opened(out, err != ERR_OK ? err : gguf_join_scales(*out, info));
}

enum err gguf_open_memory(const void *data, size_t n, struct gguf **out, struct err_info *info)
{
    TRY(new_gguf(out, info));
    (*out)->is_borrowed = true;
    (*out)->map = (struct io_map){.data = data, .bytes = n, .fd = -1};
    enum err err = gguf_parse(*out, info);
    err = err != ERR_OK ? err : gguf_join_parts(NULL, out, info);
    return opened(out, err != ERR_OK ? err : gguf_join_scales(*out, info));
}

void gguf_close(struct gguf **gguf)
{
    struct gguf *g = *gguf;
    if (g == NULL) {
        return;
    }
    if (!g->is_borrowed) {
        io_map_close(&g->map);
    }
    for (size_t i = 0; g->parts != NULL && i < g->n_more; i++) {
        gguf_close(&g->parts[i]); /* parts have none */
    }
    if (g->release != NULL) {
        g->release(g->release_arg);
    }
    mem_free(g->parts);
    mem_free(g->more);
    arena_fini(&g->arena);
    mem_free(g->kv);
    mem_free(g->kv_by_key);
    mem_free(g->tensors);
    mem_free(g->tensors_by_name);
    mem_free(g->rows);
    mem_free(g);
    *gguf = NULL;
}

uint32_t gguf_version(const struct gguf *g) { return g->version; }
uint64_t gguf_alignment(const struct gguf *g) { return g->alignment; }
uint64_t gguf_data_offset(const struct gguf *g) { return g->data_offset; }
const struct io_map *gguf_map(const struct gguf *g) { return &g->map; }
size_t gguf_n_files(const struct gguf *g) { return 1 + g->n_more; }
void gguf_tell(const struct gguf *g, struct err_info *info)
{
    if (g->words != NULL && info != NULL) {
        g->words->tell(g->words, info);
    }
}

size_t gguf_n_kv(const struct gguf *g) { return g->n_kv; }
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i) { return &g->kv[i]; }
size_t gguf_n_tensors(const struct gguf *g) { return g->n_tensors; }
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i) { return &g->tensors[i]; }

static const struct io_map *map_at(const struct gguf *g, size_t i) { return i == 0 ? &g->map : g->more[i - 1]; }

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_n_files(g); i++) {
        n += map_at(g, i)->bytes;
    }
    return n;
}

bool gguf_shrunk(const struct gguf *g)
{
    bool shrunk = false;
    for (size_t i = 0; i < gguf_n_files(g) && !shrunk; i++) {
        shrunk = io_map_shrunk(map_at(g, i));
    }
    return shrunk;
}

int64_t gguf_mtime_ns(const struct gguf *g)
{
    int64_t newest = g->map.mtime_ns;
    for (size_t i = 1; i < gguf_n_files(g); i++) {
        newest = MAX_OF(newest, map_at(g, i)->mtime_ns);
    }
    return newest;
}

void gguf_drop(const struct gguf *g, const void *data, uint64_t n)
{
    for (size_t i = 0; i < gguf_n_files(g); i++) {
        const struct io_map *map = map_at(g, i);
        uintptr_t at = (uintptr_t)data, start = (uintptr_t)map->data;
        if (at >= start && at - start < map->bytes) {
            io_map_drop(map, at - start, (size_t)n);
        }
    }
}

/* A key or a name to find. */
struct wanted {
    const struct gguf *g;
    struct gguf_str text;
};

static int order_key(const void *wanted, const void *index)
{
    const struct wanted *w = wanted;
    return gguf_str_order(w->text, w->g->kv[*(const uint32_t *)index].key);
}

static int order_name(const void *wanted, const void *index)
{
    const struct wanted *w = wanted;
    return gguf_str_order(w->text, w->g->tensors[*(const uint32_t *)index].name);
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    struct wanted w = {g, {key, strlen(key)}};
    const uint32_t *i = bsearch(&w, g->kv_by_key, g->n_kv, sizeof *i, order_key);
    return i != NULL ? &g->kv[*i] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    struct wanted w = {g, {name, strlen(name)}};
    const uint32_t *i = bsearch(&w, g->tensors_by_name, g->n_tensors, sizeof *i, order_name);
    return i != NULL ? &g->tensors[*i] : NULL;
}

/* --- elements --------------------------------------------------------------------------------------------------- */

int64_t gguf_elem_i64(const struct gguf_kv *kv, uint64_t i)
{
    const unsigned char *p = kv->data + i * types[kv->elem_type].bytes;
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } v = {0};
    memcpy(&v, p, types[kv->elem_type].bytes);
    switch (kv->elem_type) {
    case GGUF_U8:
    case GGUF_BOOL:
        return *p;
    case GGUF_I8:
        return v.i8;
    case GGUF_U16:
        return v.u16;
    case GGUF_I16:
        return v.i16;
    case GGUF_U32:
        return v.u32;
    case GGUF_I32:
        return v.i32;
    case GGUF_U64:
        return v.u64 > INT64_MAX ? INT64_MAX : (int64_t)v.u64;
    case GGUF_I64:
        return v.i64;
    default:
        return 0;
    }
}

double gguf_elem_f64(const struct gguf_kv *kv, uint64_t i)
{
    const unsigned char *p = kv->data + i * types[kv->elem_type].bytes;
    if (kv->elem_type == GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return f;
    }
    if (kv->elem_type == GGUF_F64) {
        double d;
        memcpy(&d, p, sizeof d);
        return d;
    }
    return (double)gguf_elem_i64(kv, i);
}

struct gguf_str gguf_next_str(const unsigned char **cursor)
{
    uint64_t n;
    memcpy(&n, *cursor, sizeof n);
    struct gguf_str s = {(const char *)*cursor + sizeof n, (size_t)n};
    *cursor += sizeof n + n;
    return s;
}

/* --- typed getters ---------------------------------------------------------------------------------------------- */

static enum err missing(const char *key, struct err_info *info)
{
    return err_set(info, ERR_BAD_HPARAM, key, "%s: expected a value, found none", key);
}

static enum err wrong_type(const char *key, const struct gguf_kv *kv, const char *expected, struct err_info *info)
{
    return err_set_at(info, ERR_BAD_TYPE, kv->offset, "%s: expected %s, found %s%s", key, expected,
                      kv->type == GGUF_ARRAY ? "an array of " : "", gguf_type_name(kv->elem_type));
}

/* Is it an integer, or an array of equal integers? Converters write some numbers once per layer. */
static bool holds_integer(const struct gguf_kv *kv)
{
    enum gguf_type type = kv->elem_type;
    bool is_number = types[type].bytes != 0 && type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL;
    bool holds = is_number && kv->n > 0;
    size_t bytes = types[type].bytes;
    for (uint64_t i = 1; holds && i < kv->n; i++) {
        holds = memcmp(kv->data, kv->data + i * bytes, bytes) == 0;
    }
    return holds;
}

enum err gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct err_info *info)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return missing(key, info);
    }
    if (!holds_integer(kv)) {
        return wrong_type(key, kv, "an integer", info);
    }
    if (kv->elem_type == GGUF_U64) { /* gguf_elem_i64 would saturate */
        memcpy(out, kv->data, sizeof *out);
        return ERR_OK;
    }
    int64_t v = gguf_elem_i64(kv, 0);
    if (v < 0) {
        return err_set_at(info, ERR_BAD_HPARAM, kv->offset, "%s: expected 0 or more, found %" PRId64, key, v);
    }
    *out = (uint64_t)v;
    return ERR_OK;
}

enum err gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t fallback, uint64_t *out, struct err_info *info)
{
    *out = fallback;
    return gguf_find(g, key) == NULL ? ERR_OK : gguf_get_u64(g, key, out, info);
}

enum err gguf_get_f64(const struct gguf *g, const char *key, double *out, struct err_info *info)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return missing(key, info);
    }
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64) {
        return wrong_type(key, kv, "a float", info);
    }
    double v = gguf_elem_f64(kv, 0);
    if (!isfinite(v)) {
        return err_set_at(info, ERR_BAD_HPARAM, kv->offset, "%s: expected a finite number, found %g", key, v);
    }
    *out = v;
    return ERR_OK;
}

enum err gguf_get_f64_or(const struct gguf *g, const char *key, double fallback, double *out, struct err_info *info)
{
    *out = fallback;
    return gguf_find(g, key) == NULL ? ERR_OK : gguf_get_f64(g, key, out, info);
}

enum err gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *out, struct err_info *info)
{
    *out = fallback;
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return ERR_OK;
    }
    if (kv->type != GGUF_BOOL) {
        return wrong_type(key, kv, "a bool", info);
    }
    *out = kv->data[0] != 0;
    return ERR_OK;
}

enum err gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err_info *info)
{
    TRY(gguf_get_str_or_null(g, key, out, info));
    return out->data == NULL ? missing(key, info) : ERR_OK;
}

enum err gguf_get_str_or_null(const struct gguf *g, const char *key, struct gguf_str *out, struct err_info *info)
{
    *out = (struct gguf_str){0};
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return ERR_OK;
    }
    if (kv->type != GGUF_STRING) {
        return wrong_type(key, kv, "a string", info);
    }
    const unsigned char *cursor = kv->data;
    *out = gguf_next_str(&cursor);
    return ERR_OK;
}

enum err gguf_get_array(const struct gguf *g, const char *key, enum gguf_type elem_type, const struct gguf_kv **out,
                        struct err_info *info)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return missing(key, info);
    }
    if (kv->type != GGUF_ARRAY || kv->elem_type != elem_type) {
        char expected[32] = "an array of ";
        strncat(expected, gguf_type_name(elem_type), 8);
        return wrong_type(key, kv, expected, info);
    }
    *out = kv;
    return ERR_OK;
}
