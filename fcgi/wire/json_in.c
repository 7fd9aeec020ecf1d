/* A table-driven reader of typed fields. */
#include "fcgi/wire/json_in.h"

#include "engine/base/compiler.h"

#include <math.h>
#include <string.h>

enum err json_in_parse(const char *text, size_t n, json_t **out, struct err_info *info)
{
    struct json_size z = json_read_size(text, n);
    size_t most = MAX_OF((size_t)JSON_IN_TREE_BYTES, JSON_IN_TREE_FACTOR * n);
    *out = NULL;
    if (z.depth > JSON_IN_MAX_DEPTH) { /* checked before parsing, because such a body can also be too large */
        return err_set(info, ERR_JSON_TOO_DEEP, NULL, "the body: expected JSON nested at most %d deep",
                       JSON_IN_MAX_DEPTH);
    }
    if (z.bytes > most) {
        return err_set(
            info, ERR_JSON_TOO_LARGE, NULL,
            "the body: expected JSON that takes at most %zu MiB of memory, found %zu values that take %zu MiB",
            most >> 20, z.n_values, (z.bytes >> 20) + 1);
    }
    return json_read(text, n, JSON_IN_MAX_DEPTH, "the body", out, info);
}

/* --- fields ----------------------------------------------------------------------------------------------------- */

static enum err wrong_type(const struct field *f, const char *expected, const json_t *v, struct err_info *info)
{
    return err_set(info, ERR_INVALID_TYPE, f->name, "%s: expected %s, found %s", f->name, expected,
                   json_read_type_name(v));
}

bool json_in_integer(const json_t *v, int64_t *out)
{
    double d = json_real_value(v);
    bool is_whole = json_is_real(v) && json_number_digits(v) == NULL && d == floor(d) && d >= -0x1p63 && d < 0x1p63;
    *out = json_is_integer(v) ? json_integer_value(v) : is_whole ? (int64_t)d : 0;
    return json_is_integer(v) || is_whole;
}

static enum err read_integer(const struct field *f, const json_t *v, void *to, struct err_info *info)
{
    int64_t i;
    if (json_number_is_beyond(v)) {
        char shown[JSON_READ_SHOWN];
        json_read_show(v, shown);
        return f->kind == FIELD_UINT64
                   ? err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected an integer of 64 bits with sign, found %s",
                             f->name, shown)
                   : err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected %.0f to %.0f, found %s", f->name, f->min,
                             f->max, shown);
    }
    if (!json_in_integer(v, &i)) {
        return wrong_type(f, "an integer", v, info);
    }
    if (f->kind == FIELD_UINT64) {
        *(uint64_t *)to = (uint64_t)i;
        return ERR_OK;
    }
    if ((double)i < f->min || (double)i > f->max) {
        return err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected %.0f to %.0f, found %lld", f->name, f->min,
                       f->max, (long long)i);
    }
    if (f->kind == FIELD_INT32) {
        *(int32_t *)to = (int32_t)i;
    } else {
        *(int64_t *)to = i;
    }
    return ERR_OK;
}

static enum err read_float(const struct field *f, const json_t *v, void *to, struct err_info *info)
{
    if (!json_is_number(v)) {
        return wrong_type(f, "a number", v, info);
    }
    double d = json_number_value(v);
    if (!(d >= f->min && d <= f->max)) {
        char shown[JSON_READ_SHOWN];
        return err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected %g to %g, found %s", f->name, f->min, f->max,
                       json_read_show(v, shown));
    }
    *(float *)to = (float)d;
    return ERR_OK;
}

static enum err read_string(const struct field *f, const json_t *v, void *to, struct err_info *info)
{
    if (!json_is_string(v)) {
        return wrong_type(f, "a string", v, info);
    }
    size_t n = json_string_length(v);
    if ((double)n > f->max || memchr(json_string_value(v), 0, n) != NULL) {
        return err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected at most %.0f bytes without NUL, found %zu bytes",
                       f->name, f->max, n);
    }
    *(const char **)to = json_string_value(v);
    return ERR_OK;
}

static enum err refuse(const struct field *f, const json_t *v, struct err_info *info)
{
    bool is_off = json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0);
    return is_off ? ERR_OK
                  : err_set(info, ERR_UNSUPPORTED_PARAMETER, f->name, "%s is not supported by this server", f->name);
}

size_t json_in_count(const char *s, size_t n)
{
    size_t n_characters = 0;
    for (size_t i = 0; i < n; i++) {
        n_characters += ((unsigned char)s[i] & 0xC0) != 0x80; /* skips continuation bytes */
    }
    return n_characters;
}

size_t json_in_characters(const json_t *v) { return json_in_count(json_string_value(v), json_string_length(v)); }

static enum err read_label(const struct field *f, const json_t *v, struct err_info *info)
{
    size_t n = json_in_characters(v);
    if (!json_is_string(v)) {
        return wrong_type(f, "a string", v, info);
    }
    return (double)n <= f->max ? ERR_OK
                               : err_set(info, ERR_INVALID_VALUE, f->name,
                                         "%s: expected at most %.0f characters, found %zu", f->name, f->max, n);
}

static enum err read_ignored(const struct field *f, const json_t *v, struct err_info *info)
{
    size_t n = json_is_array(v) ? json_array_size(v) : json_object_size(v), n_bytes = json_string_length(v);
    if (n > JSON_IN_MAX_FIELDS || n_bytes > JSON_IN_IGNORED_BYTES) {
        return err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected at most %d %s, found %zu", f->name,
                       json_is_string(v) ? (int)JSON_IN_IGNORED_BYTES : (int)JSON_IN_MAX_FIELDS,
                       json_is_string(v) ? "bytes" : "members", MAX_OF(n, n_bytes));
    }
    return ERR_OK;
}

enum err json_in_field(const struct field *f, const json_t *v, void *target, struct err_info *info)
{
    void *to = (char *)target + f->offset;
    switch (f->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(v)) {
            return wrong_type(f, "a boolean", v, info);
        }
        *(bool *)to = json_is_true(v);
        return ERR_OK;
    case FIELD_INT:
    case FIELD_INT32:
    case FIELD_UINT64:
        return read_integer(f, v, to, info);
    case FIELD_FLOAT:
        return read_float(f, v, to, info);
    case FIELD_STRING:
        return read_string(f, v, to, info);
    case FIELD_REFUSED:
        return refuse(f, v, info);
    case FIELD_LABEL:
        return read_label(f, v, info);
    case FIELD_IGNORED:
        return read_ignored(f, v, info);
    case FIELD_CUSTOM:
        return ERR_OK;
    }
    return ERR_INTERNAL;
}

enum err json_in_fields(const json_t *object, const struct field *table, size_t n, bool strict, void *target,
                        struct err_info *info)
{
    if (json_object_size(object) > JSON_IN_MAX_FIELDS) {
        return err_set(info, ERR_INVALID_VALUE, NULL, "expected at most %d fields, found %zu", JSON_IN_MAX_FIELDS,
                       json_object_size(object));
    }
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)object, name, v)
    {
        const struct field *f = NULL;
        for (size_t i = 0; i < n && f == NULL; i++) {
            f = strcmp(table[i].name, name) == 0 ? &table[i] : NULL;
        }
        if (f == NULL && strict) {
            return err_set(info, ERR_UNKNOWN_PARAMETER, name, "%.64s is not a known parameter", name);
        }
        if (f != NULL && !json_is_null(v)) {
            TRY(json_in_field(f, v, target, info));
        }
    }
    return ERR_OK;
}

enum err json_in_integer_code(const json_t *v)
{
    int64_t i;
    return json_in_integer(v, &i) || json_number_is_beyond(v) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE;
}

enum err json_in_refuse(enum err code, const char *where, const char *expected, const json_t *found,
                        struct err_info *info)
{
    char shown[JSON_READ_SHOWN];
    return err_set(info, code, where, "%s: expected %s, found %s", where, expected, json_read_show(found, shown));
}
