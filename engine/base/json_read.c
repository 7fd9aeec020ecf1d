/* jansson does the parsing; what it does not limit is scanned for first. */
#include "engine/base/json_read.h"

#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "engine/base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What jansson 2.14 takes of the heap for a part of a text, with mem.h's header and malloc's: an object and its first
 * eight buckets, an array and its first eight places, ... [measured: json_read_test] */
enum {
    OBJECT_BYTES = 288,
    ARRAY_BYTES = 192,
    STRING_BYTES = 112, /* and the string itself */
    NUMBER_BYTES = 56,
    MEMBER_BYTES = 80,  /* beside its key, counted as a string: place in the object's list, buckets while they grow */
    ELEMENT_BYTES = 24, /* a place in an array while it grows */
};

/* The end of the string that begins at s[i], past its quote; n when there is none. */
static size_t string_end(const char *s, size_t i, size_t n)
{
    while (i < n && s[i] != '"') {
        i += s[i] == '\\' ? 2 : 1; /* what is escaped ends no string */
    }
    return MIN_OF(i, n);
}

/* The end of the number or word at s[i]: i when there is none. */
static size_t word_end(const char *s, size_t i, size_t n)
{
    while (i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                     s[i] == '.' || s[i] == '+' || s[i] == '-')) {
        i++;
    }
    return i;
}

struct json_size json_read_size(const char *s, size_t n)
{
    struct json_size z = {0};
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        size_t from = i + 1;
        switch (s[i]) {
        case '"':
            i = string_end(s, from, n);
            z.bytes += STRING_BYTES + (i - from);
            z.longest = MAX_OF(z.longest, i - from + 2);
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
            z.n_values--; /* what stands before it was a key */
            break;
        case ',':
            z.bytes += ELEMENT_BYTES;
            break;
        default:
            from = word_end(s, i, n);
            z.longest = MAX_OF(z.longest, from - i);
            if ((s[i] >= '0' && s[i] <= '9') || s[i] == '-') {
                z.bytes += NUMBER_BYTES;
                z.n_values++;
            } else if (s[i] == 't' || s[i] == 'f' || s[i] == 'n') {
                z.n_values++; /* true, false and null are shared: they take nothing */
            }
            i = MAX_OF(from, i + 1) - 1;
        }
    }
    return z;
}

/* --- jansson's memory -------------------------------------------------------------------------------------------- */

/* jansson 2.14 forgets to look whether the buffer of the token it reads could grow: bytes are lost, the quote that ends
 * a string among them, and it reads and writes past the end. So that buffer always gets its room: what it may ask for is
 * taken before the parse. Its sizes are powers of two; others that are may use the room as well. After the first
 * refusal the text ends (next_part), so that no more is asked for than a part's tokens need. */
enum { PART_BYTES = 1024 /* jansson asks for at most so much at a time */, SMALL_ROOM = 8 * PART_BYTES };

static _Thread_local struct {
    char *room; /* [SMALL_ROOM + large]: for many small buffers, and one large; NULL outside a parse */
    size_t large, small_used;
    bool is_large_used, is_out; /* was jansson refused memory in this parse? */
} jansson;

static bool is_room(const char *p)
{
    return jansson.room != NULL && p >= jansson.room && p < jansson.room + SMALL_ROOM + jansson.large;
}

static void *take_room(size_t bytes)
{
    if (jansson.room == NULL || bytes < 32 || (bytes & (bytes - 1)) != 0) {
        return NULL;
    }
    if (bytes <= 2 * PART_BYTES && bytes <= SMALL_ROOM - jansson.small_used) {
        char *p = jansson.room + jansson.small_used;
        jansson.small_used += bytes;
        return p;
    }
    if (bytes <= jansson.large && !jansson.is_large_used) {
        jansson.is_large_used = true;
        return jansson.room + SMALL_ROOM;
    }
    return NULL;
}

/* Of a request while one is answered, else of the process. */
static enum mem_purpose purpose_here(void) { return mem_account_current() != NULL ? MEM_REQUEST : MEM_GENERAL; }

static void *take(size_t bytes)
{
    void *p = mem_alloc(bytes, purpose_here());
    if (p == NULL) {
        jansson.is_out = true;
        p = take_room(bytes);
    }
    return p;
}

static void give(void *p)
{
    if (!is_room(p)) {
        mem_free(p);
    }
}

void json_read_use_mem(void) { json_set_alloc_funcs(take, give); }

struct text {
    const char *at, *end;
};

static size_t next_part(void *to, size_t cap, void *arg)
{
    struct text *t = arg;
    size_t n = jansson.is_out ? 0 : MIN_OF(MIN_OF(cap, (size_t)PART_BYTES), (size_t)(t->end - t->at));
    memcpy(to, t->at, n);
    t->at += n;
    return n;
}

/* json_loadb that is safe, and says so, when memory is out. NULL: *e is filled, or jansson.is_out. */
static json_t *parse(const char *text, size_t n, size_t longest, json_error_t *e)
{
    size_t large = 4 * PART_BYTES;
    while (large <= longest + 1) {
        large *= 2;
    }
    jansson.room = mem_alloc(SMALL_ROOM + large, purpose_here());
    jansson.large = large;
    jansson.small_used = 0;
    jansson.is_large_used = false;
    jansson.is_out = jansson.room == NULL;
    struct text t = {text, text + n};
    json_t *root = jansson.is_out ? NULL
                                  : json_load_callback(next_part, &t,
                                                       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, e);
    if (jansson.is_out) {
        json_decref(root);
        root = NULL;
    }
    mem_free(jansson.room);
    jansson.room = NULL;
    return root;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

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

enum err json_read(const char *text, size_t n, size_t max_depth, const char *what, json_t **out, struct err_info *info)
{
    *out = NULL;
    size_t bad_at;
    if (n == 0) {
        return err_set(info, ERR_INVALID_JSON, NULL, "%s: expected a JSON object, found nothing", what);
    }
    if (!utf8_valid(text, n, &bad_at)) {
        return err_set(info, ERR_INVALID_UTF8, NULL, "%s is not valid UTF-8 at byte %zu", what, bad_at);
    }
    struct json_size z = json_read_size(text, n);
    if (z.depth > max_depth) {
        return err_set(info, ERR_JSON_TOO_DEEP, NULL, "%s: expected JSON nested at most %zu deep", what, max_depth);
    }
    json_error_t e = {0};
    json_t *root = parse(text, n, z.longest, &e);
    if (jansson.is_out) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the %zu bytes of %s", n, what);
    }
    if (root == NULL && code_of(&e) == ERR_INVALID_VALUE) {
        char name[ERR_WHERE_BYTES];
        field_at(text, MIN_OF((size_t)MAX_OF(e.position, 0), n), name, sizeof name);
        return err_set(info, ERR_INVALID_VALUE, name, "%s: the number at line %d, column %d is too large", name, e.line,
                       e.column);
    }
    if (root == NULL) {
        return err_set(info, code_of(&e), NULL, "%s is not valid JSON: line %d, column %d: %s", what, e.line, e.column,
                       e.text);
    }
    if (!json_is_object(root)) {
        enum err err = err_set(info, ERR_INVALID_JSON, NULL, "%s: expected a JSON object, found %s", what,
                               json_read_type_name(root));
        json_decref(root);
        return err;
    }
    *out = root;
    return ERR_OK;
}

/* Digits at s[0..n). */
static size_t digits_at(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9') {
        i++;
    }
    return i;
}

/* Is s[i], in front of n digits, the first of an integer that 64 bits do not hold? What stands behind it within
 * s[0..all) may make it a fraction. */
static bool is_wide(const char *s, size_t i, size_t n, size_t all)
{
    static const char largest[] = "9223372036854775807", smallest[] = "9223372036854775808";
    size_t width = sizeof largest - 1;
    char behind = i + n < all ? s[i + n] : ' ';
    size_t sign = i > 0 && (s[i - 1] == '-' || s[i - 1] == '+'); /* of the number, or of its exponent */
    bool goes_on = i > sign && (s[i - sign - 1] == '.' || s[i - sign - 1] == 'e' || s[i - sign - 1] == 'E');
    if (n < width || behind == '.' || behind == 'e' || behind == 'E' || goes_on) {
        return false;
    }
    return n > width || memcmp(s + i, i > 0 && s[i - 1] == '-' ? smallest : largest, width) > 0;
}

/* Writes s to out (NULL = only counts), an exponent behind each integer of more than 64 bits. Returns the length. */
static size_t widen(const char *s, size_t n, char *out)
{
    static const char exponent[] = {'e', '0'};
    size_t len = 0;
    bool in_string = false;
    for (size_t i = 0, step; i < n; i += step) {
        size_t digits = in_string ? 0 : digits_at(s + i, n - i);
        bool wide = digits > 0 && is_wide(s, i, digits, n);
        step = digits > 0 ? digits : in_string && s[i] == '\\' && i + 1 < n ? 2 : 1;
        in_string ^= s[i] == '"';
        if (out != NULL) {
            memcpy(out + len, s + i, step);
            memcpy(out + len + step, exponent, wide ? sizeof exponent : 0);
        }
        len += step + (wide ? sizeof exponent : 0);
    }
    return len;
}

enum err json_read_file(const char *text, size_t n, size_t max_depth, const char *what, json_t **out,
                        struct err_info *info)
{
    size_t len = widen(text, n, NULL);
    if (len == n) {
        return json_read(text, n, max_depth, what, out, info);
    }
    char *copy = mem_alloc(len, MEM_GENERAL);
    if (copy == NULL) {
        *out = NULL;
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the %zu bytes of %s", len, what);
    }
    widen(text, n, copy);
    enum err err = json_read(copy, len, max_depth, what, out, info);
    mem_free(copy);
    return err;
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
        return "a number with a fraction";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

static void show_text(const char *s, size_t n, char room[JSON_READ_SHOWN])
{
    enum { MAX_ESCAPE = sizeof "\\u0000" };
    size_t at = 0;
    room[at++] = '\'';
    for (size_t i = 0; i < n && at <= 64; i++) {
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
    size_t n = json_string_length(v); /* 0 when v is none */
    return json_is_string(v) && n == strlen(text) && memcmp(json_string_value(v), text, n) == 0;
}

const json_t *json_read_get(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return v == NULL || json_is_null(v) ? NULL : v;
}
