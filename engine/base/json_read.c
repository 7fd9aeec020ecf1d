/* The callers' interface: errors name the text and the position. json_read_size estimates a parse's memory before
 * it. */
#include "engine/base/json_read.h"

#include "engine/base/compiler.h"
#include "engine/base/json_parse.h"
#include "engine/base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Heap use of jansson 2.14 for parts of a text, including the headers of mem.h and malloc: an object and its first
 * eight buckets, an array and its first eight slots, ... [measured: json_read_test] */
enum {
    OBJECT_BYTES = 288,
    ARRAY_BYTES = 192,
    STRING_BYTES = 112, /* and the string itself */
    NUMBER_BYTES = 56,  /* and its digits, if it carries them */
    MAX_BARE = 15,      /* a number of up to this many bytes without an exponent carries no digits */
    MEMBER_BYTES = 80,  /* in addition to its key, counted as a string: slot in the object's list, growing buckets */
    ELEMENT_BYTES = 24, /* a slot in a growing array */
};

/* Returns the end of the number or word at s[i]; i if there is none. */
static size_t word_end(const char *s, size_t i, size_t n)
{
    while (i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                     s[i] == '.' || s[i] == '+' || s[i] == '-')) {
        i++;
    }
    return i;
}

static bool has_exponent(const char *s, size_t n) { return memchr(s, 'e', n) != NULL || memchr(s, 'E', n) != NULL; }

struct json_size json_read_size(const char *s, size_t n)
{
    struct json_size z = {0};
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        size_t from = i + 1;
        switch (s[i]) {
        case '"':
            i = json_string_end(s, from, n);
            z.bytes += STRING_BYTES + (i - from);
            z.n_values++;
            break;
        case '[':
        case '{':
            z.bytes += s[i] == '{' ? OBJECT_BYTES : ARRAY_BYTES;
            z.n_values++;
            depth++;
            z.depth = MAX_OF(z.depth, depth);
            break;
        case ']':
        case '}':
            depth -= depth > 0;
            break;
        case ':':
            z.bytes += MEMBER_BYTES;
            z.n_values--; /* the value before the colon was a key */
            break;
        case ',':
            z.bytes += ELEMENT_BYTES;
            break;
        default:
            from = word_end(s, i, n);
            if ((s[i] >= '0' && s[i] <= '9') || s[i] == '-') {
                bool may_carry = from - i > MAX_BARE || has_exponent(s + i, from - i);
                z.bytes += NUMBER_BYTES + (may_carry ? from - i + 1 : 0);
                z.n_values++;
            } else if (s[i] == 't' || s[i] == 'f' || s[i] == 'n') {
                z.n_values++; /* true, false and null are shared and take nothing */
            }
            i = MAX_OF(from, i + 1) - 1;
        }
    }
    return z;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Copies the name, as written, of the outermost field in which text[0..n) ends; "" if it ends in none. */
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
                from = start; /* a string value briefly replaces its name, but a comma or brace follows */
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

/* Computes line and column, in characters, of text[at], both from 1. */
static void place_of(const char *text, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        bool is_end = text[i] == '\n', begins = ((unsigned char)text[i] & 0xC0) != 0x80;
        *line += is_end;
        *column = is_end ? 1 : *column + begins;
    }
}

static enum err read_value(const struct json_source *from, const char *what, json_t **out, struct err_info *info)
{
    *out = NULL;
    size_t bad_at, line, column;
    if (!utf8_valid(from->s, from->n, &bad_at)) {
        return err_set(info, ERR_INVALID_UTF8, NULL, "%s is not valid UTF-8 at byte %zu", what, bad_at);
    }
    struct json_fault fault = {0};
    enum err err = json_parse(from, out, &fault);
    place_of(from->s, MIN_OF(fault.at, from->n), &line, &column);
    switch (err) {
    case ERR_OK:
        return ERR_OK;
    case ERR_JSON_TOO_DEEP:
        return err_set(info, err, NULL, "%s: expected JSON nested at most %zu deep", what, from->max_depth);
    case ERR_NOMEM:
        return err_set(info, err, NULL, "out of memory for the %zu bytes of %s", from->n, what);
    case ERR_INVALID_VALUE: {
        char name[ERR_WHERE_BYTES];
        field_at(from->s, fault.at, name, sizeof name);
        return err_set(info, err, name, "%s: the number at line %zu, column %zu is too large", name, line, column);
    }
    default:
        return err_set(info, err, NULL, "%s is not valid JSON: line %zu, column %zu: %s", what, line, column,
                       fault.text);
    }
}

static enum err read_object(const struct json_source *from, const char *what, json_t **out, struct err_info *info)
{
    *out = NULL;
    if (from->n == 0) {
        return err_set(info, ERR_INVALID_JSON, NULL, "%s: expected a JSON object, found nothing", what);
    }
    json_t *root;
    TRY(read_value(from, what, &root, info));
    if (!json_is_object(root)) {
        enum err err = err_set(info, ERR_INVALID_JSON, NULL, "%s: expected a JSON object, found %s", what,
                               json_read_type_name(root));
        json_decref(root);
        return err;
    }
    *out = root;
    return ERR_OK;
}

enum err json_read(const char *text, size_t n, size_t max_depth, const char *what, json_t **out, struct err_info *info)
{
    return read_object(&(struct json_source){text, n, max_depth, JSON_PARSE_STRICT}, what, out, info);
}

enum err json_read_file(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                        struct err_info *info)
{
    return read_object(&(struct json_source){text, n, max_depth, JSON_PARSE_FILE}, what, out, info);
}

enum err json_read_value(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                         struct err_info *info)
{
    return read_value(&(struct json_source){text, n, max_depth, JSON_PARSE_STRICT}, what, out, info);
}

enum err json_read_lenient(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                           struct err_info *info)
{
    return read_value(&(struct json_source){text, n, max_depth, JSON_PARSE_LENIENT}, what, out, info);
}

const char *json_read_type_name(const json_t *v)
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
        return json_number_is_wide(v) ? "an integer of more than 64 bits" : "a number with a fraction";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

enum { SHOWN = 64 /* bytes of a text or of digits */ };

static void show_text(const char *s, size_t n, char room[JSON_READ_SHOWN])
{
    enum { MAX_ESCAPE = sizeof "\\u0000" };
    size_t at = 0;
    room[at++] = '\'';
    for (size_t i = 0; i < n && at <= SHOWN; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == 0x7F) {
            at += (size_t)snprintf(room + at, MAX_ESCAPE, "\\u%04x", c);
        } else {
            room[at++] = s[i];
        }
    }
    room[at++] = '\'';
    room[at] = '\0';
}

const char *json_read_show(const json_t *v, char room[JSON_READ_SHOWN])
{
    if (json_is_string(v)) {
        show_text(json_string_value(v), json_string_length(v), room);
    } else if (json_is_integer(v)) {
        snprintf(room, JSON_READ_SHOWN, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    } else if (json_number_digits(v) != NULL) {
        const char *digits = json_number_digits(v);
        snprintf(room, JSON_READ_SHOWN, "%.*s%s", SHOWN, digits, strlen(digits) > SHOWN ? "..." : "");
    } else if (json_is_real(v)) {
        snprintf(room, JSON_READ_SHOWN, "%g", json_real_value(v));
    } else if (json_is_boolean(v)) {
        snprintf(room, JSON_READ_SHOWN, "%s", json_is_true(v) ? "true" : "false");
    } else {
        snprintf(room, JSON_READ_SHOWN, "%s", v == NULL ? "none" : json_read_type_name(v));
    }
    return room;
}

bool json_read_is(const json_t *v, const char *text)
{
    size_t n = json_string_length(v); /* 0 if v is not a string */
    return json_is_string(v) && n == strlen(text) && memcmp(json_string_value(v), text, n) == 0;
}

const json_t *json_read_get(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return v == NULL || json_is_null(v) ? NULL : v;
}
