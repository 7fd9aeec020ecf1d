/* JSON that strangers wrote, request bodies and files of models alike: jansson behind the checks that it lacks. Its
 * parser recurses, so depth is looked at first; bytes that are not UTF-8, keys that stand twice and numbers that
 * neither 64 bits nor a double hold are refused. \u0000 is data. Threads: pure functions. */
#ifndef INFCGI_BASE_JSON_READ_H
#define INFCGI_BASE_JSON_READ_H

#include "engine/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Makes jansson take its memory through mem.h: as MEM_REQUEST where a request is answered, else as MEM_GENERAL. Call it
 * first of all: what jansson took before cannot be freed after. */
void json_read_use_mem(void);

/* What a text would be once parsed, told without parsing it: at most so many bytes of heap, and 2.5 times less at the
 * least. Linear in n. Malformed text gives any figures: the parser judges it later. */
struct json_size {
    size_t bytes, n_values, depth;
    size_t longest; /* bytes of the longest string, number or word */
};
struct json_size json_read_size(const char *text, size_t n);

/* Parses text[0..n) as one JSON object, nested at most max_depth deep. `what` begins messages: "the body", a file's
 * name. ERR_INVALID_JSON, ERR_INVALID_UTF8, ERR_JSON_TOO_DEEP, ERR_DUPLICATE_FIELD, ERR_NOMEM, ERR_INVALID_VALUE (a
 * number; info->where is its outermost field). The caller decrefs *out. */
MUST_CHECK enum err json_read(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                              struct err_info *info);

/* The same for a file of a model: integers that 64 bits do not hold are doubles, as Python writes such
 * (model_max_length of tokenizer_config.json, 10^30 where none is known). */
MUST_CHECK enum err json_read_file(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                                   struct err_info *info);

/* The member, or NULL when absent or null. */
const json_t *json_read_get(const json_t *object, const char *name);

/* Is v the string `text`? All of its bytes count: "a\u0000b" is not "a". v may be NULL. */
bool json_read_is(const json_t *v, const char *text);

/* "a string", "an object", ... for messages. */
const char *json_read_type_name(const json_t *v);

/* What was found, for messages: 'a short string' with control characters as \u0000, a number, true, false, null; "none"
 * for NULL; else the type's name. Returns room. */
enum { JSON_READ_SHOWN = 80 };
const char *json_read_show(const json_t *v, char room[JSON_READ_SHOWN]);

#endif
