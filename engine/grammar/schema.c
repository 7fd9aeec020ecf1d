/* Each schema within the schema becomes a rule, once; those that are named and not yet written wait in a list. */
#include "engine/grammar/schema.h"

#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/grammar/grammar_json.h"
#include "engine/grammar/regex_parse_internal.h"
#include "engine/grammar/schema_disjoint.h"
#include "engine/grammar/schema_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A schema that is a rule. */
struct node {
    const json_t *schema;
    symbol_id rule;
    const char *path;   /* JSON pointer */
    bool is_of_another; /* it has an $id of its own, or a schema around it has: pointers there begin elsewhere */
};

struct writer {
    struct grammar_builder *b;
    struct regex_set *s;
    const json_t *root;
    struct node *nodes;        /* [SCHEMA_MAX_NODES] */
    size_t n_nodes, n_written; /* the last one that is written, or is being */
    uint32_t *table;           /* [N_TABLE] of nodes by schema, plus 1; 0 = free */
    struct arena arena;
    symbol_id any; /* any value; 0 = not made yet */
    symbol_id comma;
    regex_id spaces, any_text; /* any_text: a string of any characters, as it is meant */
    struct err_info *info;
    bool has_failed;   /* for lack of memory */
    bool ref_is_alone; /* before 2019 nothing beside $ref has a say [draft-07 core, section 8.3] */
};

enum { N_TABLE = 1 << 15 };
_Static_assert((int)N_TABLE > 2 * (int)SCHEMA_MAX_NODES, "the table is sparse");

static enum err refuse(struct writer *w, const char *path, const char *keyword, const char *expected)
{
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "%.96s/%.24s", path, keyword);
    return err_set(w->info, ERR_INVALID_SCHEMA, where, "JSON Schema, %.200s/%s: %s", path[0] != '\0' ? path : "#",
                   keyword, expected);
}

/* --- pieces ----------------------------------------------------------------------------------------------------------- */

static symbol_id text(struct writer *w, const char *s) { return grammar_lexeme(w->b, regex_bytes(w->s, s, strlen(s))); }

/* A bracket with the spaces on its inner side. */
static symbol_id opening(struct writer *w, const char *s)
{
    return grammar_lexeme(w->b, regex_concat(w->s, regex_bytes(w->s, s, 1), w->spaces));
}

static symbol_id closing(struct writer *w, const char *s)
{
    return grammar_lexeme(w->b, regex_concat(w->s, w->spaces, regex_bytes(w->s, s, 1)));
}

static regex_id quoted(struct writer *w, regex_id inside)
{
    regex_id quote = regex_bytes(w->s, "\"", 1);
    return regex_concat(w->s, quote, regex_concat(w->s, inside, quote));
}

/* A key with its colon. */
static symbol_id key_of(struct writer *w, regex_id inside)
{
    regex_id colon = regex_concat(w->s, w->spaces, regex_concat(w->s, regex_bytes(w->s, ":", 1), w->spaces));
    return grammar_lexeme(w->b, regex_concat(w->s, quoted(w, inside), colon));
}

/* What stands between the quotes, as jansson writes it; the builder fails with the set where there is no memory. */
static regex_id written(struct writer *w, const char *key)
{
    json_t *value = json_string_nocheck(key);
    char *dumped = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    regex_id r = dumped != NULL ? regex_bytes(w->s, dumped + 1, strlen(dumped) - 2) : REGEX_NONE;
    w->has_failed |= dumped == NULL;
    mem_free(dumped);
    json_decref(value);
    return r;
}

static symbol_id any_value(struct writer *w)
{
    w->any = w->any != 0 ? w->any : grammar_json_value(w->b);
    return w->any;
}

static symbol_id empty(struct writer *w) { return grammar_sequence(w->b, NULL, 0); }

/* --- schemas as rules -------------------------------------------------------------------------------------------------- */

/* path/key, with ~0 and ~1 in it. */
static const char *join(struct writer *w, const char *path, const char *key)
{
    char out[ERR_WHERE_BYTES];
    size_t n = (size_t)snprintf(out, sizeof out, "%.80s/", path);
    for (; *key != '\0' && n + 3 < sizeof out; key++) {
        if (*key == '~' || *key == '/') {
            out[n++] = '~';
            out[n++] = *key == '~' ? '0' : '1';
        } else {
            out[n++] = *key;
        }
    }
    return arena_dup(&w->arena, out, n);
}

static const char *join_index(struct writer *w, const char *path, size_t i)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    return join(w, path, number);
}

/* The symbol of a schema, which is written later. */
static enum err need(struct writer *w, const json_t *schema, const char *path, symbol_id *out)
{
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return refuse(w, path != NULL ? path : "", "", "expected a schema, an object or a boolean");
    }
    if (json_is_true(schema)) { /* jansson has one true and one false */
        *out = any_value(w);
        return ERR_OK;
    }
    if (json_is_false(schema)) {
        *out = grammar_rule(w->b); /* derives nothing */
        return ERR_OK;
    }
    size_t at = ((size_t)(uintptr_t)schema >> 4) * 0x9e3779b97f4a7c15u >> 20 & (N_TABLE - 1);
    for (; w->table[at] != 0; at = (at + 1) & (N_TABLE - 1)) {
        if (w->nodes[w->table[at] - 1].schema == schema) {
            *out = w->nodes[w->table[at] - 1].rule;
            return ERR_OK;
        }
    }
    if (w->n_nodes == SCHEMA_MAX_NODES) {
        return err_set(w->info, ERR_GRAMMAR_LIMIT, NULL, "JSON Schema: expected at most %d schemas within it",
                       SCHEMA_MAX_NODES);
    }
    *out = grammar_rule(w->b);
    bool is_of_another = w->n_written > 0 && (w->nodes[w->n_written - 1].is_of_another || schema_has_id(schema));
    w->nodes[w->n_nodes++] = (struct node){schema, *out, path != NULL ? path : "", is_of_another};
    w->table[at] = (uint32_t)w->n_nodes;
    return path != NULL ? ERR_OK : ERR_NOMEM;
}

/* --- keywords -------------------------------------------------------------------------------------------------------- */

/* What says something of values and is not enforced here. */
static const char *const refused[] = {
    "multipleOf",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "contains",
    "unevaluatedProperties",
    "minContains",
    "maxContains",
    "maxProperties",
    "not",
    "if",
    "then",
    "else",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
};

/* Others say nothing of values: they are not looked at. */
static bool is_keyword(const char *key)
{
    static const char *const all[] = {"type",
                                      "properties",
                                      "required",
                                      "additionalProperties",
                                      "patternProperties",
                                      "items",
                                      "prefixItems",
                                      "additionalItems",
                                      "minItems",
                                      "maxItems",
                                      "uniqueItems",
                                      "minLength",
                                      "maxLength",
                                      "pattern",
                                      "format",
                                      "minimum",
                                      "maximum",
                                      "exclusiveMinimum",
                                      "exclusiveMaximum",
                                      "enum",
                                      "const",
                                      "anyOf",
                                      "oneOf",
                                      "allOf",
                                      "minProperties",
                                      "$ref",
                                      "nullable"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        found = found || strcmp(key, all[i]) == 0;
    }
    return found;
}

/* Has the schema another keyword that says something than `one` and, beside an enumeration, its type? */
static bool has_others(const json_t *schema, const char *one, bool may_have_type)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
    {
        bool is_type = may_have_type && strcmp(key, "type") == 0;
        if (strcmp(key, one) != 0 && !is_type && is_keyword(key)) {
            return true;
        }
    }
    return false;
}

static enum err check_keywords(struct writer *w, const struct node *node)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (json_object_get(node->schema, refused[i]) != NULL) {
            return refuse(w, node->path, refused[i], "this keyword is not supported");
        }
    }
    if (json_is_true(json_object_get(node->schema, "uniqueItems"))) {
        return refuse(w, node->path, "uniqueItems", "this keyword is not supported");
    }
    return ERR_OK;
}

/* A count, or what stands for none. */
static enum err read_count(struct writer *w, const struct node *node, const char *keyword, uint32_t none, uint32_t *out)
{
    const json_t *v = json_object_get(node->schema, keyword);
    double number = json_number_value(v);
    *out = none;
    if (v == NULL) {
        return ERR_OK;
    }
    if (!json_is_number(v) || number < 0 || number != floor(number)) {
        return refuse(w, node->path, keyword, "expected a whole number, 0 or more");
    }
    *out = number < (double)(UINT32_MAX - 1) ? (uint32_t)number : UINT32_MAX - 1;
    return ERR_OK;
}

static void add(struct writer *w, const struct node *node, symbol_id symbol)
{
    grammar_alternative(w->b, node->rule, &symbol, 1);
}

/* --- objects ----------------------------------------------------------------------------------------------------------- */

static bool is_required(const json_t *required, const char *key)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        if (json_read_is(json_array_get(required, i), key)) {
            return true;
        }
    }
    return false;
}

/* The names of members in the order in which they come: those of `properties`, then required ones that it does not have, which
 * are as additionalProperties says. */
struct names {
    const char **at;
    size_t n, n_own;
};

/* Kinds of members that have no names of their own. */
struct members {
    symbol_id *symbols;
    size_t n;
};

static enum err list_names(struct writer *w, const struct node *node, const json_t *properties, const json_t *required,
                           struct names *out)
{
    size_t most = json_object_size(properties) + json_array_size(required) + 1;
    const char *key;
    json_t *value;
    *out = (struct names){.at = arena_zalloc_array(&w->arena, most, sizeof *out->at)};
    if (out->at == NULL) {
        return ERR_NOMEM;
    }
    json_object_foreach((json_t *)properties, key, value) { out->at[out->n++] = key; }
    out->n_own = out->n;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        bool is_new = name != NULL && json_object_get(properties, name) == NULL;
        if (name == NULL || strlen(name) != json_string_length(json_array_get(required, i))) {
            return refuse(w, node->path, "required", "expected an array of names");
        }
        for (size_t k = out->n_own; k < out->n; k++) {
            is_new = is_new && strcmp(out->at[k], name) != 0;
        }
        if (is_new) {
            out->at[out->n++] = name;
        }
    }
    return required == NULL || json_is_array(required)
               ? ERR_OK
               : refuse(w, node->path, "required", "expected an array of names");
}

static bool matches(struct writer *w, regex_id r, const char *text)
{
    for (; *text != '\0'; text++) {
        r = regex_next(w->s, r, (unsigned char)*text);
    }
    return regex_is_nullable(w->s, r);
}

/* Members whose names a pattern finds go to `out`, and the pattern to *found. A name that two patterns find, or one and
 * `properties`, would have to be as both say. */
static enum err pattern_members(struct writer *w, const struct node *node, const struct names *names, regex_id own,
                                struct members *out, regex_id *found)
{
    enum { BUDGET = 5000 };
    const json_t *patterns = json_object_get(node->schema, "patternProperties");
    const char *path = join(w, node->path, "patternProperties"), *key;
    json_t *schema;
    if ((patterns != NULL && !json_is_object(patterns)) || path == NULL) {
        return path == NULL ? ERR_NOMEM : refuse(w, node->path, "patternProperties", "expected an object of schemas");
    }
    out->symbols = arena_zalloc_array(&w->arena, json_object_size(patterns) + 1, sizeof *out->symbols);
    if (out->symbols == NULL) {
        return ERR_NOMEM;
    }
    json_object_foreach((json_t *)patterns, key, schema)
    {
        struct err_info why = {0};
        regex_id r;
        symbol_id of;
        bool none;
        enum err err = regex_parse(w->s, key, strlen(key), true, &r, &why);
        TRY(err == ERR_INVALID_GRAMMAR ? refuse(w, node->path, "patternProperties", why.text) : err);
        for (size_t i = 0; i < names->n; i++) {
            if (matches(w, r, names->at[i])) {
                return refuse(w, node->path, "patternProperties",
                              "expected no pattern that finds a name of `properties` or `required`");
            }
        }
        TRY(regex_is_none(w->s, regex_and(w->s, *found, r), BUDGET, &none));
        if (!none) {
            return refuse(w, node->path, "patternProperties", "expected patterns of which no two find the same name");
        }
        *found = regex_or(w->s, *found, r);
        TRY(need(w, schema, join(w, path, key), &of));
        regex_id name = regex_json_escaped(w->s, regex_and(w->s, r, regex_not(w->s, own)));
        out->symbols[out->n++] = grammar_sequence(w->b, (symbol_id[]){key_of(w, name), of}, 2);
    }
    return ERR_OK;
}

/* Members of other names; *is_there: there may be such. more: what those hold that no pattern finds; additional: what says so. */
static enum err other_member(struct writer *w, const struct node *node, const struct names *names, symbol_id more,
                             const json_t *additional, symbol_id *out, bool *is_there)
{
    struct members members = {.n = 0};
    regex_id found = REGEX_NONE, *own = arena_zalloc_array(&w->arena, names->n + 1, sizeof *own);
    if (own == NULL) {
        return ERR_NOMEM;
    }
    bool has_more = !json_is_false(additional);
    *is_there = has_more || json_object_size(json_object_get(node->schema, "patternProperties")) > 0;
    for (size_t i = 0; i < names->n && *is_there; i++) {
        own[i] = regex_bytes(w->s, names->at[i], strlen(names->at[i]));
    }
    regex_id all = *is_there ? regex_or_all(w->s, own, names->n) : REGEX_NONE;
    TRY(pattern_members(w, node, names, all, &members, &found));
    if (has_more) {
        regex_id rest = regex_and(w->s, w->any_text, regex_not(w->s, regex_or(w->s, all, found)));
        members.symbols[members.n++] =
            grammar_sequence(w->b, (symbol_id[]){key_of(w, regex_json_escaped(w->s, rest)), more}, 2);
    }
    *out = *is_there ? grammar_choice(w->b, members.symbols, members.n) : 0;
    return ERR_OK;
}

/* A member of the i-th name. */
static enum err own_member(struct writer *w, const struct node *node, const struct names *names, size_t i,
                           symbol_id more, symbol_id *out)
{
    const json_t *schema = json_object_get(json_object_get(node->schema, "properties"), names->at[i]);
    symbol_id of = more;
    if (i < names->n_own) {
        const char *path = join(w, node->path, "properties");
        TRY(path != NULL ? need(w, schema, join(w, path, names->at[i]), &of) : ERR_NOMEM);
    }
    *out = grammar_sequence(w->b, (symbol_id[]){key_of(w, written(w, names->at[i])), of}, 2);
    return ERR_OK;
}

/* From the last name to the first: what may follow where none was written so far, and where some was. */
static enum err write_object(struct writer *w, const struct node *node)
{
    const json_t *properties = json_object_get(node->schema, "properties"),
                 *required = json_object_get(node->schema, "required"),
                 *additional = json_object_get(node->schema, "additionalProperties");
    struct names names;
    symbol_id more = any_value(w), other, member;
    bool has_others_behind;
    uint32_t least, n_required = 0;
    if (properties != NULL && !json_is_object(properties)) {
        return refuse(w, node->path, "properties", "expected an object of schemas");
    }
    TRY(read_count(w, node, "minProperties", 0, &least));
    TRY(list_names(w, node, properties, required, &names));
    for (size_t i = 0; i < names.n; i++) {
        n_required += is_required(required, names.at[i]);
    }
    if (least > 1 && least > n_required) {
        return refuse(w, node->path, "minProperties", "expected 1, or as many as are required, at most");
    }
    if (additional != NULL) {
        TRY(need(w, additional, join(w, node->path, "additionalProperties"), &more));
    }
    TRY(other_member(w, node, &names, more, additional, &other, &has_others_behind));
    symbol_id some = empty(w), none = some, first; /* what may follow a member, and what none */
    if (has_others_behind) {
        symbol_id others = grammar_sequence(w->b, (symbol_id[]){w->comma, other}, 2);
        some = grammar_repeat(w->b, others, 0, REGEX_UNBOUNDED);
        first = grammar_sequence(w->b, (symbol_id[]){other, some}, 2);
        none = least > 0 ? first : grammar_choice(w->b, (symbol_id[]){none, first}, 2);
    } else if (least > 0) {
        none = grammar_rule(w->b); /* nothing is not enough */
    }
    for (size_t i = names.n; i-- > 0;) {
        TRY(own_member(w, node, &names, i, more, &member));
        symbol_id next_some = grammar_sequence(w->b, (symbol_id[]){w->comma, member, some}, 3);
        symbol_id next_none = grammar_sequence(w->b, (symbol_id[]){member, some}, 2);
        if (!is_required(required, names.at[i])) {
            next_none = grammar_choice(w->b, (symbol_id[]){next_none, none}, 2);
            next_some = grammar_choice(w->b, (symbol_id[]){next_some, some}, 2);
        }
        none = next_none;
        some = next_some;
    }
    add(w, node, grammar_sequence(w->b, (symbol_id[]){opening(w, "{"), none, closing(w, "}")}, 3));
    return ERR_OK;
}

/* --- arrays ------------------------------------------------------------------------------------------------------------ */

/* Elements behind the first ones: of `of`, so many that there are min to max in all. */
static symbol_id write_rest(struct writer *w, symbol_id of, uint32_t n_first, uint32_t min, uint32_t max)
{
    symbol_id more = grammar_sequence(w->b, (symbol_id[]){w->comma, of}, 2);
    if (max != REGEX_UNBOUNDED && max <= n_first) {
        return empty(w);
    }
    uint32_t least = min > n_first ? min - n_first : 0, most = max == REGEX_UNBOUNDED ? max : max - n_first;
    if (n_first > 0) {
        return grammar_repeat(w->b, more, least, most);
    }
    uint32_t behind = most == REGEX_UNBOUNDED ? most : most - 1;
    symbol_id some =
        grammar_sequence(w->b, (symbol_id[]){of, grammar_repeat(w->b, more, least > 0 ? least - 1 : 0, behind)}, 2);
    return least > 0 ? some : grammar_choice(w->b, (symbol_id[]){empty(w), some}, 2);
}

static enum err write_array(struct writer *w, const struct node *node)
{
    const json_t *items = json_object_get(node->schema, "items"), *first = json_object_get(node->schema, "prefixItems");
    const char *rest_word = "items";
    uint32_t min, max;
    symbol_id of = any_value(w), rest;
    TRY(read_count(w, node, "minItems", 0, &min));
    TRY(read_count(w, node, "maxItems", REGEX_UNBOUNDED, &max));
    if (json_is_array(items)) { /* before 2020-12 */
        first = items;
        rest_word = "additionalItems";
        items = json_object_get(node->schema, rest_word);
    }
    if (items != NULL) {
        TRY(need(w, items, join(w, node->path, rest_word), &of));
    }
    if (first != NULL && !json_is_array(first)) {
        return refuse(w, node->path, "prefixItems", "expected an array of schemas");
    }
    size_t n = json_array_size(first);
    const char *path =
        join(w, node->path, json_object_get(node->schema, "prefixItems") != NULL ? "prefixItems" : "items");
    if (path == NULL || n > SCHEMA_MAX_NODES) {
        return path == NULL ? ERR_NOMEM : refuse(w, node->path, "prefixItems", "expected fewer schemas");
    }
    rest = write_rest(w, of, (uint32_t)n, min, max);
    for (size_t i = n; i-- > 0;) { /* rest: what follows the elements up to i, which may be left out from some on */
        symbol_id one;
        TRY(need(w, json_array_get(first, i), join_index(w, path, i), &one));
        rest = i == 0 ? grammar_sequence(w->b, (symbol_id[]){one, rest}, 2)
                      : grammar_sequence(w->b, (symbol_id[]){w->comma, one, rest}, 3);
        bool may = max == REGEX_UNBOUNDED || i < max, must = i < min;
        rest = !may ? empty(w) : must ? rest : grammar_choice(w->b, (symbol_id[]){empty(w), rest}, 2);
    }
    if (max != REGEX_UNBOUNDED && min > max) {
        return ERR_OK; /* no array is so */
    }
    add(w, node, grammar_sequence(w->b, (symbol_id[]){opening(w, "["), rest, closing(w, "]")}, 3));
    return ERR_OK;
}

/* --- scalars ---------------------------------------------------------------------------------------------------------- */

/* Strings that the pattern is found in. */
static enum err read_pattern(struct writer *w, const struct node *node, const json_t *pattern, regex_id *out)
{
    struct err_info why = {0};
    if (!json_is_string(pattern)) {
        return refuse(w, node->path, "pattern", "expected a string, a regular expression");
    }
    enum err err = regex_parse(w->s, json_string_value(pattern), json_string_length(pattern), true, out, &why);
    return err == ERR_INVALID_GRAMMAR ? refuse(w, node->path, "pattern", why.text) : err;
}

static enum err write_string(struct writer *w, const struct node *node)
{
    const json_t *pattern = json_object_get(node->schema, "pattern"), *format = json_object_get(node->schema, "format");
    enum schema_format kind = SCHEMA_FORMAT_UNKNOWN;
    uint32_t min, max;
    regex_id strings = REGEX_ALL, found;
    TRY(read_count(w, node, "minLength", 0, &min));
    TRY(read_count(w, node, "maxLength", REGEX_UNBOUNDED, &max));
    if (pattern != NULL) {
        TRY(read_pattern(w, node, pattern, &strings));
    }
    if (json_is_string(format)) {
        kind = schema_format_of(w->s, json_string_value(format), &found);
        strings = kind == SCHEMA_FORMAT_KNOWN ? regex_and(w->s, strings, found) : strings;
    }
    if (kind == SCHEMA_FORMAT_REFUSED) {
        return refuse(w, node->path, "format", "this format is not supported");
    }
    bool is_free = strings == REGEX_ALL && min == 0 && max == REGEX_UNBOUNDED;
    regex_id counted = regex_repeat(w->s, regex_any_character(w->s), min, max);
    regex_id inside = regex_json_escaped(w->s, regex_and(w->s, counted, strings));
    add(w, node, grammar_lexeme(w->b, is_free ? grammar_json_string(w->b) : quoted(w, inside)));
    return ERR_OK;
}

/* The bound of `keyword`, or of the one that leaves the bound itself out, which before 2019 was a boolean beside it; the nearer
 * one of both. sign: 1 of minima, -1 of maxima. */
static enum err read_bound(struct writer *w, const struct node *node, const char *keyword, const char *open_keyword,
                           int sign, bool is_whole, struct schema_bound *out)
{
    const json_t *closed = json_object_get(node->schema, keyword), *open = json_object_get(node->schema, open_keyword);
    *out = (struct schema_bound){.is_there = false};
    for (int i = 0; i < 2; i++) {
        const json_t *v = i == 0 ? closed : open;
        const char *word = i == 0 ? keyword : open_keyword;
        if (v == NULL || (i == 1 && json_is_boolean(v))) {
            continue;
        }
        double number = json_number_value(v);
        if (!json_is_number(v) || !(number >= -(double)SCHEMA_MAX_BOUND && number <= (double)SCHEMA_MAX_BOUND)) {
            return refuse(w, node->path, word, "expected a number of at most 10^15 from 0");
        }
        int64_t value = (int64_t)number;
        bool is_open = i == 1 || json_is_true(open), is_cut = (double)value != number;
        if (is_cut && !is_whole) {
            return refuse(w, node->path, word,
                          "expected a whole number; others are not supported as bounds of a number");
        }
        if (is_cut) { /* the next whole number inside */
            value += sign > 0 ? number > 0 : -(number < 0);
            is_open = false;
        }
        int64_t nearer = sign * (value - out->value);
        if (!out->is_there || nearer > 0 || (nearer == 0 && is_open)) {
            *out = (struct schema_bound){true, is_open, value};
        }
    }
    return ERR_OK;
}

static enum err write_number(struct writer *w, const struct node *node, bool is_whole)
{
    struct schema_bound min, max;
    TRY(read_bound(w, node, "minimum", "exclusiveMinimum", 1, is_whole, &min));
    TRY(read_bound(w, node, "maximum", "exclusiveMaximum", -1, is_whole, &max));
    bool is_free = !is_whole && !min.is_there && !max.is_there;
    add(w, node, grammar_lexeme(w->b, is_free ? grammar_json_number(w->b) : schema_numbers(w->s, min, max, is_whole)));
    return ERR_OK;
}

/* The one text of the value, as jansson writes it. */
static enum err write_value(struct writer *w, const struct node *node, const json_t *value, regex_id *out)
{
    *out = REGEX_NONE;
    if (!schema_fits_type(json_object_get(node->schema, "type"), value)) {
        return ERR_OK;
    }
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (dumped == NULL) {
        return ERR_NOMEM;
    }
    *out = regex_bytes(w->s, dumped, strlen(dumped));
    mem_free(dumped);
    return ERR_OK;
}

/* One lexeme for all values of an enumeration. */
static enum err write_enum(struct writer *w, const struct node *node, const json_t *values)
{
    size_t n = json_array_size(values);
    if (has_others(node->schema, "enum", true)) {
        return refuse(w, node->path, "enum", "expected no other keyword beside it but type");
    }
    if (!json_is_array(values)) {
        return refuse(w, node->path, "enum", "expected an array of values");
    }
    regex_id *all = mem_zalloc_array(n + 1, sizeof *all, MEM_REQUEST);
    enum err err = all != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        err = write_value(w, node, json_array_get(values, i), &all[i]);
    }
    if (err == ERR_OK) {
        add(w, node, grammar_lexeme(w->b, regex_or_all(w->s, all, n)));
    }
    mem_free(all);
    return err;
}

static enum err write_const(struct writer *w, const struct node *node, const json_t *value)
{
    regex_id text_of;
    if (has_others(node->schema, "const", true)) {
        return refuse(w, node->path, "const", "expected no other keyword beside it but type");
    }
    TRY(write_value(w, node, value, &text_of));
    add(w, node, grammar_lexeme(w->b, text_of));
    return ERR_OK;
}

static enum err write_types(struct writer *w, const struct node *node)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    const json_t *type = json_object_get(node->schema, "type");
    for (size_t i = 0; i < MAX_OF(json_array_size(type), type != NULL ? 1u : 0u); i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        bool known = false;
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            known = known || json_read_is(one, names[k]);
        }
        if (!known) {
            return refuse(w, node->path, "type", "expected object, array, string, number, integer, boolean or null");
        }
    }
    TRY(type == NULL || schema_has_type(type, "object") ? write_object(w, node) : ERR_OK);
    TRY(type == NULL || schema_has_type(type, "array") ? write_array(w, node) : ERR_OK);
    TRY(type == NULL || schema_has_type(type, "string") ? write_string(w, node) : ERR_OK);
    if (type == NULL || schema_has_type(type, "number") || schema_has_type(type, "integer")) {
        TRY(write_number(w, node, type != NULL && !schema_has_type(type, "number")));
    }
    if (type == NULL || schema_has_type(type, "boolean")) {
        add(w, node, text(w, "true"));
        add(w, node, text(w, "false"));
    }
    if (type == NULL || schema_has_type(type, "null") || json_is_true(json_object_get(node->schema, "nullable"))) {
        add(w, node, text(w, "null"));
    }
    return ERR_OK;
}

/* --- a schema ---------------------------------------------------------------------------------------------------------- */

static enum err write_ref(struct writer *w, const struct node *node, const json_t *ref)
{
    symbol_id symbol;
    if (!w->ref_is_alone && has_others(node->schema, "$ref", false)) {
        return refuse(w, node->path, "$ref", "expected no other keyword beside it");
    }
    if (node->is_of_another) {
        return refuse(w, node->path, "$ref", "expected no schema around it with an $id of its own");
    }
    const json_t *found = json_is_string(ref) ? schema_resolve(w->root, json_string_value(ref)) : NULL;
    if (found == NULL) {
        return refuse(w, node->path, "$ref",
                      "expected a JSON pointer to a schema of the same document, as #/$defs/name");
    }
    TRY(need(w, found, json_string_value(ref) + 1, &symbol)); /* the text lives as long as the document */
    add(w, node, symbol);
    return ERR_OK;
}

/* Of oneOf, where just one may hold: no value is of two of them, which has to be plain to see. */
static enum err check_one_of(struct writer *w, const struct node *node, const json_t *all)
{
    enum { MOST = 128 };
    size_t n = json_array_size(all);
    for (size_t i = 0; i < n && n <= MOST; i++) {
        for (size_t k = 0; k < i; k++) {
            if (!schema_are_disjoint(w->root, json_array_get(all, i), json_array_get(all, k))) {
                return refuse(w, node->path, "oneOf",
                              "expected schemas of which no value can be of two, by types, values or members");
            }
        }
    }
    return n <= MOST ? ERR_OK : refuse(w, node->path, "oneOf", "expected 128 schemas at most");
}

/* anyOf, oneOf, or allOf of a single one. */
static enum err write_some_of(struct writer *w, const struct node *node, const char *keyword)
{
    const char *path = join(w, node->path, keyword);
    const json_t *all = json_object_get(node->schema, keyword);
    if (has_others(node->schema, keyword, false)) {
        return refuse(w, node->path, keyword, "expected no other keyword beside it");
    }
    if (!json_is_array(all) || json_array_size(all) == 0 || path == NULL) {
        return path == NULL ? ERR_NOMEM : refuse(w, node->path, keyword, "expected an array of schemas");
    }
    if (strcmp(keyword, "allOf") == 0 && json_array_size(all) > 1) {
        return refuse(w, node->path, keyword, "expected one schema; several are not supported");
    }
    TRY(strcmp(keyword, "oneOf") == 0 ? check_one_of(w, node, all) : ERR_OK);
    for (size_t i = 0; i < json_array_size(all); i++) {
        symbol_id symbol;
        TRY(need(w, json_array_get(all, i), join_index(w, path, i), &symbol));
        add(w, node, symbol);
    }
    return ERR_OK;
}

static enum err write_node(struct writer *w, const struct node *node)
{
    const json_t *ref = json_object_get(node->schema, "$ref");
    static const char *const some_of[] = {"anyOf", "oneOf", "allOf"};
    const json_t *values = json_object_get(node->schema, "enum"), *value = json_object_get(node->schema, "const");
    if (ref != NULL && w->ref_is_alone) {
        return write_ref(w, node, ref);
    }
    TRY(check_keywords(w, node));
    if (ref != NULL) {
        return write_ref(w, node, ref);
    }
    for (size_t i = 0; i < ARRAY_LEN(some_of); i++) {
        if (json_object_get(node->schema, some_of[i]) != NULL) {
            return write_some_of(w, node, some_of[i]);
        }
    }
    if (values != NULL) {
        return write_enum(w, node, values);
    }
    if (value != NULL) {
        return write_const(w, node, value);
    }
    return write_types(w, node);
}

static enum err write_all(struct writer *w, symbol_id *out)
{
    w->spaces = grammar_json_spaces(w->b);
    w->any_text = regex_repeat(w->s, regex_any_character(w->s), 0, REGEX_UNBOUNDED);
    w->comma =
        grammar_lexeme(w->b, regex_concat(w->s, w->spaces, regex_concat(w->s, regex_bytes(w->s, ",", 1), w->spaces)));
    const char *draft = json_string_value(json_object_get(w->root, "$schema"));
    w->ref_is_alone = draft != NULL && (strstr(draft, "draft-04") != NULL || strstr(draft, "draft-06") != NULL ||
                                        strstr(draft, "draft-07") != NULL);
    TRY(need(w, w->root, "", out));
    while (w->n_written < w->n_nodes) {
        const struct node node = w->nodes[w->n_written++];
        TRY(write_node(w, &node));
        TRY(w->has_failed ? ERR_NOMEM : regex_ok(w->s));
    }
    return ERR_OK;
}

enum err schema_add(struct grammar_builder *b, const json_t *schema, symbol_id *out, struct err_info *info)
{
    struct writer w = {.b = b, .s = grammar_regexes(b), .root = schema, .info = info};
    arena_init(&w.arena, 4096, 8 << 20, MEM_REQUEST);
    w.nodes = mem_zalloc_array(SCHEMA_MAX_NODES, sizeof *w.nodes, MEM_REQUEST);
    w.table = mem_zalloc_array(N_TABLE, sizeof *w.table, MEM_REQUEST);
    enum err err = w.nodes != NULL && w.table != NULL ? write_all(&w, out) : ERR_NOMEM;
    if (err == ERR_NOMEM) {
        err_set(info, err, NULL, "out of memory for the JSON Schema");
    } else if (err == ERR_GRAMMAR_LIMIT && info->code != err) {
        err_set(info, err, NULL, "JSON Schema: the strings it names take too much work");
    }
    mem_free(w.nodes);
    mem_free(w.table);
    arena_fini(&w.arena);
    return err;
}
