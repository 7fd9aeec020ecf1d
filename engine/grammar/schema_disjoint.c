#include "engine/grammar/schema_disjoint.h"

#include "engine/base/compiler.h"
#include "engine/base/json_read.h"

#include <math.h>
#include <string.h>

enum { MAX_REF = 1024, MAX_HOPS = 16 };

/* Two schemas that are looked at. */
struct look {
    const json_t *root;
    size_t n; /* names and values compared */
};

bool schema_has_id(const json_t *schema)
{
    const char *id = json_string_value(json_object_get(schema, "$id"));
    id = id != NULL ? id : json_string_value(json_object_get(schema, "id")); /* draft 4 */
    return id != NULL && id[0] != '#';
}

const json_t *schema_resolve(const json_t *root, const char *ref)
{
    const json_t *at = root;
    char name[MAX_REF];
    if (ref[0] != '#' || strlen(ref) >= sizeof name || (ref[1] != '\0' && ref[1] != '/')) {
        return NULL;
    }
    for (ref++; *ref == '/' && at != NULL;) {
        size_t n = 0;
        if (at != root && schema_has_id(at)) { /* what is in there has pointers of its own */
            return NULL;
        }
        for (ref++; *ref != '\0' && *ref != '/'; ref++) {
            bool is_escape = *ref == '~' && (ref[1] == '0' || ref[1] == '1');
            name[n++] = is_escape ? (ref[1] == '0' ? '~' : '/') : *ref;
            ref += is_escape;
        }
        name[n] = '\0';
        size_t index = 0;
        bool is_index = json_is_array(at) && n > 0 && n < 6 && strspn(name, "0123456789") == n;
        for (size_t i = 0; i < n && is_index; i++) {
            index = index * 10 + (size_t)(name[i] - '0');
        }
        at = is_index ? json_array_get(at, index) : json_object_get(at, name);
    }
    return at;
}

bool schema_has_type(const json_t *type, const char *name)
{
    bool found = json_read_is(type, name);
    for (size_t i = 0; i < json_array_size(type); i++) {
        found = found || json_read_is(json_array_get(type, i), name);
    }
    return found;
}

bool schema_fits_type(const json_t *type, const json_t *value)
{
    double number = json_number_value(value);
    bool is_whole = json_is_number(value) && number == floor(number);
    return type == NULL || (json_is_string(value) && schema_has_type(type, "string")) ||
           (json_is_number(value) &&
            (schema_has_type(type, "number") || (is_whole && schema_has_type(type, "integer")))) ||
           (json_is_boolean(value) && schema_has_type(type, "boolean")) ||
           (json_is_null(value) && schema_has_type(type, "null")) ||
           (json_is_object(value) && schema_has_type(type, "object")) ||
           (json_is_array(value) && schema_has_type(type, "array"));
}

/* --- reasons ----------------------------------------------------------------------------------------------------------- */

static const char *const type_names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

/* What references lead to. */
static const json_t *follow(const json_t *root, const json_t *schema)
{
    for (int i = 0; i < MAX_HOPS && json_is_string(json_object_get(schema, "$ref")); i++) {
        schema = schema_resolve(root, json_string_value(json_object_get(schema, "$ref")));
    }
    return schema;
}

static bool is_same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b) != 0;
}

/* The i-th of the values that the schema names; NULL: there is no such. *names: it names them. */
static const json_t *value_at(const json_t *schema, size_t i, bool *names)
{
    const json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    *names = json_is_array(values) || one != NULL;
    return json_is_array(values) ? json_array_get(values, i) : i == 0 ? one : NULL;
}

static bool names_values(const json_t *schema)
{
    bool names;
    value_at(schema, 0, &names);
    return names;
}

/* Is none of a's values one of b: of those that it names, or of its types? */
static bool has_no_value_of(struct look *look, const json_t *a, const json_t *b)
{
    const json_t *x, *y;
    bool names;
    for (size_t i = 0; (x = value_at(a, i, &names)) != NULL; i++, look->n++) {
        bool is_of_b = !names_values(b);
        for (size_t k = 0; (y = value_at(b, k, &names)) != NULL; k++) {
            is_of_b = is_of_b || is_same(x, y);
            look->n++;
        }
        bool is_null = json_is_null(x) && json_is_true(json_object_get(b, "nullable"));
        if (look->n > SCHEMA_DISJOINT_WORK) {
            return false;
        }
        if (is_of_b && (is_null || schema_fits_type(json_object_get(b, "type"), x))) {
            return false;
        }
    }
    return true;
}

/* Has it the type, by what it says? */
static bool can_be(const json_t *schema, const char *type)
{
    const json_t *said = json_object_get(schema, "type");
    bool is_null = strcmp(type, "null") == 0 && json_is_true(json_object_get(schema, "nullable"));
    bool is_number = strcmp(type, "integer") == 0 && schema_has_type(said, "number");
    return said == NULL || is_null || is_number || schema_has_type(said, type);
}

static bool share_type(const json_t *a, const json_t *b, bool but_object)
{
    for (size_t i = but_object ? 1 : 0; i < ARRAY_LEN(type_names); i++) {
        bool both = can_be(a, type_names[i]) && can_be(b, type_names[i]);
        if (both) {
            return true;
        }
    }
    return false;
}

static bool differ_simply(struct look *look, const json_t *a, const json_t *b)
{
    bool by_values = (names_values(a) && has_no_value_of(look, a, b)) || (names_values(b) && has_no_value_of(look, b, a));
    return by_values || json_is_false(a) || json_is_false(b) || !share_type(a, b, false);
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

/* Can an object of the schema have no member of the name? */
static bool forbids(const json_t *schema, const char *name)
{
    const json_t *own = json_object_get(json_object_get(schema, "properties"), name);
    return own != NULL ? json_is_false(own)
                       : json_is_false(json_object_get(schema, "additionalProperties")) &&
                             json_object_get(schema, "patternProperties") == NULL;
}

/* A member that a asks for says which of them an object is. */
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
    bool are_objects = !share_type(a, b, true);
    bool are = differ_simply(&look, a, b) ||
               (are_objects && (tells_by_member(&look, a, b) || tells_by_member(&look, b, a)));
    *work += look.n;
    return are;
}
