/* Expresses keywords by others: not, if and dependencies become anyOf and allOf, as oneOf does in schema_oneof.c. Each
 * call translates one level of a schema. Schemas within get a `not`, which is translated when it is reached. */
#include "engine/schema/schema_internal.h"

#include "engine/base/json_read.h"
#include "engine/schema/schema_disjoint.h"

#include <math.h>

bool schema_is_plain_not(const struct part *p)
{
    const json_t *of = schema_member(p, "not");
    if (of == NULL) {
        return false;
    }
    bool is_values = json_object_get(of, "enum") != NULL
                         ? !schema_says_more(of, "enum")
                         : json_object_get(of, "const") != NULL && !schema_says_more(of, "const");
    bool is_pattern = json_object_get(of, "pattern") != NULL && !schema_says_more(of, "pattern") &&
                      json_read_is(schema_member(p, "type"), "string");
    return is_values || is_pattern;
}

enum err schema_and(json_t *all, json_t *schema)
{
    return schema != NULL && json_array_append_new(all, schema) == 0 ? ERR_OK : ERR_NOMEM;
}

/* --- not -------------------------------------------------------------------------------------------------------------- */

/* The alternatives of a negation. */
struct negation {
    struct writer *w;
    const json_t *of;
    json_t *any; /* array */
    bool is_unknown;
    enum err err;
};

/* Appends a schema to an array and takes ownership of it. */
static void append(struct negation *n, json_t *all, json_t *schema)
{
    enum err err = schema_and(all, schema);
    n->err = n->err == ERR_OK ? err : n->err;
}

static void or_(struct negation *n, json_t *schema) { append(n, n->any, schema); }

static json_t *not_(const json_t *schema) { return json_pack("{sO}", "not", schema); }

static void negate_type(struct negation *n, const json_t *type)
{
    json_t *others = json_array();
    unsigned in = schema_types_of(type) | (json_is_true(json_object_get(n->of, "nullable")) ? SCHEMA_NULL : 0u);
    for (size_t i = 0; i < json_array_size(type); i++) {
        in |= json_array_get(type, i) == n->w->fraction ? SCHEMA_FRACTION : 0u;
    }
    for (size_t i = 0; i < SCHEMA_TYPE_NAMES; i++) {
        const struct schema_type_name *row = &schema_type_names[i];
        if ((row->types & (in | SCHEMA_FRACTION)) == 0) {
            append(n, others, json_string(row->name));
        }
    }
    if ((in & SCHEMA_FRACTION) == 0) {
        append(n, others, json_incref(n->w->fraction));
    }
    if (json_array_size(others) > 0) {
        or_(n, json_pack("{sO}", "type", others));
    }
    json_decref(others);
}

static void negate_required(struct negation *n, const json_t *required)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        n->is_unknown |= name == NULL;
        if (name != NULL) {
            or_(n, json_pack("{sss{sb}}", "type", "object", "properties", name, 0));
        }
    }
}

static void negate_properties(struct negation *n, const json_t *properties)
{
    const char *name;
    json_t *schema;
    json_object_foreach((json_t *)properties, name, schema)
    {
        if (!json_is_true(schema)) {
            or_(n, json_pack("{sss[s]s{so}}", "type", "object", "required", name, "properties", name, not_(schema)));
        }
    }
}

/* A keyword that limits values of a type, and the keyword of the others. */
struct limit {
    const char *keyword, *type, *opposite;
    int by;                /* of a count: the distance to the nearest other one */
    const char *exclusive; /* of a bound: the keyword that in draft 4 is a boolean */
};

static void negate_count(struct negation *n, const struct limit *l, const json_t *count)
{
    double number = json_number_value(count) + l->by;
    n->is_unknown |= !json_is_number(count) || number > 1e9 || number != floor(number);
    if (json_is_number(count) && number >= 0 && number <= 1e9) { /* below 0: no value satisfies it */
        or_(n, json_pack("{sssI}", "type", l->type, l->opposite, (json_int_t)number));
    }
}

static void negate_bound(struct negation *n, const struct limit *l, const json_t *bound)
{
    n->is_unknown |= !json_is_number(bound) || json_is_boolean(json_object_get(n->of, l->exclusive));
    or_(n, json_pack("{sssO}", "type", l->type, l->opposite, bound));
}

static void negate_all(struct negation *n, const json_t *all)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        or_(n, not_(json_array_get(all, i)));
    }
}

/* The negation of "one of them" is "none of them". */
static void negate_any(struct negation *n, const json_t *any)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(any); i++) {
        append(n, all, not_(json_array_get(any, i)));
    }
    or_(n, json_pack("{so}", "allOf", all));
}

/* Requires a member whose name is not in `properties`. */
static void negate_closed(struct negation *n)
{
    json_t *names = json_object_get(n->of, "properties"), *schema = json_pack("{ss}", "type", "object");
    json_t *none = json_object(), *other = json_pack("{sOsO}", "names", names != NULL ? names : none, "of", schema);
    const json_t *kept;
    enum err err = schema_keep(n->w, schema, SCHEMA_MEMBER, other, &kept);
    n->err = n->err == ERR_OK ? err : n->err;
    json_decref(none);
    or_(n, schema);
}

/* Requires that all elements fail the schema, if the number of contained elements is not restricted. */
static void negate_contains(struct negation *n, const json_t *schema)
{
    bool counts = json_object_get(n->of, "minContains") != NULL || json_object_get(n->of, "maxContains") != NULL;
    n->is_unknown |= counts;
    or_(n, json_pack("{sss{sO}}", "type", "array", "items", "not", schema));
}

/* Requires that one of the first elements exists and fails its schema. */
static void negate_prefix(struct negation *n, const json_t *first)
{
    enum { MOST = 64 };
    n->is_unknown |= json_array_size(first) > MOST;
    for (size_t i = 0; i < json_array_size(first) && !n->is_unknown; i++) {
        json_t *all = json_array();
        for (size_t k = 0; k <= i; k++) {
            append(n, all, k < i ? json_true() : not_(json_array_get(first, i)));
        }
        or_(n, json_pack("{sssIso}", "type", "array", "minItems", (json_int_t)i + 1, "prefixItems", all));
    }
}

/* Requires an element that fails the schema, if the schema applies to all elements. */
static void negate_items(struct negation *n, const json_t *schema)
{
    const json_t *first = json_object_get(n->of, "prefixItems");
    if (first != NULL && json_is_false(schema)) { /* there are more elements than the first ones */
        or_(n, json_pack("{sssI}", "type", "array", "minItems", (json_int_t)json_array_size(first) + 1));
        return;
    }
    n->is_unknown |= json_is_array(schema) || first != NULL;
    or_(n, json_pack("{sss{sO}}", "type", "array", "contains", "not", schema));
}

static void negate_ref(struct negation *n, const json_t *ref)
{
    const json_t *found = json_is_string(ref) ? schema_resolve(n->w->root, json_string_value(ref)) : NULL;
    n->is_unknown |= found == NULL;
    if (found != NULL) {
        or_(n, not_(found));
    }
}

static void negate_keyword(struct negation *n, const char *key, const json_t *value)
{
    static const struct limit limits[] = {{"minLength", "string", "maxLength", -1, NULL},
                                          {"maxLength", "string", "minLength", 1, NULL},
                                          {"minItems", "array", "maxItems", -1, NULL},
                                          {"maxItems", "array", "minItems", 1, NULL},
                                          {"minProperties", "object", "maxProperties", -1, NULL},
                                          {"maxProperties", "object", "minProperties", 1, NULL},
                                          {"minimum", "number", "exclusiveMaximum", 0, "exclusiveMinimum"},
                                          {"maximum", "number", "exclusiveMinimum", 0, "exclusiveMaximum"},
                                          {"exclusiveMinimum", "number", "maximum", 0, "exclusiveMinimum"},
                                          {"exclusiveMaximum", "number", "minimum", 0, "exclusiveMaximum"}};
    static const struct {
        const char *keyword;
        void (*negate)(struct negation *, const json_t *);
    } rows[] = {{"type", negate_type},   {"required", negate_required}, {"properties", negate_properties},
                {"allOf", negate_all},   {"anyOf", negate_any},         {"$ref", negate_ref},
                {"items", negate_items}, {"contains", negate_contains}, {"prefixItems", negate_prefix}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(key, rows[i].keyword) == 0) {
            rows[i].negate(n, value);
            return;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (strcmp(key, limits[i].keyword) == 0) {
            (limits[i].exclusive != NULL ? negate_bound : negate_count)(n, &limits[i], value);
            return;
        }
    }
    if (strcmp(key, "not") == 0) {
        or_(n, json_incref((json_t *)value));
    } else if (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0) {
        or_(n, json_pack("{s{sO}}", "not", key, value));
    } else if (strcmp(key, "pattern") == 0) {
        or_(n, json_pack("{sss{sO}}", "type", "string", "not", key, value));
    } else if (strcmp(key, "additionalProperties") == 0 && json_is_false(value)) {
        negate_closed(n); /* with patternProperties it cannot be negated */
    } else if (strcmp(key, "nullable") != 0 && strcmp(key, "minContains") != 0 && strcmp(key, "maxContains") != 0 &&
               !(strcmp(key, "additionalProperties") == 0 && json_is_true(value))) {
        n->is_unknown |= schema_is_word(key);
    }
}

enum err schema_negate(struct writer *w, const json_t *schema, const json_t **out)
{
    const char *key;
    json_t *value;
    *out = NULL;
    TRY(schema_nullable(w, schema, &schema));
    struct negation n = {.w = w, .of = schema};
    if (json_is_boolean(schema)) {
        *out = json_is_true(schema) ? json_false() : json_true();
        return ERR_OK;
    }
    if (!json_is_object(schema) || schema_was_made(w, schema, SCHEMA_NEGATION, out)) {
        return ERR_OK;
    }
    n.any = json_array();
    bool is_ref = w->ref_is_alone && json_object_get(schema, "$ref") != NULL;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (!is_ref || strcmp(key, "$ref") == 0) {
            negate_keyword(&n, key, value);
        }
    }
    json_t *made = json_array_size(n.any) > 0 ? json_pack("{sO}", "anyOf", n.any) : json_false();
    json_decref(n.any);
    if (n.err != ERR_OK || (made != NULL && n.is_unknown)) {
        json_decref(made);
        return n.err;
    }
    return schema_keep(w, schema, SCHEMA_NEGATION, made, out);
}

/* --- not, if, dependencies --------------------------------------------------------------------------------------------- */

static enum err negate_or_refuse(struct writer *w, const struct part *p, const char *keyword, const json_t *schema,
                                 const json_t **out)
{
    TRY(schema_negate(w, schema, out));
    return *out != NULL ? ERR_OK
                        : schema_refuse(w, p->path, keyword,
                                        "expected keywords whose opposite can be said, as of types, "
                                        "values, lengths, bounds, required and properties");
}

static enum err add_if(struct writer *w, const struct part *p, json_t *all)
{
    const json_t *condition = schema_keyword(w, p, "if"), *then = schema_keyword(w, p, "then"),
                 *otherwise = schema_keyword(w, p, "else"), *opposite;
    if (condition == NULL || (then == NULL && otherwise == NULL)) {
        return ERR_OK;
    }
    TRY(negate_or_refuse(w, p, "if", condition, &opposite));
    return schema_and(all,
                      json_pack("{s[{s[OO]}{s[OO]}]}", "anyOf", "allOf", condition, then != NULL ? then : json_true(),
                                "allOf", opposite, otherwise != NULL ? otherwise : json_true()));
}

/* Adds: if a member of that name exists, the value applies, which is names or a schema. */
static enum err add_dependency(const char *name, const json_t *value, json_t *all)
{
    if (json_array_size(value) == 0 && json_is_array(value)) {
        return ERR_OK;
    }
    json_t *asked = json_is_array(value) ? json_pack("{s[s]s[{sO}]}", "required", name, "allOf", "required", value)
                                         : json_pack("{s[s]s[O]}", "required", name, "allOf", value);
    return schema_and(all, json_pack("{s[{s{sb}}o]}", "anyOf", "properties", name, 0, asked));
}

static enum err add_dependencies(struct writer *w, const struct part *p, json_t *all)
{
    static const char *const words[] = {"dependencies", "dependentRequired", "dependentSchemas"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        const json_t *rows = schema_keyword(w, p, words[i]);
        const char *name;
        json_t *value;
        if (rows != NULL && !json_is_object(rows)) {
            return schema_refuse(w, p->path, words[i], "expected an object");
        }
        json_object_foreach((json_t *)rows, name, value) { TRY(add_dependency(name, value, all)); }
    }
    return ERR_OK;
}

static enum err add_not(struct writer *w, const struct part *p, json_t *all)
{
    const json_t *schema = schema_keyword(w, p, "not"), *opposite;
    if (schema == NULL || schema_is_plain_not(p)) {
        return ERR_OK;
    }
    TRY(negate_or_refuse(w, p, "not", schema, &opposite));
    return schema_and(all, json_incref((json_t *)opposite));
}

enum err schema_translate(struct writer *w, const struct part *p, enum schema_form what, schema_add_fn add,
                          const json_t **out)
{
    if (schema_was_made(w, p->schema, what, out)) {
        return ERR_OK;
    }
    json_t *list = json_array();
    enum err err = list != NULL ? add(w, p, list) : ERR_NOMEM;
    if (err == ERR_OK && json_array_size(list) > 0) {
        const char *word = what == SCHEMA_ONE_OF ? "anyOf" : "allOf";
        err = schema_keep(w, p->schema, what, json_pack("{sO}", word, list), out);
    }
    json_decref(list);
    return err;
}

static enum err add_conditions(struct writer *w, const struct part *p, json_t *all)
{
    TRY(add_not(w, p, all));
    TRY(add_if(w, p, all));
    return add_dependencies(w, p, all);
}

enum err schema_conditions(struct writer *w, const struct part *p, const json_t **out)
{
    static const char *const all_words[] = {"not", "if", "dependencies", "dependentRequired", "dependentSchemas"};
    uint64_t any = 0;
    *out = NULL;
    for (size_t i = 0; i < ARRAY_LEN(all_words); i++) {
        any |= schema_word_bit(all_words[i]);
    }
    return w->is_loose || (p->words & any) == 0 ? ERR_OK
                                                : schema_translate(w, p, SCHEMA_CONDITIONS, add_conditions, out);
}

/* Adds: the value is none of the objects and arrays that a plain `not` names. */
static enum err add_other_values(struct writer *w, const struct part *p, json_t *all)
{
    const json_t *of = schema_keyword(w, p, "not"), *values = json_object_get(of, "enum"), *opposite;
    size_t n = values != NULL ? json_array_size(values) : 1;
    TRY(schema_spend(w, n / 8));
    for (size_t i = 0; i < n; i++) {
        const json_t *value = values != NULL ? json_array_get(values, i) : json_object_get(of, "const");
        if (json_is_object(value) || json_is_array(value)) {
            const json_t *schema;
            TRY(schema_of_value(w, value, &schema));
            TRY(negate_or_refuse(w, p, "not", schema, &opposite));
            TRY(schema_and(all, json_incref((json_t *)opposite)));
        }
    }
    return ERR_OK;
}

enum err schema_other_values(struct writer *w, const struct part *p, const json_t **out)
{
    *out = NULL;
    return w->is_loose || !schema_is_plain_not(p) ? ERR_OK
                                                  : schema_translate(w, p, SCHEMA_OTHERS, add_other_values, out);
}
