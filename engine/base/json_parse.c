/* A loop over an explicit stack of open objects and arrays. Each value joins its parent when it begins, so after a
 * failure one decref of the root frees everything. */
#include "engine/base/json_parse.h"

#include "engine/base/compiler.h"
#include "engine/base/hex.h"
#include "engine/base/json_number.h"
#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "engine/base/utf8.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory for one string or number, reused for the next. */
struct scratch {
    char *p;
    size_t cap;
};

struct parser {
    const char *s;
    size_t n, at;
    enum json_parse_mode mode;
    struct json_fault *why;
    json_t **open, *root; /* open[n_open]: objects and arrays, the innermost last */
    size_t n_open, max_depth;
    struct scratch key_room, room;
    const char *key; /* of the next member; in s or key_room */
    size_t n_key;
};

static enum mem_purpose purpose_here(void) { return mem_account_current() != NULL ? MEM_REQUEST : MEM_GENERAL; }

static enum err refuse(const struct parser *p, enum err code, size_t at, const char *text)
{
    p->why->at = at;
    snprintf(p->why->text, sizeof p->why->text, "%s", text);
    return code;
}

/* Returns the error of a byte that cannot follow. */
static enum err unexpected(const struct parser *p, const char *expected)
{
    char text[sizeof p->why->text];
    if (p->at >= p->n) {
        snprintf(text, sizeof text, "expected %s, found the end", expected);
    } else if (p->s[p->at] > 0x20 && p->s[p->at] < 0x7F) {
        snprintf(text, sizeof text, "expected %s, found '%c'", expected, p->s[p->at]);
    } else {
        snprintf(text, sizeof text, "expected %s, found byte 0x%02x", expected, (unsigned char)p->s[p->at]);
    }
    return refuse(p, ERR_INVALID_JSON, p->at, text);
}

static enum err reserve(struct scratch *room, size_t bytes)
{
    if (bytes > room->cap) {
        mem_free(room->p);
        room->p = mem_alloc(bytes, purpose_here());
        room->cap = room->p != NULL ? bytes : 0;
    }
    return room->p != NULL ? ERR_OK : ERR_NOMEM;
}

static void skip_spaces(struct parser *p)
{
    while (p->at < p->n && (p->s[p->at] == ' ' || p->s[p->at] == '\n' || p->s[p->at] == '\r' || p->s[p->at] == '\t')) {
        p->at++;
    }
}

static bool is_next(const struct parser *p, char c) { return p->at < p->n && p->s[p->at] == c; }

/* --- strings ------------------------------------------------------------------------------------------------------ */

/* Returns the value of four hexadecimal digits at s[at]; -1: there are none. */
static int32_t hex_at(const struct parser *p, size_t at)
{
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        int digit = i < p->n ? hex_value(p->s[i]) : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Decodes the escape at s[at], whose second byte is u; moves at after it. */
static enum err unicode_escape(struct parser *p, uint32_t *cp)
{
    int32_t first = hex_at(p, p->at + 2);
    if (first < 0) {
        return refuse(p, ERR_INVALID_JSON, p->at, "expected four hexadecimal digits after \\u");
    }
    *cp = (uint32_t)first;
    p->at += 6;
    if (first < 0xD800 || first > 0xDFFF) {
        return ERR_OK;
    }
    int32_t second =
        first < 0xDC00 && is_next(p, '\\') && p->at + 1 < p->n && p->s[p->at + 1] == 'u' ? hex_at(p, p->at + 2) : -1;
    if (second >= 0xDC00 && second <= 0xDFFF) {
        *cp = 0x10000 + (((uint32_t)first - 0xD800) << 10) + ((uint32_t)second - 0xDC00);
        p->at += 6;
        return ERR_OK;
    }
    *cp = UTF8_REPLACEMENT;
    return p->mode == JSON_PARSE_LENIENT ? ERR_OK
                                         : refuse(p, ERR_INVALID_JSON, p->at - 6, "a surrogate without its pair");
}

/* Appends the character of the escape at s[at] to out + *len; moves at after it. */
static enum err take_escape(struct parser *p, char *out, size_t *len)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = p->at + 1 < p->n ? p->s[p->at + 1] : '\0';
    if (c == 'u') {
        uint32_t cp;
        TRY(unicode_escape(p, &cp));
        *len += utf8_encode(cp, out + *len);
        return ERR_OK;
    }
    const char *found = c != '\0' ? strchr(names, c) : NULL;
    if (found == NULL) {
        return refuse(p, ERR_INVALID_JSON, p->at, "a backslash that begins no escape");
    }
    out[(*len)++] = values[found - names];
    p->at += 2;
    return ERR_OK;
}

/* Returns the end of the unescaped run at s[from] within a string. */
static size_t plain_end(const struct parser *p, size_t from)
{
    while (from < p->n && p->s[from] != '"' && p->s[from] != '\\' && (unsigned char)p->s[from] >= 0x20) {
        from++;
    }
    return from;
}

/* Reads the string whose quote is at s[at]: *out[0..*n), within the text or room. Moves at after it. */
static enum err take_string(struct parser *p, struct scratch *room, const char **out, size_t *n)
{
    size_t begin = p->at++, from = p->at;
    p->at = plain_end(p, from);
    *out = p->s + from;
    *n = p->at - from;
    if (is_next(p, '\\')) {
        /* an escape is longer than its meaning */
        TRY(reserve(room, json_string_end(p->s, from, p->n) - from + 1));
        memcpy(room->p, *out, *n);
        while (p->at < p->n && p->s[p->at] != '"' && (unsigned char)p->s[p->at] >= 0x20) {
            if (p->s[p->at] == '\\') {
                TRY(take_escape(p, room->p, n));
            } else {
                size_t end = plain_end(p, p->at);
                memcpy(room->p + *n, p->s + p->at, end - p->at);
                *n += end - p->at;
                p->at = end;
            }
        }
        *out = room->p;
    }
    if (p->at >= p->n) {
        return refuse(p, ERR_INVALID_JSON, begin, "a string without its end");
    }
    if (p->s[p->at] != '"') {
        return refuse(p, ERR_INVALID_JSON, p->at, "a control character within a string; write it as an escape");
    }
    p->at++;
    return ERR_OK;
}

/* --- numbers and words -------------------------------------------------------------------------------------------- */

static size_t skip_digits(struct parser *p)
{
    size_t from = p->at;
    while (p->at < p->n && p->s[p->at] >= '0' && p->s[p->at] <= '9') {
        p->at++;
    }
    return p->at - from;
}

/* Moves at after the number at s[at]. */
static enum err scan_number(struct parser *p, bool *is_integer)
{
    p->at += is_next(p, '-');
    size_t first = p->at, n = skip_digits(p);
    if (n == 0) {
        return unexpected(p, "a digit");
    }
    if (n > 1 && p->s[first] == '0') {
        return refuse(p, ERR_INVALID_JSON, first, "a number that begins with 0");
    }
    *is_integer = true;
    if (is_next(p, '.')) {
        p->at++;
        *is_integer = false;
        if (skip_digits(p) == 0) {
            return unexpected(p, "a digit");
        }
    }
    if (is_next(p, 'e') || is_next(p, 'E')) {
        p->at++;
        *is_integer = false;
        p->at += is_next(p, '-') || is_next(p, '+');
        if (skip_digits(p) == 0) {
            return unexpected(p, "a digit");
        }
    }
    return ERR_OK;
}

/* Reads the integer in s[0..n); returns false if int64 cannot hold it. */
static bool int64_of(const char *s, size_t n, int64_t *out)
{
    bool is_negative = s[0] == '-';
    uint64_t value = 0, most = (uint64_t)INT64_MAX + is_negative;
    for (size_t i = is_negative; i < n; i++) {
        uint64_t digit = (uint64_t)(s[i] - '0');
        if (value > (most - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

static enum err take_number(struct parser *p, json_t **out)
{
    size_t from = p->at;
    bool is_integer = false;
    TRY(scan_number(p, &is_integer));
    const char *text = p->s + from;
    size_t n = p->at - from;
    int64_t i;
    if (is_integer && int64_of(text, n, &i)) {
        *out = json_integer(i);
        return *out != NULL ? ERR_OK : ERR_NOMEM;
    }
    char small[64], *copy = small; /* strtod reads up to a NUL */
    if (n >= sizeof small) {
        TRY(reserve(&p->room, n + 1));
        copy = p->room.p;
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    double value = strtod(copy, NULL); /* the text has JSON's form */
    if (isinf(value) && p->mode == JSON_PARSE_FILE) {
        return refuse(p, ERR_INVALID_VALUE, from, "the number is too large");
    }
    value = isinf(value) ? (value > 0 ? DBL_MAX : -DBL_MAX) : value;
    *out = is_integer || !json_number_is_exact(value, text, n) ? json_number_new(value, text, n) : json_real(value);
    return *out != NULL ? ERR_OK : ERR_NOMEM;
}

static bool take_word(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    if (p->n - p->at < n || memcmp(p->s + p->at, word, n) != 0) {
        return false;
    }
    p->at += n;
    return true;
}

/* Reads numbers that JSON lacks. */
static enum err take_special(struct parser *p, json_t **out)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"NaN", 0}, {"Infinity", DBL_MAX}, {"-Infinity", -DBL_MAX}};
    for (size_t i = 0; p->mode == JSON_PARSE_LENIENT && i < ARRAY_LEN(words); i++) {
        if (take_word(p, words[i].word)) {
            *out = json_number_new(words[i].value, words[i].word, strlen(words[i].word));
            return *out != NULL ? ERR_OK : ERR_NOMEM;
        }
    }
    *out = NULL;
    return ERR_OK;
}

/* Reads true, false or null. */
static bool take_constant(struct parser *p, json_t **out)
{
    if (take_word(p, "true")) {
        *out = json_true();
    } else if (take_word(p, "false")) {
        *out = json_false();
    } else if (take_word(p, "null")) {
        *out = json_null();
    }
    return *out != NULL;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Reads the value that begins at s[at]; of an object or array only its beginning. */
static enum err take_value(struct parser *p, json_t **out)
{
    const char *text;
    size_t n;
    TRY(take_special(p, out));
    if (*out != NULL) {
        return ERR_OK;
    }
    char c = p->at < p->n ? p->s[p->at] : '\0';
    if (c == '"') {
        TRY(take_string(p, &p->room, &text, &n));
        *out = json_stringn_nocheck(text, n);
    } else if (c == '{' || c == '[') {
        p->at++;
        *out = c == '{' ? json_object() : json_array();
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        return take_number(p, out);
    } else {
        return take_constant(p, out) ? ERR_OK : unexpected(p, "a value");
    }
    return *out != NULL ? ERR_OK : ERR_NOMEM;
}

/* Makes v, which this takes, the root or a child of the innermost open value. */
static enum err attach(struct parser *p, json_t *v)
{
    if (p->n_open == 0) {
        p->root = v;
        return ERR_OK;
    }
    json_t *parent = p->open[p->n_open - 1];
    int rc = json_is_array(parent) ? json_array_append_new(parent, v)
                                   : json_object_setn_new_nocheck(parent, p->key, p->n_key, v);
    return rc == 0 ? ERR_OK : ERR_NOMEM;
}

/* Reads the next member's key and colon. */
static enum err take_key(struct parser *p)
{
    skip_spaces(p);
    size_t at = p->at;
    if (!is_next(p, '"')) {
        return unexpected(p, "a key in quotes");
    }
    TRY(take_string(p, &p->key_room, &p->key, &p->n_key));
    if (p->mode != JSON_PARSE_LENIENT) {
        if (memchr(p->key, '\0', p->n_key) != NULL) {
            return refuse(p, ERR_INVALID_JSON, at, "a key with a NUL in it");
        }
        if (json_object_getn(p->open[p->n_open - 1], p->key, p->n_key) != NULL) {
            char text[sizeof p->why->text];
            snprintf(text, sizeof text, "duplicate key '%.*s'", (int)MIN_OF(p->n_key, (size_t)64), p->key);
            return refuse(p, ERR_DUPLICATE_FIELD, at, text);
        }
    }
    skip_spaces(p);
    if (!is_next(p, ':')) {
        return unexpected(p, "':'");
    }
    p->at++;
    return ERR_OK;
}

/* Opens v. *is_value: a value must follow; false: v is empty and ends. */
static enum err open_container(struct parser *p, json_t *v, bool *is_value)
{
    if (p->n_open == p->max_depth) {
        return refuse(p, ERR_JSON_TOO_DEEP, p->at - 1, "nested too deep");
    }
    p->open[p->n_open++] = v;
    skip_spaces(p);
    *is_value = !is_next(p, json_is_array(v) ? ']' : '}');
    return *is_value && json_is_object(v) ? take_key(p) : ERR_OK;
}

/* After a value: closes containers that end here, until another value must follow. */
static enum err close_containers(struct parser *p)
{
    while (p->n_open > 0) {
        bool is_array = json_is_array(p->open[p->n_open - 1]);
        skip_spaces(p);
        if (is_next(p, ',')) {
            p->at++;
            return is_array ? ERR_OK : take_key(p);
        }
        if (!is_next(p, is_array ? ']' : '}')) {
            return unexpected(p, is_array ? "',' or ']'" : "',' or '}'");
        }
        p->at++;
        p->n_open--;
    }
    return ERR_OK;
}

static enum err run(struct parser *p)
{
    do {
        json_t *v;
        bool is_value = false;
        skip_spaces(p);
        TRY(take_value(p, &v));
        TRY(attach(p, v));
        if (json_is_object(v) || json_is_array(v)) {
            TRY(open_container(p, v, &is_value));
        }
        TRY(is_value ? ERR_OK : close_containers(p));
    } while (p->n_open > 0);
    skip_spaces(p);
    return p->at == p->n ? ERR_OK : unexpected(p, "the end");
}

enum err json_parse(const struct json_source *from, json_t **out, struct json_fault *why)
{
    struct parser p = {.s = from->s, .n = from->n, .mode = from->mode, .why = why, .max_depth = from->max_depth};
    *out = NULL;
    p.open = mem_zalloc_array(from->max_depth, sizeof *p.open, purpose_here());
    enum err err = p.open != NULL ? run(&p) : ERR_NOMEM;
    mem_free(p.open);
    mem_free(p.key_room.p);
    mem_free(p.room.p);
    if (err != ERR_OK) {
        json_decref(p.root);
        return err;
    }
    *out = p.root;
    return ERR_OK;
}
