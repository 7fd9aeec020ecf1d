/* Values that a schema names: which are the same. 1, 1.0 and 1e0 are, also within objects and arrays; 9007199254740993 and
 * 9007199254740992 are not, however they are written. Threads: pure functions. */
#ifndef INFCGI_SCHEMA_SCHEMA_VALUE_H
#define INFCGI_SCHEMA_SCHEMA_VALUE_H

#include <jansson.h>
#include <stdbool.h>

/* Returns a NUL-terminated text that is the same for equal values, and another one for each other value. The caller frees it with
 * mem_free. NULL: no memory. */
char *schema_key_of(const json_t *value);

/* Returns whether a and b are equal. *has_failed is set if there was no memory to find out. */
bool schema_is_same(const json_t *a, const json_t *b, bool *has_failed);

#endif
