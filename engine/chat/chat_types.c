/* Walks schemas with an explicit stack, because clients write them. */
#include "engine/chat/chat_types.h"

#include "engine/base/compiler.h"
#include "engine/base/json_read.h"
#include "engine/schema/schema_disjoint.h"

enum { MAX_NEST = 32 /* of nested schemas */, MAX_WORK = 1000 /* schemas and values examined */ };

const json_t *chat_types_function(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (json_read_is(json_object_get(f, "name"), name)) {
            return f;
        }
    }
    return NULL;
}

const json_t *chat_types_parameters(const json_t *tools, const char *name)
{
    return json_object_get(chat_types_function(tools, name), "parameters");
}

unsigned chat_types_of_value(const json_t *value)
{
    static const unsigned types[] = {
        [JSON_OBJECT] = CHAT_TYPE_OBJECT,  [JSON_ARRAY] = CHAT_TYPE_ARRAY, [JSON_STRING] = CHAT_TYPE_STRING,
        [JSON_INTEGER] = CHAT_TYPE_NUMBER, [JSON_REAL] = CHAT_TYPE_NUMBER, [JSON_TRUE] = CHAT_TYPE_BOOLEAN,
        [JSON_FALSE] = CHAT_TYPE_BOOLEAN,  [JSON_NULL] = CHAT_TYPE_NULL};
    return value != NULL ? types[json_typeof(value)] : 0;
}

static unsigned named(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"string", CHAT_TYPE_STRING},   {"number", CHAT_TYPE_NUMBER}, {"integer", CHAT_TYPE_NUMBER},
                 {"boolean", CHAT_TYPE_BOOLEAN}, {"null", CHAT_TYPE_NULL},     {"object", CHAT_TYPE_OBJECT},
                 {"array", CHAT_TYPE_ARRAY}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (json_read_is(name, names[i].name)) {
            return names[i].type;
        }
    }
    return CHAT_TYPES_ALL;
}

static unsigned types_of_names(const json_t *type)
{
    unsigned types = json_is_array(type) ? 0 : named(type);
    for (size_t i = 0; i < json_array_size(type); i++) {
        types |= named(json_array_get(type, i));
    }
    return types;
}

/* Returns the types that a schema allows without its parts. */
static unsigned own_types(const json_t *schema, size_t *work)
{
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const json_t *value = json_object_get(schema, "const");
    if (json_is_false(schema)) {
        return 0;
    }
    unsigned types = type != NULL ? types_of_names(type) : CHAT_TYPES_ALL, of_values = 0;
    types |= json_is_true(json_object_get(schema, "nullable")) ? CHAT_TYPE_NULL : 0;
    for (size_t i = 0; i < json_array_size(values) && ++*work <= MAX_WORK; i++) {
        of_values |= chat_types_of_value(json_array_get(values, i));
    }
    types &= of_values != 0 && *work <= MAX_WORK ? of_values : CHAT_TYPES_ALL;
    types &= value != NULL ? chat_types_of_value(value) : CHAT_TYPES_ALL;
    bool is_text = json_object_get(schema, "pattern") != NULL || json_object_get(schema, "minLength") != NULL ||
                   json_object_get(schema, "maxLength") != NULL;
    bool says_more = json_object_get(schema, "$ref") != NULL || json_object_get(schema, "allOf") != NULL ||
                     json_object_get(schema, "anyOf") != NULL || json_object_get(schema, "oneOf") != NULL;
    return types == CHAT_TYPES_ALL && is_text && !says_more ? CHAT_TYPE_STRING : types;
}

/* Returns the i-th schema under keyword k. */
static const char *const keywords[] = {"$ref", "allOf", "anyOf", "oneOf"};

static const json_t *part_of(const json_t *root, const json_t *schema, size_t k, size_t i)
{
    const json_t *v = json_object_get(schema, keywords[k]);
    if (k > 0) {
        return json_array_get(v, i);
    }
    return i == 0 && json_is_string(v) ? schema_resolve(root, json_string_value(v)) : NULL;
}

/* A schema being examined. */
struct open {
    const json_t *schema;
    unsigned types, either; /* so far; of the alternatives of keyword k */
    size_t k, i;            /* the next part */
};

/* Adds the result of the last part. */
static void add_part(struct open *o, unsigned types)
{
    if (o->k < 2) {
        o->types &= types;
    } else {
        o->either |= types;
    }
    o->i++;
}

static bool is_open(const struct open *stack, size_t n, const json_t *schema)
{
    bool is = false;
    for (size_t i = 0; i < n && !is; i++) {
        is = stack[i].schema == schema;
    }
    return is;
}

/* Returns the next part of the innermost schema of stack[n]; NULL: none, and its types are complete. A part that is
 * already open is a cycle, which allows no value. */
static const json_t *next_part(const json_t *root, struct open *stack, size_t n)
{
    struct open *o = &stack[n - 1];
    for (; o->k < ARRAY_LEN(keywords); o->k++, o->i = 0, o->either = 0) {
        const json_t *part = part_of(root, o->schema, o->k, o->i);
        while (part != NULL && is_open(stack, n, part)) {
            add_part(o, 0);
            part = part_of(root, o->schema, o->k, o->i);
        }
        if (part != NULL) {
            return part;
        }
        o->types &= o->k >= 2 && o->i > 0 ? o->either : CHAT_TYPES_ALL;
    }
    return NULL;
}

unsigned chat_types_of(const json_t *root, const json_t *schema)
{
    struct open stack[MAX_NEST];
    size_t n = 0, work = 0;
    const json_t *next = schema;
    if (schema == NULL) {
        return CHAT_TYPES_ALL;
    }
    for (;;) {
        if (next != NULL) {
            if (n == MAX_NEST || ++work > MAX_WORK) {
                return CHAT_TYPES_ALL;
            }
            stack[n++] = (struct open){.schema = next, .types = own_types(next, &work)};
        } else {
            unsigned types = stack[--n].types;
            if (n == 0) {
                return work > MAX_WORK || types == 0 ? CHAT_TYPES_ALL : types;
            }
            add_part(&stack[n - 1], types);
        }
        next = next_part(root, stack, n);
    }
}

/* Returns the first result of `find` on the schema and its parts. */
static const json_t *find_within(const json_t *root, const json_t *schema,
                                 const json_t *(*find)(const json_t *schema, const char *key, size_t n),
                                 const char *key, size_t n)
{
    struct open stack[MAX_NEST];
    size_t depth = 0, work = 0;
    const json_t *next = schema;
    do {
        if (next != NULL) {
            const json_t *found = find(next, key, n);
            if (found != NULL || depth == MAX_NEST || ++work > MAX_WORK) {
                return found;
            }
            stack[depth++] = (struct open){.schema = next};
        } else if (--depth > 0) {
            stack[depth - 1].i++;
        }
        next = depth > 0 ? next_part(root, stack, depth) : NULL;
    } while (depth > 0);
    return NULL;
}

static const json_t *member_of(const json_t *schema, const char *key, size_t n)
{
    const json_t *found = json_object_getn(json_object_get(schema, "properties"), key, n);
    const json_t *others = json_object_get(schema, "additionalProperties");
    return found == NULL && json_is_object(others) ? others : found;
}

static const json_t *items_of(const json_t *schema, const char *key, size_t n)
{
    (void)key;
    (void)n;
    const json_t *items = json_object_get(schema, "items");
    return json_is_object(items) ? items : NULL;
}

const json_t *chat_types_member(const json_t *root, const json_t *schema, const char *key, size_t n)
{
    return schema != NULL ? find_within(root, schema, member_of, key, n) : NULL;
}

const json_t *chat_types_items(const json_t *root, const json_t *schema)
{
    return schema != NULL ? find_within(root, schema, items_of, NULL, 0) : NULL;
}
