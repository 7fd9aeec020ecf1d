#include "engine/schema/schema_disjoint.h"

#include "engine/base/ck.h"
#include "engine/base/hex.h"
#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/schema/schema_value.h"

#include <string.h>

enum { MAX_REF = 1024, MAX_HOPS = 16 };

/* State while two schemas are compared. */
struct look {
    const json_t *root;
    size_t n;        /* number of compared names and values */
    size_t n_by_key; /* the same, for enumerations too large to compare one by one */
    bool has_failed;
};

const char *schema_id(const json_t *schema)
{
    const char *id = json_string_value(json_object_get(schema, "$id"));
    id = id != NULL ? id : json_string_value(json_object_get(schema, "id")); /* draft 4 */
    return id != NULL && id[0] != '#' ? id : NULL;
}

/* Reads one name of a pointer in a URI's fragment, up to the next slash; returns its end. [RFC 6901, section 6] */
static const char *read_name(const char *ref, bool is_encoded, char name[MAX_REF], size_t *len)
{
    size_t n = 0;
    for (; *ref != '\0' && *ref != '/'; ref++) {
        int high = is_encoded && *ref == '%' ? hex_value(ref[1]) : -1, low = high >= 0 ? hex_value(ref[2]) : -1;
        name[n++] = low >= 0 ? (char)(16 * high + low) : *ref;
        ref += low >= 0 ? 2 : 0;
    }
    *len = 0;
    for (size_t i = 0; i < n; i++) { /* ~ can be percent-encoded, too */
        bool is_escape = name[i] == '~' && i + 1 < n && (name[i + 1] == '0' || name[i + 1] == '1');
        name[(*len)++] = is_escape ? (name[i + 1] == '0' ? '~' : '/') : name[i];
        i += is_escape;
    }
    name[*len] = '\0';
    return ref;
}

/* Returns the member or element, or NULL. */
static const json_t *member_of(const json_t *at, const char *name, size_t n)
{
    size_t index = 0;
    bool is_index = json_is_array(at) && n > 0 && n < 6 && strspn(name, "0123456789") == n;
    for (size_t i = 0; i < n && is_index; i++) {
        index = index * 10 + (size_t)(name[i] - '0');
    }
    return is_index ? json_array_get(at, index) : strlen(name) == n ? json_object_get(at, name) : NULL;
}

const json_t *schema_resolve(const json_t *root, const char *ref)
{
    const json_t *at = root, *next;
    char name[MAX_REF];
    size_t n;
    if (ref[0] != '#' || strlen(ref) >= sizeof name || (ref[1] != '\0' && ref[1] != '/')) {
        return NULL;
    }
    for (ref++; *ref == '/' && at != NULL;) {
        if (at != root && schema_id(at) != NULL) { /* pointers within are relative to that schema */
            return NULL;
        }
        const char *end = read_name(ref + 1, true, name, &n);
        next = member_of(at, name, n);
        if (next == NULL) { /* a % that is not an encoding */
            read_name(ref + 1, false, name, &n);
            next = member_of(at, name, n);
        }
        at = next;
        ref = end;
    }
    return at;
}

/* --- reasons ----------------------------------------------------------------------------------------------------------- */

/* Follows references. */
static const json_t *follow(const json_t *root, const json_t *schema)
{
    for (int i = 0; i < MAX_HOPS && json_is_string(json_object_get(schema, "$ref")); i++) {
        schema = schema_resolve(root, json_string_value(json_object_get(schema, "$ref")));
    }
    return schema;
}

/* Returns the i-th value that the schema names, or NULL. *names: the schema names values. */
static const json_t *value_at(const json_t *schema, size_t i, bool *names)
{
    const json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    *names = json_is_array(values) || one != NULL;
    one = i == 0 ? one : NULL;
    return json_is_array(values) ? json_array_get(values, i) : one;
}

static bool names_values(const json_t *schema)
{
    bool names;
    value_at(schema, 0, &names);
    return names;
}

/* Returns the types that the schema's own keywords allow. */
static unsigned types_of(const json_t *schema)
{
    bool is_nullable = json_is_true(json_object_get(schema, "nullable"));
    return schema_types_of(json_object_get(schema, "type")) | (is_nullable ? SCHEMA_NULL : 0u);
}

/* Checks whether b, which names values, names this one. */
static bool is_of(const json_t *b, const json_t *value) { return (types_of(b) & schema_type_of(value)) != 0; }

/* Checks, by keys, that the enumerations of a and b share no value. */
static bool enums_differ(struct look *look, const json_t *a, const json_t *b)
{
    enum { WORK = 14, MOST_WORK = 2000000 }; /* keying a value costs as much as this number of comparisons */
    const json_t *x = json_object_get(a, "enum"), *y = json_object_get(b, "enum");
    size_t n = json_array_size(x) + json_array_size(y);
    bool differ = true;
    if (n > (MOST_WORK - look->n_by_key) / WORK) {
        return false;
    }
    json_t *keys = json_object();
    look->has_failed |= keys == NULL;
    for (size_t i = 0; i < n && differ && !look->has_failed; i++) {
        bool is_y = i < json_array_size(y);
        const json_t *value = is_y ? json_array_get(y, i) : json_array_get(x, i - json_array_size(y));
        char *key = schema_key_of(value);
        look->has_failed |= key == NULL || (is_y && json_object_set_nocheck(keys, key, json_true()) != 0);
        differ = is_y || key == NULL || json_object_get(keys, key) == NULL || !is_of(b, value);
        mem_free(key);
        look->n_by_key += WORK;
    }
    json_decref(keys);
    return differ && !look->has_failed;
}

/* Checks that none of a's values is one of b's: one that b names, or of a type of b. */
static bool has_no_value_of(struct look *look, const json_t *a, const json_t *b)
{
    const json_t *x, *y;
    bool names;
    size_t n_pairs = 0;
    if (!ck_mul_size(json_array_size(json_object_get(a, "enum")), json_array_size(json_object_get(b, "enum")),
                     &n_pairs) ||
        n_pairs > SCHEMA_DISJOINT_WORK) {
        return enums_differ(look, a, b);
    }
    for (size_t i = 0; (x = value_at(a, i, &names)) != NULL; i++, look->n++) {
        bool is_of_b = !names_values(b);
        for (size_t k = 0; (y = value_at(b, k, &names)) != NULL; k++) {
            is_of_b = is_of_b || schema_is_same(x, y, &look->has_failed);
            look->n++;
        }
        if (look->n > SCHEMA_DISJOINT_WORK || look->has_failed) {
            return false;
        }
        if (is_of_b && is_of(b, x)) {
            return false;
        }
    }
    return true;
}

static bool differ_simply(struct look *look, const json_t *a, const json_t *b)
{
    bool is_settled =
        names_values(a) && json_object_get(a, "type") == NULL; /* also compare b's values, but not with a type of a */
    bool by_values = (names_values(a) && has_no_value_of(look, a, b)) ||
                     (names_values(b) && !is_settled && has_no_value_of(look, b, a));
    return by_values || json_is_false(a) || json_is_false(b) || (types_of(a) & types_of(b)) == 0;
}

static bool asks_for(struct look *look, const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required) && look->n <= SCHEMA_DISJOINT_WORK; i++, look->n++) {
        if (json_read_is(json_array_get(required, i), name)) {
            return true;
        }
    }
    return false;
}

/* Checks that no object of the schema has a member of that name. */
static bool forbids(const json_t *schema, const char *name)
{
    const json_t *own = json_object_get(json_object_get(schema, "properties"), name);
    return own != NULL ? json_is_false(own)
                       : json_is_false(json_object_get(schema, "additionalProperties")) &&
                             json_object_get(schema, "patternProperties") == NULL;
}

/* Checks whether a member that a requires distinguishes their objects. */
static bool tells_by_member(struct look *look, const json_t *a, const json_t *b)
{
    const json_t *required = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(required) && look->n <= SCHEMA_DISJOINT_WORK; i++, look->n += 4) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name == NULL) {
            continue;
        }
        const json_t *x = follow(look->root, json_object_get(json_object_get(a, "properties"), name));
        const json_t *y = follow(look->root, json_object_get(json_object_get(b, "properties"), name));
        if (forbids(b, name) || (x != NULL && y != NULL && asks_for(look, b, name) && differ_simply(look, x, y))) {
            return true;
        }
    }
    return false;
}

bool schema_are_disjoint(const json_t *root, const json_t *a, const json_t *b, size_t *work)
{
    struct look look = {.root = root};
    a = follow(root, a);
    b = follow(root, b);
    if (a == NULL || b == NULL) {
        return false;
    }
    bool are_objects = (types_of(a) & types_of(b) & ~(unsigned)SCHEMA_OBJECT) == 0;
    bool are =
        differ_simply(&look, a, b) || (are_objects && (tells_by_member(&look, a, b) || tells_by_member(&look, b, a)));
    *work += look.n + look.n_by_key;
    return are;
}
