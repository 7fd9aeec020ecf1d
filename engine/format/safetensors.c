/* Parses the bytes of a SafeTensors file into its directory. The header is one flat JSON object: {"__metadata__":
 * {...}, "NAME": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, ...} */
#include "engine/format/safetensors.h"

#include "engine/base/ck.h"
#include "engine/base/json_read.h"
#include "engine/base/mem.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, MAX_DEPTH = 4, FOUND_BYTES = 160 };
#define MAX_DIM (1ull << 53) /* JSON readers differ on larger integers */

struct safetensors {
    struct io_map map;
    bool is_borrowed;
    struct st_tensor *tensors;
    size_t n_tensors;
    struct arena names;
};

/* A tensor's entry in the header. */
struct entry {
    const char *name;
    json_t *object;
    uint64_t begin, end; /* of the data section */
};

static const struct {
    const char *name;
    unsigned bits;
} dtypes[ST_DTYPE_COUNT] = {
#define ST_ROW(id, name, bits) [id] = {name, bits},
    SAFETENSORS_DTYPES(ST_ROW)
#undef ST_ROW
};

const char *st_dtype_name(enum st_dtype dtype) { return dtypes[dtype].name; }
unsigned st_dtype_bits(enum st_dtype dtype) { return dtypes[dtype].bits; }
size_t safetensors_n_tensors(const struct safetensors *s) { return s->n_tensors; }
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i) { return &s->tensors[i]; }
const struct io_map *safetensors_map(const struct safetensors *s) { return &s->map; }

/* --- entries ------------------------------------------------------------------------------------------------------ */

static enum err read_dtype(const struct entry *e, struct st_tensor *t, struct err_info *info)
{
    const json_t *v = json_object_get(e->object, "dtype");
    const char *found = json_string_value(v);
    for (int i = 0; found != NULL && i < ST_DTYPE_COUNT; i++) {
        if (strcmp(found, dtypes[i].name) == 0 && strlen(found) == json_string_length(v)) { /* no \u0000 after it */
            t->dtype = (enum st_dtype)i;
            return ERR_OK;
        }
    }
    if (found == NULL) {
        found = v == NULL ? "none" : json_read_type_name(v);
    }
    return err_set(info, ERR_BAD_DTYPE, e->name, "tensor '%.255s': expected a dtype such as BF16, found %.64s", e->name,
                   found);
}

/* Reads a member of an array as an integer of 0 or more. */
static bool read_count(const json_t *array, size_t i, uint64_t *out)
{
    const json_t *v = json_array_get(array, i);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* Writes a short text for a value that should be an array of counts: "[2, -3]", "a string". */
static void write_found(const json_t *v, char *out, size_t cap)
{
    if (!json_is_array(v)) {
        snprintf(out, cap, "%s", v == NULL ? "none" : json_read_type_name(v));
        return;
    }
    snprintf(out, cap, "[");
    for (size_t i = 0; i <= json_array_size(v); i++) {
        size_t n = strlen(out);
        const json_t *e = json_array_get(v, i);
        const char *comma = i == 0 ? "" : ", ";
        if (e == NULL) {
            snprintf(out + n, cap - n, "]");
        } else if (n + 40 > cap) {
            snprintf(out + n, cap - n, "%s...]", comma);
            break;
        } else if (json_is_integer(e)) {
            snprintf(out + n, cap - n, "%s%lld", comma, (long long)json_integer_value(e));
        } else if (json_is_real(e)) {
            char room[JSON_NUMBER_BYTES];
            snprintf(out + n, cap - n, "%s%.24s", comma, json_number_text(e, room));
        } else {
            snprintf(out + n, cap - n, "%s%s", comma, json_read_type_name(e));
        }
    }
}

static enum err read_shape(const struct entry *e, struct st_tensor *t, struct err_info *info)
{
    const json_t *shape = json_object_get(e->object, "shape");
    size_t n = json_array_size(shape);
    uint64_t bits = dtypes[t->dtype].bits;
    bool fits = json_is_array(shape) && n <= SAFETENSORS_MAX_DIMS;
    for (size_t i = 0; fits && i < n; i++) {
        fits = read_count(shape, i, &t->dims[i]) && t->dims[i] <= MAX_DIM && ck_mul(bits, t->dims[i], &bits);
    }
    if (!fits) {
        char found[FOUND_BYTES];
        write_found(shape, found, sizeof found);
        return err_set(
            info, ERR_BAD_SHAPE, e->name,
            "tensor '%.255s': expected a shape of at most %d dimensions, integers of 0 to 2^53 whose product is below "
            "2^61, found %s",
            e->name, SAFETENSORS_MAX_DIMS, found);
    }
    t->n_dims = (int)n;
    t->bytes = bits / 8;
    return ERR_OK;
}

static enum err read_range(struct entry *e, struct err_info *info)
{
    const json_t *range = json_object_get(e->object, "data_offsets");
    if (json_array_size(range) != 2 || !read_count(range, 0, &e->begin) || !read_count(range, 1, &e->end) ||
        e->begin > e->end) {
        char found[FOUND_BYTES];
        write_found(range, found, sizeof found);
        return err_set(
            info, ERR_BAD_OFFSET, e->name,
            "tensor '%.255s': expected data_offsets [begin, end], two integers with 0 <= begin <= end, found "
            "%s",
            e->name, found);
    }
    return ERR_OK;
}

static enum err read_entry(struct safetensors *s, struct entry *e, struct st_tensor *t, struct err_info *info)
{
    TRY(read_dtype(e, t, info));
    TRY(read_shape(e, t, info));
    if (e->end - e->begin != t->bytes) {
        return err_set(info, ERR_SIZE_MISMATCH, e->name,
                       "tensor '%.255s': expected %" PRIu64 " bytes, as dtype and shape say, found %" PRIu64
                       " in data_offsets",
                       e->name, t->bytes, e->end - e->begin);
    }
    t->name = arena_dup(&s->names, e->name, strlen(e->name));
    return t->name != NULL ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for the names of tensors");
}

/* --- the header --------------------------------------------------------------------------------------------------- */

static int order_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = (x->begin > y->begin) - (x->begin < y->begin);
    return order != 0 ? order : (x->end > y->end) - (x->end < y->end); /* empty tensors before the one that follows */
}

/* Tensors in the order of their data must cover it. Only a layout that is consistent and longer than the file is called
 * truncated. */
static enum err check_tiling(const struct entry *e, size_t n, uint64_t room, struct err_info *info)
{
    uint64_t at = 0;
    const struct entry *cut = NULL; /* the first tensor that does not fit */
    for (size_t i = 0; i < n; at = e[i].end, i++) {
        if (e[i].begin > at && e[i].end > room) {
            return err_set(info, ERR_BAD_OFFSET, e[i].name,
                           "tensor '%.255s': expected data from byte %" PRIu64 " on, found %" PRIu64 " to %" PRIu64
                           ", beyond the end of the data at %" PRIu64,
                           e[i].name, at, e[i].begin, e[i].end, room);
        }
        if (e[i].begin != at) {
            return err_set(info, ERR_TENSOR_OVERLAP, e[i].name,
                           "tensor '%.255s': expected data from byte %" PRIu64 " on, found %" PRIu64 ", which %s",
                           e[i].name, at, e[i].begin, e[i].begin < at ? "overlaps another tensor" : "leaves a hole");
        }
        cut = cut == NULL && e[i].end > room ? &e[i] : cut;
    }
    if (cut != NULL) {
        return err_set(info, ERR_TRUNCATED, cut->name,
                       "tensor '%.255s': expected data up to byte %" PRIu64
                       " after the header, found the end of the file at %" PRIu64,
                       cut->name, cut->end, room);
    }
    return at == room ? ERR_OK
                      : err_set(info, ERR_TENSOR_OVERLAP, NULL,
                                "expected data of %" PRIu64 " bytes, as the tensors say, found %" PRIu64, at, room);
}

static enum err list_entries(json_t *header, struct entry *out, size_t *n, struct err_info *info)
{
    const char *name;
    json_t *v;
    *n = 0;
    json_object_foreach(header, name, v)
    {
        if (!json_is_object(v)) {
            return err_set(info, ERR_BAD_HEADER, name, "'%.255s': expected an object, found %s", name,
                           json_read_type_name(v));
        }
        bool is_tensor = strcmp(name, "__metadata__") != 0;
        if (is_tensor && (name[0] == '\0' || strlen(name) > SAFETENSORS_MAX_NAME_BYTES)) {
            return err_set(info, ERR_BAD_TENSOR_NAME, NULL, "a tensor name: expected 1 to %d bytes, found %zu",
                           SAFETENSORS_MAX_NAME_BYTES, strlen(name));
        }
        if (is_tensor) {
            out[(*n)++] = (struct entry){.name = name, .object = v};
        }
    }
    return ERR_OK;
}

static enum err read_header(struct safetensors *s, json_t *header, uint64_t data_offset, struct entry *entries,
                            struct err_info *info)
{
    size_t n;
    uint64_t room = s->map.bytes - data_offset;
    TRY(list_entries(header, entries, &n, info));
    s->tensors = mem_zalloc_array(n + 1, sizeof *s->tensors, MEM_MODEL);
    TRY_MEM_FOR(s->tensors != NULL, info, "out of memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) { /* ranges first, because they define the order */
        TRY(read_range(&entries[i], info));
    }
    qsort(entries, n, sizeof *entries, order_entries);
    for (s->n_tensors = 0; s->n_tensors < n; s->n_tensors++) {
        TRY(read_entry(s, &entries[s->n_tensors], &s->tensors[s->n_tensors], info));
    }
    TRY(check_tiling(entries, n, room, info));
    for (size_t i = 0; i < n; i++) {
        s->tensors[i].data = s->map.data + data_offset + entries[i].begin;
    }
    return ERR_OK;
}

/* Reads the header's length; a file of another kind does not have JSON after it. */
static enum err read_length(const struct io_map *map, uint64_t *out, struct err_info *info)
{
    if (map->bytes < LENGTH_BYTES) {
        return err_set_at(info, ERR_TRUNCATED_HEADER, map->bytes, "expected a header of 8 bytes and more, found %zu",
                          map->bytes);
    }
    memcpy(out, map->data, LENGTH_BYTES);
    if (*out < 2 || *out > SAFETENSORS_MAX_HEADER_BYTES || *out > map->bytes - LENGTH_BYTES) {
        return err_set_at(info, ERR_BAD_HEADER_LENGTH, 0,
                          "expected a header of 2 to %d bytes that the file's %zu can hold, found %" PRIu64,
                          SAFETENSORS_MAX_HEADER_BYTES, map->bytes, *out);
    }
    if (map->data[LENGTH_BYTES] != '{') {
        return err_set_at(info, ERR_BAD_HEADER, LENGTH_BYTES,
                          "expected a header that begins with '{', found byte 0x%02X", map->data[LENGTH_BYTES]);
    }
    return ERR_OK;
}

/* Counts values first, because each one costs the parser time and memory. n_values: about the number of tensors,
 * dimensions and offsets, or more; n_entries: of the outermost object. Malformed text gives arbitrary numbers. */
static enum err check_counts(const char *s, size_t n, struct err_info *info)
{
    uint64_t n_values = 1, n_entries = 1;
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') {
            i++;
            while (i < n && s[i] != '"') {
                i += s[i] == '\\' ? 2 : 1;
            }
            continue;
        }
        depth += s[i] == '[' || s[i] == '{';
        depth -= depth > 0 && (s[i] == ']' || s[i] == '}');
        n_values += s[i] == ',';
        n_entries += s[i] == ',' && depth == 1;
    }
    if (n_entries > SAFETENSORS_MAX_TENSORS + 1) { /* one can be __metadata__ */
        return err_set(info, ERR_COUNT_EXCEEDS_FILE, NULL, "tensor count: expected at most %d, found %" PRIu64,
                       SAFETENSORS_MAX_TENSORS, n_entries);
    }
    return n_values <= SAFETENSORS_MAX_VALUES
               ? ERR_OK
               : err_set(info, ERR_BAD_HEADER, NULL,
                         "the header: expected at most %d values, found %" PRIu64 " between commas",
                         SAFETENSORS_MAX_VALUES, n_values);
}

static enum err parse(struct safetensors *s, struct err_info *info)
{
    uint64_t n = 0;
    json_t *header;
    TRY(read_length(&s->map, &n, info));
    const char *text = (const char *)s->map.data + LENGTH_BYTES;
    TRY(check_counts(text, (size_t)n, info));
    enum err err = json_read(text, (size_t)n, MAX_DEPTH, "the header", &header, info);
    if (err != ERR_OK) {
        bool is_malformed = err == ERR_INVALID_JSON || err == ERR_INVALID_UTF8; /* codes of request bodies */
        err = is_malformed ? ERR_BAD_HEADER : err;
        err = err == ERR_DUPLICATE_FIELD ? ERR_DUPLICATE_KEY : err;
        if (info != NULL) {
            info->code = err;
        }
        return err;
    }
    size_t n_entries = json_object_size(header);
    struct entry *entries = mem_zalloc_array(n_entries + 1, sizeof *entries, MEM_GENERAL);
    err = entries == NULL ? err_set(info, ERR_NOMEM, NULL, "out of memory for %zu tensors", n_entries)
                          : read_header(s, header, LENGTH_BYTES + n, entries, info);
    mem_free(entries);
    json_decref(header);
    return err;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static enum err new_object(struct safetensors **out, struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for the model file");
    (*out)->map.fd = -1;
    arena_init(&(*out)->names, 4096, 0, MEM_MODEL);
    return ERR_OK;
}

static enum err finish(struct safetensors **s, enum err err)
{
    if (err != ERR_OK) {
        safetensors_close(s);
    }
    return err;
}

enum err safetensors_open(const char *path, struct safetensors **out, struct err_info *info)
{
    TRY(new_object(out, info));
    enum err err = io_map_open(path, &(*out)->map, info);
    return finish(out, err != ERR_OK ? err : parse(*out, info));
}

enum err safetensors_open_memory(const void *data, size_t n, struct safetensors **out, struct err_info *info)
{
    TRY(new_object(out, info));
    (*out)->is_borrowed = true;
    (*out)->map = (struct io_map){.data = data, .bytes = n, .fd = -1};
    return finish(out, parse(*out, info));
}

void safetensors_close(struct safetensors **safetensors)
{
    struct safetensors *s = *safetensors;
    if (s == NULL) {
        return;
    }
    if (!s->is_borrowed) {
        io_map_close(&s->map);
    }
    arena_fini(&s->names);
    mem_free(s->tensors);
    mem_free(s);
    *safetensors = NULL;
}
