/* Strings and enumerations of a schema. */
#include "engine/schema/schema_internal.h"

#include "engine/base/buf.h"
#include "engine/base/json_read.h"
#include "engine/grammar/grammar_json.h"
#include "engine/grammar/grammar_lark.h"
#include "engine/schema/schema_text.h"
#include "engine/schema/schema_value.h"

struct schema_values schema_values_of(const json_t *schema)
{
    const json_t *all = json_object_get(schema, "enum");
    json_t *one = json_object_get(schema, "const");
    bool is_there = one == NULL || all == NULL, has_failed = false; /* if memory is out, it counts as not found */
    for (size_t k = 0; k < json_array_size(all) && !is_there; k++) {
        is_there = schema_is_same(json_array_get(all, k), one, &has_failed);
    }
    return one == NULL ? (struct schema_values){all, NULL} : (struct schema_values){NULL, is_there ? one : NULL};
}

static bool names_values(const struct part *p)
{
    return !p->is_valued && (schema_member(p, "const") != NULL || schema_member(p, "enum") != NULL);
}

/* Returns the values that a schema names, as keys. */
static const json_t *index_of(struct writer *w, const json_t *schema)
{
    const json_t *found = NULL;
    if (schema_was_made(w, schema, SCHEMA_INDEX, &found)) {
        return found;
    }
    struct schema_values v = schema_values_of(schema);
    json_t *index = json_object();
    for (size_t i = 0; index != NULL && i < schema_n_values(&v) && regex_spend(w->s, 16); i++) {
        char *key = schema_key_of(schema_value_at(&v, i));
        w->has_failed |= key == NULL || json_object_set_nocheck(index, key, json_true()) != 0;
        mem_free(key);
    }
    enum err err = schema_keep(w, schema, SCHEMA_INDEX, index, &found);
    return err == ERR_OK ? found : NULL;
}

static bool has_value(struct writer *w, const json_t *schema, const json_t *value)
{
    enum { FEW = 8 };
    struct schema_values v = schema_values_of(schema);
    bool has = false;
    if (schema_n_values(&v) > FEW) {
        const json_t *index = index_of(w, schema);
        char *key = index != NULL && regex_spend(w->s, 16) ? schema_key_of(value) : NULL;
        has = key != NULL && json_object_get(index, key) != NULL;
        w->has_failed |= key == NULL && index != NULL && regex_ok(w->s) == ERR_OK;
        mem_free(key);
        return has;
    }
    for (size_t i = 0; !has && i < schema_n_values(&v); i++) {
        has = schema_is_same(schema_value_at(&v, i), value, &w->has_failed);
    }
    return has;
}

bool schema_is_left_out(struct writer *w, const struct parts *list, const json_t *value)
{
    bool is = false;
    for (size_t i = 0; i < list->n; i++) {
        const struct part *p = &list->at[i];
        is = is || (schema_is_plain_not(p) && has_value(w, schema_member(p, "not"), value));
    }
    return is;
}

/* --- strings ---------------------------------------------------------------------------------------------------------- */

static enum err read_pattern(struct writer *w, const struct part *p, const json_t *pattern, bool is_open, regex_id *out)
{
    if (!json_is_string(pattern)) {
        return schema_refuse(w, p->path, "pattern", "expected a string, a regular expression");
    }
    const struct regex_pattern parsed = {json_string_value(pattern), json_string_length(pattern),
                                         REGEX_SEARCH | (is_open ? REGEX_OPEN : 0u)};
    return schema_pattern(w, p, "pattern", &parsed, out);
}

/* Returns the strings among the values. */
static regex_id strings_of(struct writer *w, const json_t *schema)
{
    struct schema_values v = schema_values_of(schema);
    size_t n = 0;
    struct regex_word *words = mem_zalloc_array(schema_n_values(&v) + 1, sizeof *words, MEM_REQUEST);
    w->has_failed |= words == NULL;
    for (size_t i = 0; i < schema_n_values(&v) && words != NULL; i++) {
        const json_t *one = schema_value_at(&v, i);
        if (json_is_string(one)) {
            words[n++] = (struct regex_word){json_string_value(one), json_string_length(one)};
        }
    }
    regex_id all = words != NULL ? regex_words(w->s, words, n) : REGEX_NONE;
    mem_free(words);
    return all;
}

/* Removes from *r the strings that the part forbids. is_open: *r must then be intersected with whole characters. */
static enum err limit_strings(struct writer *w, const struct part *p, bool is_open, regex_id *r)
{
    const json_t *pattern = schema_keyword(w, p, "pattern"), *format = schema_keyword(w, p, "format");
    const json_t *other = schema_is_plain_not(p) ? schema_keyword(w, p, "not") : NULL;
    regex_id found;
    if (pattern != NULL) {
        TRY(read_pattern(w, p, pattern, is_open, &found));
        *r = regex_and(w->s, *r, found);
    }
    if (json_is_string(format)) {
        enum schema_format kind = schema_format_of(w->s, json_string_value(format), &found);
        if (kind == SCHEMA_FORMAT_REFUSED && !w->is_loose) {
            return schema_refuse(w, p->path, "format", "this format is not supported");
        }
        *r = kind == SCHEMA_FORMAT_KNOWN ? regex_and(w->s, *r, found) : *r;
    }
    if (other != NULL && json_object_get(other, "pattern") != NULL) {
        TRY(read_pattern(w, p, json_object_get(other, "pattern"), true, &found));
        *r = regex_and(w->s, *r, regex_not(w->s, found));
    } else if (other != NULL) {
        *r = regex_and(w->s, *r, regex_not(w->s, strings_of(w, other)));
    }
    return ERR_OK;
}

/* Builds the strings that the parts allow. is_open: the caller intersects them with whole characters. */
static enum err string_limits(struct writer *w, const struct parts *list, bool is_open, regex_id *out, bool *is_free)
{
    struct schema_counts length = {0, REGEX_UNBOUNDED};
    regex_id strings = REGEX_ALL;
    for (size_t i = 0; i < list->n; i++) {
        TRY(schema_narrow(w, &list->at[i], "minLength", "maxLength", &length));
        TRY(limit_strings(w, &list->at[i], is_open, &strings));
    }
    bool has_length = length.min > 0 || length.max != REGEX_UNBOUNDED;
    *is_free = strings == REGEX_ALL && !has_length;
    if (!has_length && (is_open || regex_is_whole(w->s, strings))) {
        *out = strings; /* a pattern consists of whole characters */
        return ERR_OK;
    }
    *out = regex_and(w->s, regex_repeat(w->s, regex_any_character(w->s), length.min, length.max), strings);
    return ERR_OK;
}

enum err schema_strings(struct writer *w, const struct parts *list, regex_id *out, bool *is_free)
{
    TRY(string_limits(w, list, true, out, is_free));
    for (size_t i = 0; i < list->n; i++) {
        if (names_values(&list->at[i])) {
            *out = regex_and(w->s, *out, strings_of(w, list->at[i].schema));
            *is_free = false;
        }
    }
    return ERR_OK;
}

/* Returns a part that restricts strings to a Lark grammar, which can have no other restrictions; NULL: none. */
static const struct part *lark_part(struct writer *w, const struct parts *list)
{
    const struct part *found = NULL;
    for (size_t i = 0; i < list->n && !w->is_loose; i++) {
        found = schema_keyword(w, &list->at[i], "x-lark") != NULL ? &list->at[i] : found;
    }
    return found;
}

static enum err write_lark(struct writer *w, const struct node *node, const struct parts *list, const struct part *p)
{
    const json_t *text = schema_keyword(w, p, "x-lark");
    struct err_info why = {0};
    symbol_id inside;
    for (size_t i = 0; i < list->n; i++) {
        if (&list->at[i] != p && schema_keyword(w, &list->at[i], "x-lark") != NULL) {
            return schema_refuse(w, p->path, "x-lark", "expected one grammar of a string");
        }
    }
    if (!json_is_string(text)) {
        return schema_refuse(w, p->path, "x-lark", "expected a string, a grammar of Lark's form");
    }
    enum err err = grammar_lark(w->b, json_string_value(text), json_string_length(text), true, &inside, &why);
    if (err == ERR_INVALID_GRAMMAR) {
        return schema_refuse(w, p->path, "x-lark", why.text);
    }
    symbol_id quote = grammar_lexeme(w->b, regex_bytes(w->s, "\"", 1));
    schema_put(w, node, grammar_sequence(w->b, (symbol_id[]){quote, inside, quote}, 3));
    return err == ERR_OK ? ERR_OK : err_set(w->info, err, NULL, "%s", why.text);
}

enum err schema_write_string(struct writer *w, const struct node *node, const struct parts *list)
{
    regex_id strings;
    bool is_free;
    const struct part *lark = lark_part(w, list);
    TRY(string_limits(w, list, false, &strings, &is_free));
    if (lark != NULL) {
        return is_free ? write_lark(w, node, list, lark)
                       : schema_refuse(w, lark->path, "x-lark", "expected no pattern, format or length beside it");
    }
    schema_put(w, node,
               grammar_lexeme(w->b, is_free ? grammar_json_string(w->b)
                                            : schema_quoted(w, regex_json_escaped(w->s, strings))));
    return ERR_OK;
}

/* --- enumerations ------------------------------------------------------------------------------------------------------ */

/* The values of a part's enum or const, and the limits of all parts for them. */
struct enumeration {
    const struct node *node;
    const struct parts *list;
    const struct part *of;
    unsigned types;
    regex_id strings; /* REGEX_ALL: any */
    struct number_limits numbers;
    const json_t *named[SCHEMA_MAX_PARTS],
        *left_out[SCHEMA_MAX_PARTS]; /* schemas whose values are required, and excluded */
    size_t n_named, n_left_out;
    struct buf texts; /* of scalars, concatenated, each with a NUL */
    size_t *ends;     /* [n] ends of the texts */
    size_t n;
};

/* Checks whether the value satisfies all parts, as far as scalars are concerned. */
static bool fits(struct writer *w, const struct enumeration *e, const json_t *value)
{
    bool fits = (e->types & schema_type_of(value)) != 0;
    for (size_t i = 0; i < e->n_named && fits; i++) {
        fits = has_value(w, e->named[i], value);
    }
    for (size_t i = 0; i < e->n_left_out && fits; i++) {
        fits = !has_value(w, e->left_out[i], value);
    }
    if (json_is_string(value)) { /* expressions cannot contain NUL: assume that it matches */
        bool has_nul = strlen(json_string_value(value)) != json_string_length(value);
        return fits && ((has_nul && w->is_loose) || e->strings == REGEX_ALL ||
                        (!has_nul && schema_matches(w, e->strings, json_string_value(value))));
    }
    return fits && (!json_is_number(value) || schema_allows_number(&e->numbers, value));
}

/* Other parts also restrict the value's members. */
static json_t *schema_of(const json_t *value)
{
    const char *key;
    json_t *one, *members = json_is_object(value) ? json_object() : json_array(), *names = json_array();
    bool ok = members != NULL && names != NULL;
    size_t i;
    json_object_foreach((json_t *)value, key, one)
    {
        ok = ok && json_object_set_new_nocheck(members, key, json_pack("{sO}", "const", one)) == 0 &&
             json_array_append_new(names, json_string_nocheck(key)) == 0;
    }
    json_array_foreach((json_t *)value, i, one)
    {
        ok = ok && json_array_append_new(members, json_pack("{sO}", "const", one)) == 0;
    }
    json_t *out = NULL;
    if (ok && json_is_object(value)) {
        out = json_pack("{sssOsOsb}", "type", "object", "properties", members, "required", names,
                        "additionalProperties", 0);
    } else if (ok) {
        out = json_pack("{sssOsbsIsI}", "type", "array", "prefixItems", members, "items", 0, "minItems",
                        (json_int_t)json_array_size(value), "maxItems", (json_int_t)json_array_size(value));
    }
    json_decref(members);
    json_decref(names);
    return out;
}

enum err schema_of_value(struct writer *w, const json_t *value, const json_t **out)
{
    return schema_was_made(w, value, SCHEMA_VALUE, out) ? ERR_OK
                                                        : schema_keep(w, value, SCHEMA_VALUE, schema_of(value), out);
}

/* Writes an object or an array: its members are written like those of any other. */
static enum err write_structure(struct writer *w, const struct enumeration *e, const json_t *value)
{
    struct parts of;
    const json_t *schema;
    symbol_id symbol;
    TRY(schema_of_value(w, value, &schema));
    parts_copy(&of, e->list);
    for (size_t i = 0; i < of.n; i++) {
        of.at[i].is_valued = true;
    }
    TRY(schema_add_part(w, e->of, schema, e->of->path, &of));
    TRY(schema_need(w, &of, &symbol));
    schema_put(w, e->node, symbol);
    return ERR_OK;
}

static int add_piece(const char *text, size_t n, void *to)
{
    buf_append(to, text, n);
    return 0;
}

static enum err add_text(struct enumeration *e, const char *text)
{
    buf_append(&e->texts, text, strlen(text) + 1);
    TRY(buf_ok(&e->texts));
    e->ends[e->n++] = e->texts.len;
    return ERR_OK;
}

/* Adds a number's text as it was written and as its double prints. A number other than an integer also gets its form
 * without an exponent if it is short. */
static enum err add_number(struct enumeration *e, const json_t *value)
{
    enum { MAX_PLAIN = 64 };
    struct schema_decimal number;
    char room[JSON_NUMBER_BYTES], plain[MAX_PLAIN];
    const char *text = json_number_text(value, room);
    TRY(add_text(e, text));
    bool has_plain = json_is_real(value) && schema_decimal_of(value, &number) &&
                     schema_decimal_plain(&number, plain, sizeof plain) < sizeof plain && strcmp(text, plain) != 0;
    return has_plain ? add_text(e, plain) : ERR_OK;
}

/* Adds the value's texts if it satisfies all parts; objects and arrays become alternatives. */
static enum err write_value(struct writer *w, struct enumeration *e, const json_t *value)
{
    TRY(schema_spend(w, 8 + e->n_named + e->n_left_out));
    if (!fits(w, e, value)) {
        return ERR_OK;
    }
    if (json_is_object(value) || json_is_array(value)) {
        return write_structure(w, e, value);
    }
    if (json_is_number(value)) {
        return add_number(e, value);
    }
    TRY_MEM(json_dump_callback(value, add_piece, &e->texts, JSON_ENCODE_ANY) == 0);
    return add_text(e, "");
}

/* Joins the texts, each followed by a byte that no text contains. */
static enum err join_texts(struct writer *w, const struct enumeration *e)
{
    struct regex_word *words = mem_zalloc_array(e->n + 1, sizeof *words, MEM_REQUEST);
    TRY_MEM(words != NULL);
    for (size_t i = 0, from = 0; i < e->n; from = e->ends[i++]) {
        words[i] = (struct regex_word){e->texts.data + from, e->ends[i] - from - 1};
    }
    schema_put(w, e->node, grammar_lexeme(w->b, regex_words(w->s, words, e->n)));
    mem_free(words);
    return ERR_OK;
}

static enum err write_all_values(struct writer *w, struct enumeration *e)
{
    enum { MAX_BYTES = 16 << 20 };
    struct schema_values v = schema_values_of(e->of->schema);
    size_t n = schema_n_values(&v);
    e->ends = mem_zalloc_array(2 * n + 1, sizeof *e->ends, MEM_REQUEST); /* a number has up to two */
    enum err err = e->ends != NULL ? ERR_OK : ERR_NOMEM;
    buf_init(&e->texts, MAX_BYTES, MEM_REQUEST);
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        err = write_value(w, e, schema_value_at(&v, i));
    }
    err = err == ERR_TOO_LARGE ? ERR_GRAMMAR_LIMIT : err;
    err = err == ERR_OK ? join_texts(w, e) : err;
    buf_fini(&e->texts);
    mem_free(e->ends);
    return err;
}

/* Reads the limits that the parts set for the values. */
static enum err read_limits(struct writer *w, struct enumeration *e)
{
    bool is_free;
    for (size_t i = 0; i < e->list->n; i++) {
        const struct part *one = &e->list->at[i];
        if (one != e->of && names_values(one)) {
            e->named[e->n_named++] = one->schema;
        }
        if (schema_is_plain_not(one)) {
            e->left_out[e->n_left_out++] = schema_member(one, "not");
        }
    }
    TRY(string_limits(w, e->list, true, &e->strings, &is_free));
    e->strings = is_free ? REGEX_ALL : e->strings;
    return schema_read_numbers(w, e->list, &e->numbers);
}

enum err schema_write_values(struct writer *w, const struct node *node, const struct parts *list, unsigned types,
                             bool *is_there)
{
    struct enumeration e;
    const struct part *p = NULL;
    for (size_t i = 0; i < list->n && p == NULL; i++) {
        const json_t *values = schema_keyword(w, &list->at[i], "enum");
        if (values != NULL && !json_is_array(values)) {
            return schema_refuse(w, list->at[i].path, "enum", "expected an array of values");
        }
        bool has_values = values != NULL || schema_keyword(w, &list->at[i], "const") != NULL;
        p = has_values && !list->at[i].is_valued ? &list->at[i] : NULL;
    }
    *is_there = p != NULL;
    if (p == NULL) {
        return ERR_OK;
    }
    if (lark_part(w, list) != NULL) {
        return schema_refuse(w, lark_part(w, list)->path, "x-lark", "expected no enum and no const beside it");
    }
    e.node = node;
    e.list = list;
    e.of = p;
    e.types = types;
    e.n_named = e.n_left_out = e.n = 0;
    TRY(read_limits(w, &e));
    return write_all_values(w, &e);
}
