/* Can a value be of both of two schemas? What oneOf asks. Only simple reasons are looked for: types, values, and for objects a
 * member that both ask for, or that one asks for and the other forbids. Threads: pure. */
#ifndef INFCGI_SCHEMA_SCHEMA_DISJOINT_H
#define INFCGI_SCHEMA_SCHEMA_DISJOINT_H

#include <jansson.h>
#include <stdbool.h>

/* True: no value is of both. root: the document of both. *work: how many names and values were compared is added to it; what takes
 * more than SCHEMA_DISJOINT_WORK is not found out. */
enum { SCHEMA_DISJOINT_WORK = 10000 };
bool schema_are_disjoint(const json_t *root, const json_t *a, const json_t *b, size_t *work);

/* Has it an $id, which is no mere name? Then pointers in it begin there, and not at the document's root. */
bool schema_has_id(const json_t *schema);

/* The schema that a JSON pointer within the document names, as "#/$defs/name", percent-encoded or not; NULL: none, or one
 * within a schema with an $id of its own. */
const json_t *schema_resolve(const json_t *root, const char *ref);

/* Is the value of a type that `type`, of a schema and OPTIONAL, names? */
bool schema_fits_type(const json_t *type, const json_t *value);

/* Does `type` name it, by itself or among others? */
bool schema_has_type(const json_t *type, const char *name);

#endif
