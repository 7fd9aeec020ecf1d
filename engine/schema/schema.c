/* What a value is to be of is a list of schemas, the parts: $ref and allOf add to it, anyOf has a list for each of its schemas, and
 * what not, if and oneOf say is put in these words first (schema_form.c). Each list becomes a rule, once; those that are not yet
 * written wait. */
#include "engine/schema/schema_internal.h"

#include "engine/base/json_read.h"
#include "engine/grammar/grammar_json.h"
#include "engine/regex/regex_parse_internal.h"
#include "engine/schema/schema_disjoint.h"
#include "engine/schema/schema_refs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum err schema_refuse(struct writer *w, const char *path, const char *keyword, const char *expected)
{
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "%.96s/%.24s", path, keyword);
    return err_set(w->info, ERR_INVALID_SCHEMA, where, "JSON Schema, %.200s/%s: %s", path[0] != '\0' ? path : "#",
                   keyword, expected);
}

enum err schema_refuse_pattern(struct writer *w, const char *path, const char *keyword, enum err err, const char *why)
{
    if (err != ERR_GRAMMAR_LIMIT) {
        return err == ERR_INVALID_GRAMMAR ? schema_refuse(w, path, keyword, why) : err;
    }
    return err_set(w->info, err, NULL, "JSON Schema, %.200s/%s: %s", path[0] != '\0' ? path : "#", keyword, why);
}

/* --- pieces ----------------------------------------------------------------------------------------------------------- */

static symbol_id text(struct writer *w, const char *s) { return grammar_lexeme(w->b, regex_bytes(w->s, s, strlen(s))); }

symbol_id schema_opening(struct writer *w, const char *bracket)
{
    return grammar_lexeme(w->b, regex_concat(w->s, regex_bytes(w->s, bracket, 1), w->spaces));
}

symbol_id schema_closing(struct writer *w, const char *bracket)
{
    return grammar_lexeme(w->b, regex_concat(w->s, w->spaces, regex_bytes(w->s, bracket, 1)));
}

regex_id schema_quoted(struct writer *w, regex_id inside)
{
    regex_id quote = regex_bytes(w->s, "\"", 1);
    return regex_concat(w->s, quote, regex_concat(w->s, inside, quote));
}

bool schema_matches(struct writer *w, regex_id r, const char *text)
{
    for (; *text != '\0'; text++) {
        r = regex_next(w->s, r, (unsigned char)*text);
    }
    return regex_is_nullable(w->s, r);
}

static symbol_id any_value(struct writer *w)
{
    w->any = w->any != 0 ? w->any : grammar_json_value(w->b);
    return w->any;
}

void schema_put(struct writer *w, const struct node *node, symbol_id symbol)
{
    grammar_alternative(w->b, node->rule, &symbol, 1);
}

const char *schema_join(struct writer *w, const char *path, const char *key)
{
    enum { MOST_OF_PATH = 80 };
    char out[ERR_WHERE_BYTES];
    size_t n = strnlen(path, MOST_OF_PATH), n_plain = strcspn(key, "~/");
    memcpy(out, path, n);
    out[n++] = '/';
    n_plain = MIN_OF(n_plain, sizeof out - 3 - n);
    memcpy(out + n, key, n_plain);
    n += n_plain;
    for (key += n_plain; *key != '\0' && n + 3 < sizeof out; key++) {
        if (*key == '~' || *key == '/') {
            out[n++] = '~';
            out[n++] = *key == '~' ? '0' : '1';
        } else {
            out[n++] = *key;
        }
    }
    return arena_dup(&w->arena, out, n);
}

const char *schema_join_index(struct writer *w, const char *path, size_t i)
{
    char digits[24], *number = digits + sizeof digits - 1;
    *number = '\0';
    do {
        *--number = (char)('0' + i % 10);
        i /= 10;
    } while (i > 0);
    return schema_join(w, path, number);
}

enum err schema_spend(struct writer *w, size_t work) { return regex_spend(w->s, work) ? ERR_OK : regex_ok(w->s); }

/* --- keywords -------------------------------------------------------------------------------------------------------- */

/* Keywords that say something of values, in order; others are not looked at. */
static const char *const words[] = {
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "extends",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "x-lark",
};

static int by_name(const void *key, const void *row) { return strcmp(key, *(const char *const *)row); }

bool schema_is_word(const char *key) { return bsearch(key, words, ARRAY_LEN(words), sizeof *words, by_name) != NULL; }

bool schema_says_more(const json_t *schema, const char *one)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
    {
        if ((one == NULL || strcmp(key, one) != 0) && schema_is_word(key)) {
            return true;
        }
    }
    return false;
}

static struct seen *seen_place(const struct writer *w, const json_t *schema)
{
    size_t at = (size_t)(((uintptr_t)schema >> 4) * 0x9e3779b97f4a7c15u >> 20) % w->cap_seen;
    while (w->seen[at].schema != NULL && w->seen[at].schema != schema) {
        at = at + 1 < w->cap_seen ? at + 1 : 0;
    }
    return &w->seen[at];
}

static bool grow_seen(struct writer *w)
{
    enum { FIRST = 64 };
    struct seen *before = w->seen;
    size_t n = w->cap_seen, more = n != 0 ? 2 * n : FIRST;
    struct seen *table = mem_zalloc_array(more, sizeof *table, MEM_REQUEST);
    if (table == NULL) {
        return false;
    }
    w->seen = table;
    w->cap_seen = more;
    for (size_t i = 0; i < n; i++) {
        if (before[i].schema != NULL) {
            *seen_place(w, before[i].schema) = before[i];
        }
    }
    mem_free(before);
    return true;
}

/* What the object's keys say, for as long as no other schema is looked at; NULL: no memory. */
static const struct seen *see(struct writer *w, const json_t *schema)
{
    const char *key;
    json_t *value;
    if (2 * w->n_seen >= w->cap_seen && !grow_seen(w)) {
        w->has_failed = true;
        return NULL;
    }
    struct seen *place = seen_place(w, schema);
    if (place->schema == NULL) {
        *place = (struct seen){.schema = schema, .has_id = schema_has_id(schema)};
        w->n_seen++;
        json_object_foreach((json_t *)schema, key, value)
        {
            place->words |= schema_word_bit(key);
            place->says = place->says || schema_is_word(key);
        }
    }
    return place;
}

static enum err check_keywords(struct writer *w, const struct part *p)
{
    static const char *const refused[] = {"$dynamicRef", "$recursiveRef", "disallow", "extends"};
    TRY(schema_spend(w, 40 + 6 * json_object_size(p->schema)));
    for (size_t i = 0; i < ARRAY_LEN(refused) && !w->is_loose; i++) {
        if (schema_member(p, refused[i]) != NULL) {
            return schema_refuse(w, p->path, refused[i], "this keyword is not supported");
        }
    }
    return ERR_OK;
}

enum err schema_count(struct writer *w, const struct part *p, const char *keyword, uint32_t none, uint32_t *out)
{
    const json_t *v = schema_keyword(w, p, keyword);
    double number = json_number_value(v);
    *out = none;
    if (v == NULL) {
        return ERR_OK;
    }
    if (!json_is_number(v) || number < 0 || number != floor(number)) {
        return schema_refuse(w, p->path, keyword, "expected a whole number, 0 or more");
    }
    *out = number < (double)(UINT32_MAX - 1) ? (uint32_t)number : UINT32_MAX - 1;
    return ERR_OK;
}

/* --- schemas in other forms ------------------------------------------------------------------------------------------- */

/* Where it is in the table, or is to be. */
static uint32_t *made_place(const struct writer *w, const json_t *of, enum schema_form what)
{
    size_t n = 2 * w->cap_made, at = (size_t)(((uintptr_t)of >> 4 ^ (uintptr_t)what) * 0x9e3779b97f4a7c15u >> 20) % n;
    while (w->made_table[at] != 0 &&
           (w->made[w->made_table[at] - 1].of != of || w->made[w->made_table[at] - 1].what != (int)what)) {
        at = at + 1 < n ? at + 1 : 0;
    }
    return &w->made_table[at];
}

bool schema_was_made(const struct writer *w, const json_t *of, enum schema_form what, const json_t **out)
{
    uint32_t i = w->n_made > 0 ? *made_place(w, of, what) : 0;
    *out = i != 0 ? w->made[i - 1].schema : *out;
    return i != 0;
}

static bool grow_made(struct writer *w)
{
    size_t more = 2 * w->cap_made + 16;
    struct made *made = mem_realloc(w->made, more * sizeof *made, MEM_REQUEST);
    w->made = made != NULL ? made : w->made;
    uint32_t *table = made != NULL ? mem_zalloc_array(2 * more, sizeof *table, MEM_REQUEST) : NULL;
    if (table == NULL) {
        return false;
    }
    mem_free(w->made_table);
    w->made_table = table;
    w->cap_made = more;
    for (size_t i = 0; i < w->n_made; i++) {
        *made_place(w, w->made[i].of, (enum schema_form)w->made[i].what) = (uint32_t)i + 1;
    }
    return true;
}

const json_t *schema_keep(struct writer *w, const json_t *of, enum schema_form what, json_t *schema)
{
    enum { MOST = 16384 };
    w->has_failed |= schema == NULL;
    if (schema == NULL || w->n_made == MOST) {
        json_decref(schema);
        return NULL;
    }
    if (w->n_made == w->cap_made && !grow_made(w)) {
        json_decref(schema);
        w->has_failed = true;
        return NULL;
    }
    *made_place(w, of, what) = (uint32_t)w->n_made + 1;
    w->made[w->n_made++] = (struct made){of, (int)what, schema};
    return schema;
}

bool schema_was_derived(const struct writer *w, const json_t *schema)
{
    bool is = false;
    for (size_t i = 0; i < w->n_made; i++) {
        is =
            is || (w->made[i].schema == schema && w->made[i].what != SCHEMA_ONE_OF && w->made[i].what != SCHEMA_INDEX &&
                   w->made[i].what != SCHEMA_MEMBER && w->made[i].what != SCHEMA_NULLABLE);
    }
    return is;
}

enum err schema_not_kept(const struct writer *w) { return w->has_failed ? ERR_NOMEM : ERR_GRAMMAR_LIMIT; }

/* --- lists of parts as rules ------------------------------------------------------------------------------------------- */

enum err schema_nullable(struct writer *w, const json_t *schema, const json_t **out)
{
    static const char *const others[] = {"$ref", "allOf", "anyOf", "oneOf"};
    bool has_others = false;
    *out = schema;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        has_others = has_others || json_object_get(schema, others[i]) != NULL;
    }
    if (!has_others || !json_is_true(json_object_get(schema, "nullable")) || json_object_get(schema, "type") != NULL ||
        (w->ref_is_alone && json_object_get(schema, "$ref") != NULL) ||
        schema_was_made(w, schema, SCHEMA_NULLABLE, out)) {
        return ERR_OK;
    }
    json_t *rest = json_copy((json_t *)(uintptr_t)schema);
    json_object_del(rest, "nullable");
    *out = schema_keep(w, schema, SCHEMA_NULLABLE, json_pack("{s[o{ss}]}", "anyOf", rest, "type", "null"));
    return *out != NULL ? ERR_OK : schema_not_kept(w);
}

enum err schema_add_part(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                         struct parts *list)
{
    if (path == NULL) {
        return ERR_NOMEM;
    }
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return w->is_loose ? ERR_OK : schema_refuse(w, path, "", "expected a schema, an object or a boolean");
    }
    TRY(schema_nullable(w, schema, &schema));
    list->is_none |= json_is_false(schema);
    const struct seen *seen = json_is_boolean(schema) ? NULL : see(w, schema);
    if (seen == NULL || !seen->says) {
        return w->has_failed ? ERR_NOMEM : ERR_OK;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].schema == schema) {
            return ERR_OK;
        }
    }
    if (list->n == SCHEMA_MAX_PARTS) {
        return err_set(w->info, ERR_GRAMMAR_LIMIT, NULL, "JSON Schema: expected at most %d schemas for one value",
                       SCHEMA_MAX_PARTS);
    }
    bool is_of_another = from != NULL && (from->is_of_another || seen->has_id);
    bool is_of_list = from >= list->at && from < list->at + list->n;
    list->at[list->n++] = (struct part){.schema = schema,
                                        .words = seen->words,
                                        .path = path,
                                        .is_of_another = is_of_another,
                                        .asked_by = is_of_list ? (uint32_t)(from - list->at) + 1 : 0};
    return ERR_OK;
}

static bool is_same(const struct node *node, const struct parts *list)
{
    bool same = node->n == list->n;
    for (size_t i = 0; i < list->n && same; i++) {
        same = node->parts[i].schema == list->at[i].schema && node->parts[i].is_chosen == list->at[i].is_chosen &&
               node->parts[i].is_valued == list->at[i].is_valued;
    }
    return same;
}

enum err schema_need(struct writer *w, struct parts *list, symbol_id *out)
{
    if (list->is_none) {
        *out = grammar_rule(w->b); /* derives nothing */
        return ERR_OK;
    }
    if (list->n == 0) {
        *out = any_value(w);
        return ERR_OK;
    }
    uint64_t hash = 0;
    for (size_t i = 0; i < list->n; i++) {
        hash = (hash ^ (uint64_t)(uintptr_t)list->at[i].schema ^ list->at[i].is_chosen ^ 2u * list->at[i].is_valued) *
               0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    size_t n_table = 2 * w->max_nodes, at = hash % n_table;
    for (; w->table[at] != 0; at = at + 1 < n_table ? at + 1 : 0) {
        if (is_same(&w->nodes[w->table[at] - 1], list)) {
            *out = w->nodes[w->table[at] - 1].rule;
            return ERR_OK;
        }
    }
    if (w->n_nodes == w->max_nodes && w->is_loose) {
        *out = any_value(w);
        return ERR_OK;
    }
    if (w->n_nodes == w->max_nodes) {
        return err_set(w->info, ERR_GRAMMAR_LIMIT, NULL, "JSON Schema: expected at most %d schemas within it",
                       SCHEMA_MAX_NODES);
    }
    struct part *parts = arena_alloc(&w->arena, list->n * sizeof *parts);
    if (parts == NULL) {
        return ERR_NOMEM;
    }
    memcpy(parts, list->at, list->n * sizeof *parts);
    *out = grammar_rule(w->b);
    w->nodes[w->n_nodes++] = (struct node){parts, list->n, *out};
    w->table[at] = (uint32_t)w->n_nodes;
    return ERR_OK;
}

/* --- what a list says -------------------------------------------------------------------------------------------------- */

enum err schema_follow(struct writer *w, const struct part *p, const json_t *ref, const char *path, const json_t **out)
{
    if (p->is_of_another) {
        return schema_refuse(w, path, "$ref", "expected no schema around it with an $id of its own");
    }
    *out = json_is_string(ref) ? schema_resolve(w->root, json_string_value(ref)) : NULL;
    return *out != NULL
               ? ERR_OK
               : schema_refuse(
                     w, path, "$ref",
                     "expected a JSON pointer to a schema of the same document, as #/$defs/name, an $anchor or an "
                     "$id in it");
}

static enum err add_ref(struct writer *w, const struct part *p, const json_t *ref, struct parts *list)
{
    const json_t *found;
    TRY(schema_follow(w, p, ref, p->path, &found));
    for (size_t i = (size_t)(p - list->at) + 1; i != 0; i = list->at[i - 1].asked_by) {
        list->is_none |= list->at[i - 1].schema == found; /* a circle: nothing is begun with */
    }
    return schema_add_part(w, p, found, json_string_value(ref) + 1, list); /* the text lives as long as the document */
}

static enum err add_all_of(struct writer *w, const struct part *p, struct parts *list)
{
    const json_t *all = schema_member(p, "allOf");
    if (all == NULL) {
        return ERR_OK;
    }
    const char *path = schema_join(w, p->path, "allOf");
    if (!json_is_array(all) || json_array_size(all) == 0) {
        return schema_refuse(w, p->path, "allOf", "expected an array of schemas");
    }
    for (size_t i = 0; i < json_array_size(all) && path != NULL; i++) {
        TRY(schema_add_part(w, p, json_array_get(all, i), schema_join_index(w, path, i), list));
    }
    return path != NULL ? ERR_OK : ERR_NOMEM;
}

/* Adds all that the parts of the node ask for beside themselves. */
static enum err expand(struct writer *w, const struct node *node, struct parts *list)
{
    memcpy(list->at, node->parts, node->n * sizeof *list->at);
    list->n = node->n;
    list->is_none = false;
    for (size_t i = 0; i < list->n && !list->is_none; i++) {
        const struct part *p = &list->at[i];
        const json_t *ref = schema_member(p, "$ref"), *more = NULL;
        TRY(ref != NULL ? add_ref(w, p, ref, list) : ERR_OK);
        if (ref != NULL && w->ref_is_alone) {
            continue;
        }
        TRY(check_keywords(w, p));
        TRY(add_all_of(w, p, list));
        TRY(schema_conditions(w, p, &more));
        TRY(more != NULL ? schema_add_part(w, p, more, p->path, list) : ERR_OK);
        TRY(schema_one_of(w, p, &more));
        size_t n = list->n;
        TRY(more != NULL ? schema_add_part(w, p, more, p->path, list) : ERR_OK);
        if (list->n > n) {
            list->at[n].is_one_of = true;
        }
    }
    return ERR_OK;
}

/* The node is what one of the i-th part's anyOf makes of the list. */
static enum err write_any_of(struct writer *w, const struct node *node, const struct parts *list, size_t i)
{
    const struct part *p = &list->at[i];
    const json_t *all = schema_member(p, "anyOf");
    const char *path = schema_join(w, p->path, p->is_one_of ? "oneOf" : "anyOf");
    if (!json_is_array(all) || json_array_size(all) == 0) {
        return schema_refuse(w, p->path, "anyOf", "expected an array of schemas");
    }
    symbol_id symbol, last = 0;
    for (size_t k = 0; k < json_array_size(all) && path != NULL; k++) {
        struct parts one;
        TRY(schema_spend(w, 15 + 2 * list->n));
        parts_copy(&one, list);
        one.at[i].is_chosen = true;
        TRY(schema_add_part(w, p, json_array_get(all, k), schema_join_index(w, path, k), &one));
        if (one.n > list->n) {
            one.at[list->n].asked_by = (uint32_t)i + 1;
        }
        if (!one.is_none) {
            TRY(schema_need(w, &one, &symbol));
            if (k == 0 || symbol != last) { /* of many that say the same one is enough */
                schema_put(w, node, symbol);
            }
            last = symbol;
        }
    }
    return path != NULL ? ERR_OK : ERR_NOMEM;
}

/* Types that the part allows, bits of enum schema_type. */
static enum err read_types(struct writer *w, const struct part *p, unsigned *out)
{
    static const struct {
        const char *name;
        unsigned types;
    } rows[] = {{"object", SCHEMA_OBJECT},   {"array", SCHEMA_ARRAY},
                {"string", SCHEMA_STRING},   {"number", SCHEMA_INTEGER | SCHEMA_FRACTION},
                {"integer", SCHEMA_INTEGER}, {"boolean", SCHEMA_BOOLEAN},
                {"null", SCHEMA_NULL}};
    const json_t *type = schema_keyword(w, p, "type");
    *out = type == NULL ? SCHEMA_ALL_TYPES : 0;
    for (size_t i = 0; i < MAX_OF(json_array_size(type), type != NULL ? 1u : 0u); i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        bool known = one == w->fraction && one != NULL;
        *out |= known ? SCHEMA_FRACTION : 0;
        for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
            bool is_it = json_read_is(one, rows[k].name);
            *out |= is_it ? rows[k].types : 0;
            known = known || is_it;
        }
        if (!known) {
            return schema_refuse(w, p->path, "type",
                                 "expected object, array, string, number, integer, boolean or null");
        }
    }
    *out |= json_is_true(schema_keyword(w, p, "nullable")) ? SCHEMA_NULL : 0;
    return ERR_OK;
}

/* Scalars whose text is one. */
static void write_word(struct writer *w, const struct node *node, const struct parts *list, json_t *value,
                       const char *word)
{
    if (!schema_is_left_out(w, list, value)) {
        schema_put(w, node, text(w, word));
    }
}

/* Where objects and arrays are left out, the node is what else is of the list. Of values that are named all that is left out is. */
static enum err leave_out(struct writer *w, const struct node *node, const struct parts *list, bool *is_written)
{
    struct parts more;
    symbol_id symbol;
    *is_written = false;
    for (size_t i = 0; i < list->n; i++) {
        const json_t *others;
        TRY(list->at[i].is_valued ? ERR_OK : schema_other_values(w, &list->at[i], &others));
        if (list->at[i].is_valued || others == NULL) {
            continue;
        }
        if (!*is_written) {
            parts_copy(&more, list);
        }
        *is_written = true;
        TRY(schema_add_part(w, &list->at[i], others, list->at[i].path, &more));
    }
    if (*is_written && more.n > list->n) { /* else they are there already */
        TRY(schema_need(w, &more, &symbol));
        schema_put(w, node, symbol);
    }
    *is_written = *is_written && more.n > list->n;
    return ERR_OK;
}

static enum err write_types(struct writer *w, const struct node *node, const struct parts *list)
{
    unsigned types = SCHEMA_ALL_TYPES, one;
    bool has_values, is_written = false;
    for (size_t i = 0; i < list->n; i++) {
        TRY(read_types(w, &list->at[i], &one));
        types &= one;
    }
    TRY(schema_write_values(w, node, list, types, &has_values));
    TRY(!has_values && (types & (SCHEMA_OBJECT | SCHEMA_ARRAY)) != 0 ? leave_out(w, node, list, &is_written) : ERR_OK);
    if (has_values || is_written) {
        return ERR_OK;
    }
    TRY((types & SCHEMA_OBJECT) != 0 ? schema_write_object(w, node, list) : ERR_OK);
    TRY((types & SCHEMA_ARRAY) != 0 ? schema_write_array(w, node, list) : ERR_OK);
    TRY((types & SCHEMA_STRING) != 0 ? schema_write_string(w, node, list) : ERR_OK);
    TRY((types & (SCHEMA_INTEGER | SCHEMA_FRACTION)) != 0 ? schema_write_number(w, node, list, types) : ERR_OK);
    if ((types & SCHEMA_BOOLEAN) != 0) {
        write_word(w, node, list, json_true(), "true");
        write_word(w, node, list, json_false(), "false");
    }
    if ((types & SCHEMA_NULL) != 0) {
        write_word(w, node, list, json_null(), "null");
    }
    return ERR_OK;
}

static enum err write_node(struct writer *w, const struct node *node)
{
    struct parts list;
    TRY(expand(w, node, &list));
    if (list.is_none) {
        return ERR_OK;
    }
    for (size_t i = 0; i < list.n; i++) {
        if (!list.at[i].is_chosen && schema_keyword(w, &list.at[i], "anyOf") != NULL) {
            return write_any_of(w, node, &list, i);
        }
    }
    return write_types(w, node, &list);
}

/* Says where it was too much, unless it is said. */
static enum err say_where(struct writer *w, const struct node *node, enum err err)
{
    bool is_full = err == ERR_NOMEM && arena_is_full(&w->arena);
    if (!is_full && err != ERR_GRAMMAR_LIMIT) {
        return err;
    }
    const char *path = node->n > 0 && node->parts[0].path[0] != '\0' ? node->parts[0].path : "#";
    return w->info->code == ERR_GRAMMAR_LIMIT
               ? ERR_GRAMMAR_LIMIT
               : err_set(w->info, ERR_GRAMMAR_LIMIT, NULL,
                         "JSON Schema, %.200s: the schema takes too much work or memory, of which this was the last",
                         path);
}

enum err schema_write_all(struct writer *w)
{
    while (w->n_written < w->n_nodes) {
        const struct node node = w->nodes[w->n_written++];
        enum err err = write_node(w, &node);
        if (err == ERR_INVALID_SCHEMA && w->is_loose) {
            schema_put(w, &node, any_value(w));
            err = ERR_OK;
        }
        err = err == ERR_OK && w->has_failed ? ERR_NOMEM : err;
        err = err == ERR_OK ? regex_ok(w->s) : err;
        TRY(say_where(w, &node, err));
    }
    return ERR_OK;
}

enum err schema_writer_init(struct writer *w, size_t max_nodes)
{
    w->s = grammar_regexes(w->b);
    arena_init(&w->arena, 4096, 32 << 20, MEM_REQUEST);
    w->max_nodes = max_nodes;
    w->nodes = mem_zalloc_array(max_nodes, sizeof *w->nodes, MEM_REQUEST);
    w->table = mem_zalloc_array(2 * max_nodes, sizeof *w->table, MEM_REQUEST);
    w->spaces = grammar_json_spaces(w->b);
    w->any_text = regex_repeat(w->s, regex_any_character(w->s), 0, REGEX_UNBOUNDED);
    w->comma =
        grammar_lexeme(w->b, regex_concat(w->s, w->spaces, regex_concat(w->s, regex_bytes(w->s, ",", 1), w->spaces)));
    w->fraction = json_string("fraction");
    return w->nodes != NULL && w->table != NULL && w->fraction != NULL ? ERR_OK : ERR_NOMEM;
}

void schema_writer_fini(struct writer *w)
{
    for (size_t i = 0; i < w->n_made; i++) {
        json_decref(w->made[i].schema);
    }
    json_decref(w->fraction);
    mem_free(w->made);
    mem_free(w->made_table);
    mem_free(w->seen);
    regex_set_free(&w->check_set);
    mem_free(w->nodes);
    mem_free(w->table);
    arena_fini(&w->arena);
}

static enum err write_root(struct writer *w, symbol_id *out)
{
    struct parts list = {.n = 0};
    const char *draft = json_string_value(json_object_get(w->root, "$schema"));
    w->ref_is_alone = draft != NULL && (strstr(draft, "draft-04") != NULL || strstr(draft, "draft-06") != NULL ||
                                        strstr(draft, "draft-07") != NULL);
    TRY(schema_add_part(w, NULL, w->root, "", &list));
    TRY(schema_need(w, &list, out));
    return schema_write_all(w);
}

enum err schema_add(struct grammar_builder *b, const json_t *schema, symbol_id *out, struct err_info *info)
{
    struct writer w = {.b = b, .root = schema, .info = info};
    json_t *plain;
    enum err err = schema_refs_plain(schema, &plain);
    w.root = plain != NULL ? plain : schema;
    err = err == ERR_OK ? schema_writer_init(&w, SCHEMA_MAX_NODES) : err;
    err = err == ERR_OK ? write_root(&w, out) : err;
    if (err == ERR_NOMEM) {
        err_set(info, err, NULL, "out of memory for the JSON Schema");
    } else if (err == ERR_GRAMMAR_LIMIT && info->code != err) {
        err_set(info, err, NULL, "JSON Schema: it takes too much work or memory");
    }
    schema_writer_fini(&w);
    json_decref(plain);
    return err;
}
