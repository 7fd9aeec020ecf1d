/* Checks for oneOf whether a value can satisfy two schemas. Finds only simple reasons why not: types, values, and for
 * objects a member that both require, or that only one requires and the other forbids. Threads: pure. */
#ifndef INFCGI_SCHEMA_SCHEMA_DISJOINT_H
#define INFCGI_SCHEMA_SCHEMA_DISJOINT_H

#include <jansson.h>
#include <stdbool.h>

/* Returns true if no value satisfies both. root: the document of both. Adds the number of compared names and values to
 * *work; gives up after SCHEMA_DISJOINT_WORK. */
enum { SCHEMA_DISJOINT_WORK = 10000 };
bool schema_are_disjoint(const json_t *root, const json_t *a, const json_t *b, size_t *work);

/* Returns the schema's $id, or NULL if it has none other than a plain name. Pointers within then begin there, not at
 * the document's root. */
const char *schema_id(const json_t *schema);

/* Returns the schema that a JSON pointer within the document names, as "#/$defs/name", percent-encoded or not. NULL:
 * none, or it is within a schema with its own $id. */
const json_t *schema_resolve(const json_t *root, const char *ref);

#endif
