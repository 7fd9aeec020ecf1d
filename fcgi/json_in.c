/* jansson does the parsing; what it does not limit is scanned for first, because its parser recurses. */
#include "fcgi/json_in.h"

#include "engine/base/compiler.h"
#include "engine/base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Deepest nesting of the text, strings skipped. Malformed text gives any number: the parser judges it later. */
static size_t depth_of(const char *s, size_t n)
{
    size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (in_string) {
            in_string = s[i] != '"';
            i += s[i] == '\\'; /* what is escaped ends no string */
            continue;
        }
        in_string = s[i] == '"';
        depth += s[i] == '[' || s[i] == '{';
        depth -= depth > 0 && (s[i] == ']' || s[i] == '}');
        deepest = MAX_OF(deepest, depth);
    }
    return deepest;
}

static enum err code_of(const json_error_t *e)
{
    switch (json_error_code(e)) {
    case json_error_invalid_utf8:
        return ERR_INVALID_UTF8;
    case json_error_duplicate_key:
        return ERR_DUPLICATE_FIELD;
    case json_error_stack_overflow:
        return ERR_JSON_TOO_DEEP;
    case json_error_out_of_memory:
        return ERR_NOMEM;
    case json_error_numeric_overflow:
        return ERR_INVALID_VALUE;
    default:
        return ERR_INVALID_JSON;
    }
}

/* Copies the name, as written, of the outermost field that text[0..n) ends in; "" when it ends in none. */
static void field_at(const char *s, size_t n, char *name, size_t cap)
{
    size_t depth = 0, from = 0, len = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') {
            size_t start = i + 1;
            for (i = start; i < n && s[i] != '"'; i++) {
                i += s[i] == '\\';
            }
            if (depth == 1 && i < n) {
                from = start; /* a value's text takes the place of its name for a moment: a comma or brace follows */
                len = i - start;
            }
            continue;
        }
        if (depth == 1 && s[i] == ',') {
            len = 0;
        }
        depth += s[i] == '[' || s[i] == '{';
        depth -= depth > 0 && (s[i] == ']' || s[i] == '}');
    }
    snprintf(name, cap, "%.*s", (int)MIN_OF(len, cap - 1), s + from);
}

enum err json_in_parse(const char *text, size_t n, json_t **out, struct err_info *info)
{
    *out = NULL;
    size_t bad_at;
    if (n == 0) {
        return err_set(info, ERR_INVALID_JSON, NULL, "expected a JSON object, found an empty body");
    }
    if (!utf8_valid(text, n, &bad_at)) {
        return err_set(info, ERR_INVALID_UTF8, NULL, "the body is not valid UTF-8 at byte %zu", bad_at);
    }
    if (depth_of(text, n) > JSON_IN_MAX_DEPTH) {
        return err_set(info, ERR_JSON_TOO_DEEP, NULL, "expected JSON nested at most %d deep", JSON_IN_MAX_DEPTH);
    }
    json_error_t e;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (root == NULL && code_of(&e) == ERR_INVALID_VALUE) {
        char name[ERR_WHERE_BYTES];
        field_at(text, MIN_OF((size_t)MAX_OF(e.position, 0), n), name, sizeof name);
        return err_set(info, ERR_INVALID_VALUE, name, "%s: the number at line %d, column %d is too large", name, e.line,
                       e.column);
    }
    if (root == NULL) {
        return err_set(info, code_of(&e), NULL, "the body is not valid JSON: line %d, column %d: %s", e.line, e.column,
                       e.text);
    }
    if (!json_is_object(root)) {
        enum err err =
            err_set(info, ERR_INVALID_JSON, NULL, "expected a JSON object, found %s", json_in_type_name(root));
        json_decref(root);
        return err;
    }
    *out = root;
    return ERR_OK;
}

const char *json_in_type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

const json_t *json_in_get(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return v == NULL || json_is_null(v) ? NULL : v;
}

/* --- fields --------------------------------------------------------------------------------------------------------
 */

static enum err wrong_type(const struct field *f, const char *expected, const json_t *v, struct err_info *info)
{
    return err_set(info, ERR_INVALID_TYPE, f->name, "%s: expected %s, found %s", f->name, expected,
                   json_in_type_name(v));
}

static enum err read_integer(const struct field *f, const json_t *v, void *to, struct err_info *info)
{
    if (!json_is_integer(v)) {
        return wrong_type(f, "an integer", v, info);
    }
    json_int_t i = json_integer_value(v);
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
        return err_set(info, ERR_INVALID_VALUE, f->name, "%s: expected %g to %g, found %g", f->name, f->min, f->max, d);
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

static enum err read_field(const struct field *f, const json_t *v, void *target, struct err_info *info)
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
    case FIELD_IGNORED:
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
            TRY(read_field(f, v, target, info));
        }
    }
    return ERR_OK;
}
