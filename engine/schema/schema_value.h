/* Equality of a schema's values. 1, 1.0 and 1e0 are equal, also within objects and arrays; 9007199254740993 and
 * 9007199254740992 are not, in any spelling. Threads: pure functions. */
#ifndef INFCGI_SCHEMA_SCHEMA_VALUE_H
#define INFCGI_SCHEMA_SCHEMA_VALUE_H

#include <jansson.h>
#include <stdbool.h>

/* Returns a NUL-terminated text that is the same for equal values and different for others. The caller frees it with
 * mem_free. NULL: no memory. */
char *schema_key_of(const json_t *value);

/* Returns whether a and b are equal. Sets *has_failed if memory was out. */
bool schema_is_same(const json_t *a, const json_t *b, bool *has_failed);

#endif
