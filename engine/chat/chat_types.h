/* Which types a tool's schema gives a value. Formats whose values have no quotes (chat_call_tags.c, chat_call_words.c) ask
 * whether 5 is a number or the string "5". A guess for reading, no validation: what is not understood allows every type.
 *
 * Followed are type, nullable, enum, const, $ref within the document, allOf, anyOf and oneOf. A schema without these that has
 * pattern, minLength or maxLength is one of strings. No value is of a
 * circle of $ref. Work is bounded: what takes more allows every type.
 * Threads: pure functions. Source: JSON Schema 2020-12. */
#ifndef INFCGI_CHAT_CHAT_TYPES_H
#define INFCGI_CHAT_CHAT_TYPES_H

#include <jansson.h>
#include <stdbool.h>
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

/* The types that the schema allows. root: its document, for $ref. schema OPTIONAL: NULL allows all. */
unsigned chat_types_of(const json_t *root, const json_t *schema);

/* The schema of the member key[0..n) of objects of the schema, or NULL. All arguments as above. */
const json_t *chat_types_member(const json_t *root, const json_t *schema, const char *key, size_t n);

/* The schema of the items of arrays of the schema, or NULL. */
const json_t *chat_types_items(const json_t *root, const json_t *schema);

/* The type of a value. */
unsigned chat_types_of_value(const json_t *value);

/* The parameters of the function `name` of tools, an array as in requests; NULL: none. */
const json_t *chat_types_parameters(const json_t *tools, const char *name);

#endif
