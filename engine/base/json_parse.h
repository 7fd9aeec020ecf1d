/* The parser of json_read.h: text to jansson values, without recursion. Threads: pure functions. */
#ifndef INFCGI_BASE_JSON_PARSE_H
#define INFCGI_BASE_JSON_PARSE_H

#include "engine/base/err.h"

#include <jansson.h>
#include <stddef.h>

enum json_parse_mode {
    JSON_PARSE_STRICT, /* RFC 8259 without duplicate keys, lone surrogates and NUL in keys */
    JSON_PARSE_FILE,   /* like STRICT, but rejects numbers beyond a double */
    /* what Python's json.loads reads: a duplicate key keeps its last value, a lone surrogate becomes U+FFFD, and NaN,
     * Infinity and -Infinity are numbers */
    JSON_PARSE_LENIENT,
};

/* Why and at which byte a text was rejected. */
struct json_fault {
    size_t at;
    char text[96];
};

/* A text s[0..n) of values nested at most max_depth deep. */
struct json_source {
    const char *s;
    size_t n, max_depth;
    enum json_parse_mode mode;
};

/* Returns where the quote is that ends the string whose first character is s[i]; n if there is none. */
static inline size_t json_string_end(const char *s, size_t i, size_t n)
{
    while (i < n && s[i] != '"') {
        i += s[i] == '\\' ? 2 : 1; /* an escaped character does not end the string */
    }
    return i < n ? i : n;
}

/* Parses a text, valid UTF-8, as one value of any type. Numbers follow json_number.h. ERR_INVALID_JSON,
 * ERR_DUPLICATE_FIELD, ERR_JSON_TOO_DEEP, ERR_INVALID_VALUE (a number): *why is filled. ERR_NOMEM. The caller decrefs
 * *out, which is NULL on failure. */
MUST_CHECK enum err json_parse(const struct json_source *from, json_t **out, struct json_fault *why);

#endif
