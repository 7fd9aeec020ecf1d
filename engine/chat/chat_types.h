/* The types that a tool's schema allows for a value. Formats whose values have no quotes (chat_call_tags.c,
 * chat_call_words.c) use it to decide whether 5 is a number or the string "5". This is a heuristic for reading, not
 * validation: keywords it does not understand allow every type.
 *
 * It follows type, nullable, enum, const, $ref within the document, allOf, anyOf and oneOf. A schema without these but
 * with pattern, minLength or maxLength is one of strings. A circular $ref allows no value. Work is bounded: a schema
 * beyond the limit allows every type. Threads: pure functions. Source: JSON Schema 2020-12. */
#ifndef INFCGI_CHAT_CHAT_TYPES_H
#define INFCGI_CHAT_CHAT_TYPES_H

#include <jansson.h>
#include <stddef.h>

/* A set of types. Integers are numbers. */
enum {
    CHAT_TYPE_STRING = 1,
    CHAT_TYPE_NUMBER = 2,
    CHAT_TYPE_BOOLEAN = 4,
    CHAT_TYPE_NULL = 8,
    CHAT_TYPE_OBJECT = 16,
    CHAT_TYPE_ARRAY = 32,
    CHAT_TYPES_ALL = 63,
};

/* Returns the types that the schema allows. root: its document, for $ref. schema OPTIONAL: NULL allows all. */
unsigned chat_types_of(const json_t *root, const json_t *schema);

/* Returns the schema of the member key[0..n) of the schema's objects, or NULL. Other arguments as chat_types_of's. */
const json_t *chat_types_member(const json_t *root, const json_t *schema, const char *key, size_t n);

/* Returns the schema of the items of the schema's arrays, or NULL. */
const json_t *chat_types_items(const json_t *root, const json_t *schema);

/* Returns the type of a value. */
unsigned chat_types_of_value(const json_t *value);

/* Returns the function `name` in tools, an array as in requests; NULL: none. */
const json_t *chat_types_function(const json_t *tools, const char *name);

/* Returns the parameters of the function `name` in tools, an array as in requests; NULL: none. */
const json_t *chat_types_parameters(const json_t *tools, const char *name);

#endif
