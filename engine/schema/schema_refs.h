/* References of a schema by other names than JSON pointers of the document: $anchor, $id, $dynamicRef.
 * [JSON Schema 2020-12 core, section 8; draft-07 core, section 8.2] */
#ifndef INFCGI_SCHEMA_SCHEMA_REFS_H
#define INFCGI_SCHEMA_SCHEMA_REFS_H

#include "engine/base/err.h"

#include <jansson.h>

/* Makes a document whose references are JSON pointers from its root:
 *   $ref to an $anchor, to the $id of a schema in the document, relative ones too, or to a pointer in such a schema;
 *   $dynamicRef where the document has one $dynamicAnchor of the name, $recursiveRef where it has no schema with an $id in it.
 * References that lead nowhere stay as they are. *out: the document, which shares all of schema but its objects and arrays;
 * NULL where schema needs none. The caller decrefs it. ERR_NOMEM. Threads: pure. */
MUST_CHECK enum err schema_refs_plain(const json_t *schema, json_t **out);

#endif
