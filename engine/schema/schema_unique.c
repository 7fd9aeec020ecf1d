/* Ensures that the elements of an array differ: either they have few values, each used once, or no two of their schemas
 * share a value. A grammar cannot compare with earlier elements, so uniqueItems of other elements cannot be
 * enforced. */
#include "engine/schema/schema_internal.h"

#include "engine/base/json_read.h"
#include "engine/schema/schema_disjoint.h"
#include "engine/schema/schema_value.h"

#include <math.h>

/* Values found so far, and schemas to read. */
struct few {
    struct writer *w;
    json_t *values, *keys;
    size_t most;
    const json_t *open[64]; /* schemas to read: each value satisfies one of them or was found */
    size_t n_open, n_looks;
    bool is_many; /* or unknown */
};

static void add_value(struct few *f, const json_t *value)
{
    char *key = schema_key_of(value);
    bool is_known = key != NULL && json_object_get(f->keys, key) != NULL;
    f->w->has_failed |= key == NULL || json_object_set_nocheck(f->keys, key, json_true()) != 0 ||
                        (!is_known && json_array_append(f->values, (json_t *)value) != 0);
    f->is_many |= json_array_size(f->values) > f->most || !regex_spend(f->w->s, 16);
    mem_free(key);
}

static void add_schema(struct few *f, const json_t *schema)
{
    f->is_many |= f->n_open == ARRAY_LEN(f->open);
    if (!f->is_many) {
        f->open[f->n_open++] = schema;
    }
}

/* Returns a bound of integers, inclusive; NAN: none. */
static double bound(const json_t *schema, const char *keyword, const char *open)
{
    const json_t *v = json_object_get(schema, keyword);
    v = json_is_number(v) ? v : json_object_get(schema, open);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void add_integers(struct few *f, const json_t *schema)
{
    double from = ceil(bound(schema, "minimum", "exclusiveMinimum"));
    double to = floor(bound(schema, "maximum", "exclusiveMaximum"));
    f->is_many |= !(fabs(from) < 1e15 && fabs(to) < 1e15 && to - from < (double)f->most);
    for (double i = from; !f->is_many && !f->w->has_failed && i <= to; i++) {
        json_t *value = json_integer((json_int_t)i);
        f->w->has_failed |= value == NULL;
        if (value != NULL) {
            add_value(f, value);
        }
        json_decref(value);
    }
}

/* Checks whether all of its types have few values. */
static bool has_few_types(const json_t *schema)
{
    enum { MANY = SCHEMA_OBJECT | SCHEMA_ARRAY | SCHEMA_STRING | SCHEMA_FRACTION };
    return (schema_types_of(json_object_get(schema, "type")) & MANY) == 0;
}

static void add_types(struct few *f, const json_t *schema)
{
    unsigned types = schema_types_of(json_object_get(schema, "type"));
    if ((types & SCHEMA_BOOLEAN) != 0) {
        add_value(f, json_true());
        add_value(f, json_false());
    }
    if ((types & SCHEMA_NULL) != 0 || json_is_true(json_object_get(schema, "nullable"))) {
        add_value(f, json_null());
    }
    if ((types & SCHEMA_INTEGER) != 0) {
        add_integers(f, schema);
    }
}

static bool may_be_few(const json_t *schema)
{
    static const char *const words[] = {"enum", "const", "anyOf", "oneOf", "$ref"};
    bool may = has_few_types(schema);
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        may = may || json_object_get(schema, words[i]) != NULL;
    }
    return may;
}

/* Reads one schema; of several restrictions one is enough. */
static void look_at(struct few *f, const json_t *schema)
{
    const json_t *ref = json_object_get(schema, "$ref"), *values = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const"), *any = json_object_get(schema, "anyOf");
    const json_t *all = json_object_get(schema, "allOf");
    any = any != NULL ? any : json_object_get(schema, "oneOf");
    bool is_alone = ref != NULL && f->w->ref_is_alone;
    if (json_is_false(schema)) {
        return;
    }
    if (one != NULL && !is_alone) {
        add_value(f, one);
    } else if (json_is_array(values) && !is_alone) {
        for (size_t i = 0; i < json_array_size(values) && !f->is_many && !f->w->has_failed; i++) {
            add_value(f, json_array_get(values, i));
        }
    } else if (has_few_types(schema) && !is_alone) {
        add_types(f, schema);
    } else if (json_array_size(any) > 0 && !is_alone) {
        for (size_t i = 0; i < json_array_size(any); i++) {
            add_schema(f, json_array_get(any, i));
        }
    } else if (json_is_string(ref)) {
        const json_t *found = schema_resolve(f->w->root, json_string_value(ref));
        f->is_many |= found == NULL;
        add_schema(f, found);
    } else {
        size_t i = 0;
        while (i < json_array_size(all) && !may_be_few(json_array_get(all, i))) {
            i++;
        }
        f->is_many |= i == json_array_size(all);
        add_schema(f, json_array_get(all, i));
    }
}

/* Returns the values of one schema; NULL: unknown. */
static json_t *values_of(struct writer *w, const json_t *schema, size_t most)
{
    enum { MAX_LOOKS = 2048 };
    struct few f = {.w = w, .values = json_array(), .keys = json_object(), .most = most};
    w->has_failed |= f.values == NULL || f.keys == NULL;
    add_schema(&f, schema);
    while (f.n_open > 0 && !f.is_many && !w->has_failed) {
        look_at(&f, f.open[--f.n_open]);
        f.is_many |= ++f.n_looks > MAX_LOOKS || !regex_spend(w->s, 8); /* possibly a cycle */
    }
    json_decref(f.keys);
    if (f.is_many || w->has_failed) {
        json_decref(f.values);
        return NULL;
    }
    return f.values;
}

enum err schema_few_values(struct writer *w, const struct parts *list, size_t most, json_t **out)
{
    *out = NULL;
    for (size_t i = 0; i < list->n && *out == NULL && !w->has_failed; i++) {
        *out = values_of(w, list->at[i].schema, most);
    }
    enum err err = w->has_failed ? ERR_NOMEM : regex_ok(w->s);
    if (err != ERR_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return err;
}

bool schema_lists_differ(struct writer *w, const struct parts *a, const struct parts *b)
{
    bool differ = a->is_none || b->is_none;
    for (size_t i = 0; i < a->n && !differ; i++) {
        for (size_t k = 0; k < b->n && !differ; k++) {
            size_t work = 1;
            differ = schema_are_disjoint(w->root, a->at[i].schema, b->at[k].schema, &work);
            if (!regex_spend(w->s, work)) {
                return false;
            }
        }
    }
    return differ;
}
