/* Reads request bodies: JSON with infcgi's limits, and a table-driven reader of typed fields.
 *
 * null equals absent everywhere. Unknown fields are ignored unless the server is strict. Lone surrogates and a UTF-8
 * byte order mark are rejected; \u0000 is data. Threads: pure functions. */
#ifndef INFCGI_FCGI_JSON_IN_H
#define INFCGI_FCGI_JSON_IN_H

#include "engine/base/json_read.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JSON_IN_MAX_DEPTH = 64,
    JSON_IN_MAX_FIELDS = 256,
    JSON_IN_IGNORED_BYTES = 64 << 10, /* maximum of an ignored text */
    JSON_IN_LABEL_CHARS =
        512, /* of FIELD_LABEL: OpenAI's API takes 64 and sets no limit for some, and clients send more */
    /* Limits of a body's tree in bytes, and as a multiple of the body's length. Token ids, the densest valid texts,
     * take 12 to 18 times their length. Empty objects take 100 times. */
    JSON_IN_TREE_BYTES = 96 << 20,
    JSON_IN_TREE_FACTOR = 24,
};

/* Parses text[0..n) as one JSON object, after checking that its tree is not too large. ERR_JSON_TOO_LARGE, ERR_NOMEM,
 * ERR_INVALID_JSON, ERR_INVALID_UTF8, ERR_JSON_TOO_DEEP, ERR_DUPLICATE_FIELD. Numbers can have any size
 * (json_number.h); the fields below check their ranges. The caller decrefs *out. */
MUST_CHECK enum err json_in_parse(const char *text, size_t n, json_t **out, struct err_info *info);

/* Stores the whole number v in *out: an integer, or a number with a zero fraction such as 2.0 or 4e1, which some
 * clients send for integers. Returns false and sets *out to 0 for other values and for numbers beyond 64 bits. v
 * OPTIONAL. */
bool json_in_integer(const json_t *v, int64_t *out);

enum field_kind {
    FIELD_BOOL,    /* bool */
    FIELD_INT,     /* int64_t in [min, max], by json_in_integer */
    FIELD_INT32,   /* int32_t in [min, max], likewise */
    FIELD_UINT64,  /* uint64_t: any whole number, two's complement */
    FIELD_FLOAT,   /* float in [min, max] */
    FIELD_STRING,  /* const char *, NUL-terminated, borrowed from the JSON; at most max bytes, none of them NUL */
    FIELD_LABEL,   /* a string of at most max characters without effect, or repeated in the answer */
    FIELD_IGNORED, /* known, has no effect; at most JSON_IN_IGNORED_BYTES or JSON_IN_MAX_FIELDS members */
    FIELD_CUSTOM,  /* known, read by the endpoint's own code */
    FIELD_REFUSED, /* not supported: ERR_UNSUPPORTED_PARAMETER unless null, false, or an empty array */
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset; /* of the member in the target struct */
    double min, max;
};

/* Reads the fields of `object` that the table of n rows lists into `target`. ERR_INVALID_TYPE, ERR_INVALID_VALUE,
 * ERR_UNSUPPORTED_PARAMETER, ERR_UNKNOWN_PARAMETER (only if strict); info->where is the field. */
MUST_CHECK enum err json_in_fields(const json_t *object, const struct field *table, size_t n, bool strict, void *target,
                                   struct err_info *info);

/* Reads a value that is not null into one row's member. */
MUST_CHECK enum err json_in_field(const struct field *f, const json_t *v, void *target, struct err_info *info);

/* Returns the error code for a value rejected where an integer in a range is expected: ERR_INVALID_VALUE for integers,
 * also beyond 64 bits, else ERR_INVALID_TYPE. */
enum err json_in_integer_code(const json_t *v);

/* Returns the number of characters in n bytes of UTF-8. */
size_t json_in_count(const char *s, size_t n);

/* Returns the number of characters of a JSON string; 0 for another value. */
size_t json_in_characters(const json_t *v);

/* Reports a wrong nested value, which has no table row: "WHERE: expected EXPECTED, found ..." with info->where. found:
 * the value at that position, or NULL. Returns code. */
enum err json_in_refuse(enum err code, const char *where, const char *expected, const json_t *found,
                        struct err_info *info);

#endif
