/* Types and equality of a schema's values. 1, 1.0 and 1e0 are equal, also within objects and arrays; 9007199254740993 and
 * 9007199254740992 are not, in any spelling. Threads: pure functions. */
#ifndef INFCGI_SCHEMA_SCHEMA_VALUE_H
#define INFCGI_SCHEMA_SCHEMA_VALUE_H

#include <jansson.h>
#include <stdbool.h>

/* Bits of sets of types. */
enum schema_type {
    SCHEMA_OBJECT = 1,
    SCHEMA_ARRAY = 2,
    SCHEMA_STRING = 4,
    SCHEMA_INTEGER = 8,
    SCHEMA_FRACTION = 16, /* numbers that are not integers */
    SCHEMA_BOOLEAN = 32,
    SCHEMA_NULL = 64,
    SCHEMA_ALL_TYPES = 127,
};

/* The names of a schema's `type`; "number" has two bits. */
enum { SCHEMA_TYPE_NAMES = 7 };
extern const struct schema_type_name {
    const char *name;
    unsigned types;
} schema_type_names[SCHEMA_TYPE_NAMES];

/* Returns the value's type; 1.0 and 1e0 are integers. */
enum schema_type schema_type_of(const json_t *value);

/* Returns the types of this name, a JSON string; 0: no type has this name. */
unsigned schema_types_named(const json_t *name);

/* Returns the types that `type` allows, the value of a schema's keyword, one name or an array; NULL: all types. Unknown
 * names add none. */
unsigned schema_types_of(const json_t *type);

/* Returns a NUL-terminated text that is the same for equal values and different for others. The caller frees it with
 * mem_free. NULL: no memory. */
char *schema_key_of(const json_t *value);

/* Returns whether a and b are equal. Sets *has_failed if memory was out. */
bool schema_is_same(const json_t *a, const json_t *b, bool *has_failed);

#endif
