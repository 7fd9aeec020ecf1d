#include "engine/schema/schema_value.h"

#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/schema/schema_decimal.h"

#include <stdlib.h>
#include <string.h>

/* A member of an object that is being written. */
struct member {
    const char *name;
    size_t n;
    const json_t *value;
};

/* An object or an array that is being written. */
struct level {
    const json_t *of;
    size_t at, first; /* values written so far; of an object: the index of its first member */
};

struct writing {
    struct buf out;
    struct level *levels;
    struct member *members; /* of all levels, sorted by name */
    size_t n_levels, cap_levels, n_members, cap_members;
    bool has_failed;
};

static int by_name(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = memcmp(x->name, y->name, MIN_OF(x->n, y->n));
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

static void push(struct writing *w, const json_t *v)
{
    const char *name;
    json_t *value;
    size_t first = w->n_members, n;
    w->has_failed = mem_grow(&w->levels, w->n_levels, &w->cap_levels, sizeof *w->levels, MEM_REQUEST) != ERR_OK;
    if (w->has_failed) {
        return;
    }
    json_object_keylen_foreach((json_t *)(uintptr_t)v, name, n, value)
    {
        w->has_failed = mem_grow(&w->members, w->n_members, &w->cap_members, sizeof *w->members, MEM_REQUEST) != ERR_OK;
        if (w->has_failed) {
            return;
        }
        w->members[w->n_members++] = (struct member){name, n, value};
    }
    if (w->n_members > first) {
        qsort(w->members + first, w->n_members - first, sizeof *w->members, by_name);
    }
    w->levels[w->n_levels++] = (struct level){v, 0, first};
    buf_putc(&w->out, json_is_array(v) ? '[' : '{');
}

/* Writes a scalar, or begins an object or an array. */
static void begin(struct writing *w, const json_t *v)
{
    struct schema_decimal number;
    if (json_is_object(v) || json_is_array(v)) {
        push(w, v);
    } else if (schema_decimal_of(v, &number)) {
        size_t n = schema_decimal_key(&number, NULL, 0);
        char *text = buf_extend(&w->out, n);
        schema_decimal_key(&number, text, text != NULL ? n + 1 : 0);
    } else {
        json_write_value(&w->out, v, false);
    }
}

/* Returns the next value of the innermost object or array, after its name; NULL: that was the last. */
static const json_t *next_value(struct writing *w)
{
    struct level *top = &w->levels[w->n_levels - 1];
    if (top->at > 0) {
        buf_putc(&w->out, ',');
    }
    if (json_is_array(top->of)) {
        return json_array_get(top->of, top->at++);
    }
    if (top->first + top->at == w->n_members) {
        return NULL;
    }
    const struct member *m = &w->members[top->first + top->at++];
    json_write_string(&w->out, m->name, m->n);
    buf_putc(&w->out, ':');
    return m->value;
}

char *schema_key_of(const json_t *value)
{
    struct writing w = {.levels = NULL};
    buf_init(&w.out, 0, MEM_REQUEST);
    begin(&w, value);
    while (w.n_levels > 0 && !w.has_failed && buf_ok(&w.out) == ERR_OK) {
        const json_t *next = next_value(&w);
        if (next != NULL) {
            begin(&w, next);
        } else {
            const struct level *top = &w.levels[--w.n_levels];
            buf_putc(&w.out, json_is_array(top->of) ? ']' : '}');
            w.n_members = top->first;
        }
    }
    size_t n;
    char *key = w.has_failed ? NULL : buf_take(&w.out, &n);
    buf_fini(&w.out);
    mem_free(w.levels);
    mem_free(w.members);
    return key;
}

const struct schema_type_name schema_type_names[SCHEMA_TYPE_NAMES] = {
    {"object", SCHEMA_OBJECT},
    {"array", SCHEMA_ARRAY},
    {"string", SCHEMA_STRING},
    {"integer", SCHEMA_INTEGER},
    {"boolean", SCHEMA_BOOLEAN},
    {"null", SCHEMA_NULL},
    {"number", SCHEMA_INTEGER | SCHEMA_FRACTION},
};

enum schema_type schema_type_of(const json_t *value)
{
    static const enum schema_type types[] = {
        [JSON_OBJECT] = SCHEMA_OBJECT, [JSON_ARRAY] = SCHEMA_ARRAY,      [JSON_STRING] = SCHEMA_STRING,
        [JSON_TRUE] = SCHEMA_BOOLEAN,  [JSON_FALSE] = SCHEMA_BOOLEAN,    [JSON_NULL] = SCHEMA_NULL,
        [JSON_REAL] = SCHEMA_FRACTION, [JSON_INTEGER] = SCHEMA_FRACTION,
    };
    struct schema_decimal number;
    bool is_integer = schema_decimal_of(value, &number) && schema_decimal_is_whole(&number);
    return is_integer ? SCHEMA_INTEGER : types[json_typeof(value)];
}

unsigned schema_types_named(const json_t *name)
{
    for (size_t i = 0; i < SCHEMA_TYPE_NAMES; i++) {
        if (json_read_is(name, schema_type_names[i].name)) {
            return schema_type_names[i].types;
        }
    }
    return 0;
}

unsigned schema_types_of(const json_t *type)
{
    unsigned types = type == NULL ? SCHEMA_ALL_TYPES : schema_types_named(type);
    for (size_t i = 0; i < json_array_size(type); i++) {
        types |= schema_types_named(json_array_get(type, i));
    }
    return types;
}

bool schema_is_same(const json_t *a, const json_t *b, bool *has_failed)
{
    struct schema_decimal number, other;
    if (schema_decimal_of(a, &number) && schema_decimal_of(b, &other)) {
        return schema_decimal_compare(&number, &other) == 0;
    }
    bool may_be = (json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b)) ||
                  (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b));
    if (!may_be) { /* json_equal compares numbers as doubles, so it is not used for objects and arrays */
        return !json_is_object(a) && !json_is_array(a) && json_equal(a, b) != 0;
    }
    char *x = schema_key_of(a), *y = schema_key_of(b);
    bool is = x != NULL && y != NULL && strcmp(x, y) == 0;
    *has_failed |= x == NULL || y == NULL;
    mem_free(x);
    mem_free(y);
    return is;
}
