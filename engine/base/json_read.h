/* JSON from clients and from files of models. Depth is limited. Bytes that are not UTF-8, duplicate keys and lone
 * surrogates are rejected, except by json_read_lenient. \u0000 is data. Numbers of any size pass: those that neither
 * int64 nor a double holds carry their digits (json_number.h). Threads: pure functions. */
#ifndef INFCGI_BASE_JSON_READ_H
#define INFCGI_BASE_JSON_READ_H

#include "engine/base/err.h"
#include "engine/base/json_number.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Estimates the parsed size without parsing. bytes is an upper bound, at most 2.5 times the actual heap use. Linear in
 * n. Malformed text gives arbitrary numbers; the parser rejects it later. */
struct json_size {
    size_t bytes, n_values, depth;
};
struct json_size json_read_size(const char *s, size_t n);

/* Parses text[0..n) as one JSON object, nested at most max_depth deep. `what` begins messages: "the body", a file's
 * name. ERR_INVALID_JSON, ERR_INVALID_UTF8, ERR_JSON_TOO_DEEP, ERR_DUPLICATE_FIELD, ERR_NOMEM. The caller decrefs *out,
 * which is NULL on failure. */
MUST_CHECK enum err json_read(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                              struct err_info *info);

/* Like json_read, but rejects numbers beyond a double: ERR_INVALID_VALUE, info->where is the outermost field. */
MUST_CHECK enum err json_read_file(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                                   struct err_info *info);

/* Like json_read, but the text can be a value of any type. */
MUST_CHECK enum err json_read_value(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                                    struct err_info *info);

/* Like json_read_value, but reads what Python's json.loads reads: a duplicate key keeps its last value, a lone surrogate
 * becomes U+FFFD, and NaN, Infinity and -Infinity are numbers that carry these words as digits. */
MUST_CHECK enum err json_read_lenient(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                                      struct err_info *info);

/* Returns the member, or NULL if it is absent or null. */
const json_t *json_read_get(const json_t *object, const char *name);

/* Returns whether v is the string `text`. All bytes count: "a\u0000b" is not "a". v can be NULL. */
bool json_read_is(const json_t *v, const char *text);

/* Returns "a string", "an object", ... for messages. */
const char *json_read_type_name(const json_t *v);

/* Returns the value as messages show it: 'a short string' with control characters as \u0000, a number, true, false,
 * null; "none" for NULL; else the type's name. Returns room. */
enum { JSON_READ_SHOWN = 80 };
const char *json_read_show(const json_t *v, char room[JSON_READ_SHOWN]);

#endif
