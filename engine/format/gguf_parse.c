/* From bytes to the directory of a GGUF file. Nothing here trusts a count or an offset: each is compared with the bytes
 * that are left before memory is taken or a pointer moves. There is no recursion, and no assert. */
#include "engine/format/gguf_internal.h"

#include "engine/base/ck.h"
#include "engine/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A read position; all reads go through take(). */
struct cursor {
    const unsigned char *data;
    uint64_t at, end;
    struct err_info *info;
};

static uint64_t left(const struct cursor *c) { return c->end - c->at; }

/* The next n bytes, or NULL with the error set. */
static const unsigned char *take(struct cursor *c, uint64_t n, const char *what)
{
    if (n > left(c)) {
        err_set_at(c->info, ERR_TRUNCATED, c->at, "expected %" PRIu64 " bytes of %s, found %" PRIu64, n, what, left(c));
        return NULL;
    }
    const unsigned char *p = c->data + c->at;
    c->at += n;
    return p;
}

static enum err take_u32(struct cursor *c, const char *what, uint32_t *out)
{
    const unsigned char *p = take(c, 4, what);
    if (p == NULL) {
        return ERR_TRUNCATED;
    }
    memcpy(out, p, 4);
    return ERR_OK;
}

static enum err take_u64(struct cursor *c, const char *what, uint64_t *out)
{
    const unsigned char *p = take(c, 8, what);
    if (p == NULL) {
        return ERR_TRUNCATED;
    }
    memcpy(out, p, 8);
    return ERR_OK;
}

static enum err take_str(struct cursor *c, const char *what, uint64_t max_bytes, struct gguf_str *out)
{
    uint64_t at = c->at, n;
    TRY(take_u64(c, what, &n));
    if (n > left(c)) {
        return err_set_at(c->info, ERR_STRING_EXCEEDS_FILE, at,
                          "%s: declared as %" PRIu64 " bytes, only %" PRIu64 " are left in the file", what, n, left(c));
    }
    if (n > max_bytes) {
        return err_set_at(c->info, ERR_BAD_STRING, at, "%s: expected at most %" PRIu64 " bytes, found %" PRIu64, what,
                          max_bytes, n);
    }
    out->data = (const char *)c->data + c->at;
    out->len = (size_t)n;
    c->at += n;
    return ERR_OK;
}

/* --- header -------------------------------------------------------------------------------------------------------- */

/* What a file that is no GGUF looks like. */
static const char *guess_kind(const unsigned char *p, uint64_t n)
{
    static const struct {
        const char *bytes;
        const char *kind;
    } kinds[] = {
        {"GGML", "an old GGML file"},  {"lmgg", "an old GGML file"}, {"tjgg", "an old GGJT file"},
        {"ggjt", "an old GGJT file"},  {"fmgg", "an old GGMF file"}, {"PK\3\4", "a ZIP archive (PyTorch?)"},
        {"\x7f" "ELF", "a program"},   {"\x1f\x8b", "a gzip file"},  {"<!DO", "an HTML page"},
        {"<htm", "an HTML page"},      {"vers", "a Git LFS pointer"}, {"\x80\2", "a Python pickle"},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (memcmp(p, kinds[i].bytes, strlen(kinds[i].bytes)) == 0) {
            return kinds[i].kind;
        }
    }
    return n > 9 && p[8] == '{' ? "a SafeTensors file" : "something else";
}

static enum err parse_header(struct gguf *g, struct cursor *c, uint64_t *n_tensors, uint64_t *n_kv)
{
    if (c->end < GGUF_HEADER_BYTES) {
        if (c->end >= 4 && memcmp(c->data, "GGUF", 4) != 0) {
            return err_set_at(c->info, ERR_BAD_MAGIC, 0, "expected the magic GGUF, found %s",
                              guess_kind(c->data, c->end));
        }
        return err_set_at(c->info, ERR_TRUNCATED_HEADER, c->end, "expected a header of %d bytes, found %" PRIu64,
                          GGUF_HEADER_BYTES, c->end);
    }
    if (memcmp(c->data, "GGUF", 4) != 0) {
        return err_set_at(c->info, ERR_BAD_MAGIC, 0, "expected the magic GGUF, found %s", guess_kind(c->data, c->end));
    }
    c->at = 4;
    TRY(take_u32(c, "the version", &g->version));
    if (g->version == 0x02000000u || g->version == 0x03000000u) {
        return err_set_at(c->info, ERR_WRONG_ENDIANNESS, 4, "expected a little-endian file, found a big-endian one");
    }
    if (g->version != 2 && g->version != 3) {
        return err_set_at(c->info, ERR_BAD_VERSION, 4, "expected version 2 or 3, found %" PRIu32, g->version);
    }
    TRY(take_u64(c, "the tensor count", n_tensors));
    TRY(take_u64(c, "the metadata count", n_kv));
    if (*n_tensors > left(c) / GGUF_MIN_TENSOR_BYTES || *n_tensors > GGUF_MAX_TENSORS) {
        return err_set_at(c->info, ERR_COUNT_EXCEEDS_FILE, 8,
                          "%" PRIu64 " tensors: expected at most %d, and %d bytes for each in the file", *n_tensors,
                          GGUF_MAX_TENSORS, GGUF_MIN_TENSOR_BYTES);
    }
    if (*n_kv > left(c) / GGUF_MIN_KV_BYTES || *n_kv > GGUF_MAX_KEYS) {
        return err_set_at(c->info, ERR_COUNT_EXCEEDS_FILE, 16,
                          "%" PRIu64 " metadata keys: expected at most %d, and %d bytes for each in the file", *n_kv,
                          GGUF_MAX_KEYS, GGUF_MIN_KV_BYTES);
    }
    return ERR_OK;
}

/* --- metadata ------------------------------------------------------------------------------------------------------ */

/* Is the key one that people can read and programs can compare? */
static bool key_ok(struct gguf_str key)
{
    return key.len > 0 && memchr(key.data, 0, key.len) == NULL && utf8_valid(key.data, key.len, NULL);
}

static enum err check_bools(struct cursor *c, const unsigned char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] > 1) {
            return err_set_at(c->info, ERR_BAD_BOOL, (uint64_t)(p + i - c->data), "expected 0 or 1, found %d", p[i]);
        }
    }
    return ERR_OK;
}

/* The elements of kv (type and count known), from the cursor on. */
static enum err parse_elements(struct cursor *c, struct gguf_kv *kv)
{
    kv->data = c->data + c->at;
    if (kv->elem_type == GGUF_STRING) {
        struct gguf_str ignored;
        for (uint64_t i = 0; i < kv->n; i++) {
            TRY(take_str(c, "a string", GGUF_MAX_STRING_BYTES, &ignored));
        }
        return ERR_OK;
    }
    uint64_t bytes;
    if (!ck_mul(kv->n, gguf_type_bytes(kv->elem_type), &bytes) || take(c, bytes, "a value") == NULL) {
        return ERR_TRUNCATED;
    }
    return kv->elem_type == GGUF_BOOL ? check_bools(c, kv->data, kv->n) : ERR_OK;
}

static enum err parse_array_head(struct cursor *c, struct gguf_kv *kv)
{
    uint64_t at = c->at;
    uint32_t elem_type;
    TRY(take_u32(c, "an array's type", &elem_type));
    if (elem_type >= GGUF_TYPE_COUNT) {
        return err_set_at(c->info, ERR_BAD_VALUE_TYPE, at, "expected an array type of 0 to %d, found %" PRIu32,
                          GGUF_TYPE_COUNT - 1, elem_type);
    }
    if (elem_type == GGUF_ARRAY) {
        return err_set_at(c->info, ERR_NESTED_ARRAY, at, "expected an array of plain values, found an array of arrays");
    }
    kv->elem_type = (enum gguf_type)elem_type;
    at = c->at;
    TRY(take_u64(c, "an array's length", &kv->n));
    uint64_t least = elem_type == GGUF_STRING ? 8 : gguf_type_bytes(kv->elem_type);
    if (kv->n > left(c) / least || kv->n > GGUF_MAX_ARRAY) {
        return err_set_at(c->info, ERR_COUNT_EXCEEDS_FILE, at,
                          "an array of %" PRIu64 " elements: expected at most %d, and %" PRIu64 " bytes are left", kv->n,
                          GGUF_MAX_ARRAY, left(c));
    }
    return ERR_OK;
}

static enum err parse_kv(struct cursor *c, struct gguf_kv *kv)
{
    kv->offset = c->at;
    uint64_t at = c->at;
    enum err err = take_str(c, "a metadata key", UINT64_MAX, &kv->key);
    if (err != ERR_OK || kv->key.len > GGUF_MAX_KEY_BYTES || !key_ok(kv->key)) {
        return err == ERR_TRUNCATED ? err
                                    : err_set_at(c->info, ERR_BAD_KEY, at,
                                                 "a metadata key: expected 1 to %d bytes of UTF-8 without NUL",
                                                 GGUF_MAX_KEY_BYTES);
    }
    uint32_t type;
    at = c->at;
    TRY(take_u32(c, "a value's type", &type));
    if (type >= GGUF_TYPE_COUNT) {
        return err_set_at(c->info, ERR_BAD_VALUE_TYPE, at, "key '%.*s': expected a type of 0 to %d, found %" PRIu32,
                          (int)kv->key.len, kv->key.data, GGUF_TYPE_COUNT - 1, type);
    }
    kv->type = kv->elem_type = (enum gguf_type)type;
    kv->n = 1;
    if (type == GGUF_ARRAY) {
        TRY(parse_array_head(c, kv));
    }
    return parse_elements(c, kv);
}

/* --- tensors ------------------------------------------------------------------------------------------------------- */

static enum err parse_shape(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t at = c->at;
    uint32_t n_dims;
    TRY(take_u32(c, "a tensor's dimension count", &n_dims));
    if (n_dims == 0 || n_dims > GGUF_MAX_DIMS) {
        return err_set_at(c->info, ERR_BAD_DIMS, at, "tensor '%.*s': expected 1 to %d dimensions, found %" PRIu32,
                          (int)t->name.len, t->name.data, GGUF_MAX_DIMS, n_dims);
    }
    t->n_dims = (int)n_dims;
    uint64_t n_elems = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        at = c->at;
        if (i < t->n_dims) {
            TRY(take_u64(c, "a tensor's dimension", &t->dims[i]));
        }
        if (t->dims[i] == 0 || !ck_mul(n_elems, t->dims[i], &n_elems) || n_elems > INT64_MAX) {
            return err_set_at(c->info, ERR_BAD_SHAPE, at,
                              "tensor '%.*s': dimension %d is %" PRIu64 ", expected 1 or more and a product below 2^63",
                              (int)t->name.len, t->name.data, i, t->dims[i]);
        }
    }
    return ERR_OK;
}

/* Type, size and offset (still relative to the data section). */
static enum err parse_type(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t at = c->at;
    uint32_t type;
    TRY(take_u32(c, "a tensor's type", &type));
    const struct dtype_info *info = dtype_info(type);
    if (info == NULL) {
        return err_set_at(c->info, ERR_UNSUPPORTED_TYPE, at, "tensor '%.*s': type %" PRIu32 " does not exist",
                          (int)t->name.len, t->name.data, type);
    }
    t->type = (enum dtype)type;
    if (!dtype_tensor_bytes(t->type, t->dims[0], t->dims[1] * t->dims[2] * t->dims[3], &t->bytes)) {
        return err_set_at(c->info, ERR_BAD_SHAPE, at,
                          "tensor '%.*s': a row of %" PRIu64 " is no multiple of %s's block of %" PRIu32,
                          (int)t->name.len, t->name.data, t->dims[0], info->name, info->block_elems);
    }
    return take_u64(c, "a tensor's offset", &t->offset);
}

static enum err parse_tensor(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t at = c->at;
    enum err err = take_str(c, "a tensor name", UINT64_MAX, &t->name);
    if (err != ERR_OK || t->name.len > GGUF_MAX_TENSOR_NAME_BYTES || !key_ok(t->name)) {
        return err == ERR_TRUNCATED ? err
                                    : err_set_at(c->info, ERR_BAD_TENSOR_NAME, at,
                                                 "a tensor name: expected 1 to %d bytes of UTF-8 without NUL",
                                                 GGUF_MAX_TENSOR_NAME_BYTES);
    }
    TRY(parse_shape(c, t));
    return parse_type(c, t);
}

/* --- indexes and placement ----------------------------------------------------------------------------------------- */

int gguf_str_order(struct gguf_str a, struct gguf_str b)
{
    int order = memcmp(a.data, b.data, MIN_OF(a.len, b.len));
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* Heap sort of indexes: n log n on any input, unlike qsort, and without a global for the context. */
static void sort_indexes(uint32_t *index, size_t n, int (*order)(const void *table, uint32_t a, uint32_t b),
                         const void *table)
{
    for (size_t i = 0; i < n; i++) {
        index[i] = (uint32_t)i;
    }
    size_t start = n / 2, end = n;
    while (end > 1) {
        if (start > 0) {
            start--;
        } else {
            end--;
            uint32_t top = index[0];
            index[0] = index[end];
            index[end] = top;
        }
        for (size_t root = start, child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && order(table, index[child], index[child + 1]) < 0) {
                child++;
            }
            if (order(table, index[root], index[child]) >= 0) {
                break;
            }
            uint32_t swap = index[root];
            index[root] = index[child];
            index[child] = swap;
        }
    }
}

static int order_keys(const void *table, uint32_t a, uint32_t b)
{
    const struct gguf_kv *kv = table;
    return gguf_str_order(kv[a].key, kv[b].key);
}

static int order_names(const void *table, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = table;
    return gguf_str_order(t[a].name, t[b].name);
}

static int order_offsets(const void *table, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = table;
    return (t[a].offset > t[b].offset) - (t[a].offset < t[b].offset);
}

static enum err index_keys(struct gguf *g, struct err_info *info)
{
    sort_indexes(g->kv_by_key, g->n_kv, order_keys, g->kv);
    for (size_t i = 1; i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[g->kv_by_key[i]];
        if (order_keys(g->kv, g->kv_by_key[i - 1], g->kv_by_key[i]) == 0) {
            return err_set_at(info, ERR_DUPLICATE_KEY, kv->offset, "key '%.*s' stands twice", (int)kv->key.len,
                              kv->key.data);
        }
    }
    return ERR_OK;
}

/* Tensors must lie in the file one behind the other, with nothing but alignment padding between them. */
static enum err check_tiling(const struct gguf *g, struct err_info *info)
{
    uint64_t expected = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[g->tensors_by_name[i]]; /* sorted by offset while this runs */
        if (t->offset != expected) {
            return err_set_at(info, ERR_TENSOR_OVERLAP, g->data_offset + t->offset,
                              "tensor '%.*s': expected at data offset %" PRIu64 ", found at %" PRIu64 " (%s)",
                              (int)t->name.len, t->name.data, expected, t->offset,
                              t->offset < expected ? "overlap" : "hole");
        }
        if (!ck_add(expected, t->bytes, &expected) || !ck_align(expected, g->alignment, &expected)) {
            return err_set_at(info, ERR_BAD_OFFSET, g->data_offset, "the tensors' sizes add up to more than 2^64");
        }
    }
    return ERR_OK;
}

static enum err place_tensors(struct gguf *g, struct err_info *info)
{
    uint64_t file = g->map.bytes;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t end;
        if (t->offset % g->alignment != 0) {
            return err_set_at(info, ERR_BAD_OFFSET, t->offset, "tensor '%.*s': offset %" PRIu64 " is not a multiple of %" PRIu64,
                              (int)t->name.len, t->name.data, t->offset, g->alignment);
        }
        if (!ck_add(t->offset, g->data_offset, &end) || end > file) {
            return err_set_at(info, ERR_BAD_OFFSET, MIN_OF(t->offset, file),
                              "tensor '%.*s': offset %" PRIu64 " lies outside the file of %" PRIu64 " bytes",
                              (int)t->name.len, t->name.data, t->offset, file);
        }
        if (!ck_add(end, t->bytes, &end) || end > file) {
            return err_set_at(info, ERR_TRUNCATED, file,
                              "tensor '%.*s' has %" PRIu64 " bytes from %" PRIu64 " on, the file ends at %" PRIu64,
                              (int)t->name.len, t->name.data, t->bytes, g->data_offset + t->offset, file);
        }
    }
    sort_indexes(g->tensors_by_name, g->n_tensors, order_offsets, g->tensors);
    TRY(check_tiling(g, info));
    for (size_t i = 0; i < g->n_tensors; i++) {
        g->tensors[i].offset += g->data_offset;
        g->tensors[i].data = g->map.data + g->tensors[i].offset;
    }
    sort_indexes(g->tensors_by_name, g->n_tensors, order_names, g->tensors);
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (order_names(g->tensors, g->tensors_by_name[i - 1], g->tensors_by_name[i]) == 0) {
            const struct gguf_tensor *t = &g->tensors[g->tensors_by_name[i]];
            return err_set_at(info, ERR_BAD_TENSOR_NAME, t->offset, "tensor '%.*s' stands twice", (int)t->name.len,
                              t->name.data);
        }
    }
    return ERR_OK;
}

static enum err read_alignment(struct gguf *g, struct err_info *info)
{
    g->alignment = GGUF_DEFAULT_ALIGNMENT;
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    if (kv == NULL) {
        return ERR_OK;
    }
    uint64_t a = kv->type == GGUF_U32 ? (uint64_t)gguf_elem_i64(kv, 0) : 0;
    if (a == 0 || a > GGUF_MAX_ALIGNMENT || (a & (a - 1)) != 0 || a % 8 != 0) {
        return err_set_at(info, ERR_BAD_ALIGNMENT, kv->offset,
                          "general.alignment: expected a u32 power of two from 8 to %d, found %s %" PRIu64,
                          GGUF_MAX_ALIGNMENT, gguf_type_name(kv->type), a);
    }
    g->alignment = a;
    return ERR_OK;
}

static enum err allocate(struct gguf *g, uint64_t n_tensors, uint64_t n_kv, struct err_info *info)
{
    g->kv = mem_zalloc_array((size_t)n_kv + 1, sizeof *g->kv, MEM_MODEL);
    g->kv_by_key = mem_zalloc_array((size_t)n_kv + 1, sizeof *g->kv_by_key, MEM_MODEL);
    g->tensors = mem_zalloc_array((size_t)n_tensors + 1, sizeof *g->tensors, MEM_MODEL);
    g->tensors_by_name = mem_zalloc_array((size_t)n_tensors + 1, sizeof *g->tensors_by_name, MEM_MODEL);
    if (g->kv == NULL || g->kv_by_key == NULL || g->tensors == NULL || g->tensors_by_name == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the directory of the model file");
    }
    return ERR_OK;
}

enum err gguf_parse(struct gguf *g, struct err_info *info)
{
    struct cursor c = {.data = g->map.data, .end = g->map.bytes, .info = info};
    uint64_t n_tensors = 0, n_kv = 0;
    TRY(parse_header(g, &c, &n_tensors, &n_kv));
    TRY(allocate(g, n_tensors, n_kv, info));
    for (; g->n_kv < n_kv; g->n_kv++) {
        TRY(parse_kv(&c, &g->kv[g->n_kv]));
    }
    TRY(index_keys(g, info));
    const struct gguf_kv *split = gguf_find(g, "split.count");
    if (split != NULL && split->type != GGUF_ARRAY && split->type != GGUF_STRING && gguf_elem_i64(split, 0) > 1) {
        return err_set_at(info, ERR_BAD_SPLIT, split->offset,
                          "expected a whole model, found one part of %" PRId64 "; split files are not supported yet",
                          gguf_elem_i64(split, 0));
    }
    TRY(read_alignment(g, info));
    for (; g->n_tensors < n_tensors; g->n_tensors++) {
        TRY(parse_tensor(&c, &g->tensors[g->n_tensors]));
    }
    if (!ck_align(c.at, g->alignment, &g->data_offset) || (g->data_offset > c.end && n_tensors > 0)) {
        return err_set_at(info, ERR_TRUNCATED, c.end, "expected tensor data at byte %" PRIu64 ", the file ends before",
                          g->data_offset);
    }
    return place_tensors(g, info);
}
