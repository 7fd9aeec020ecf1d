/* References of a schema by names other than JSON pointers of the document: $anchor, $id, $dynamicRef. [JSON Schema
 * 2020-12 core, section 8; draft-07 core, section 8.2] */
#ifndef INFCGI_SCHEMA_SCHEMA_REFS_H
#define INFCGI_SCHEMA_SCHEMA_REFS_H

#include "engine/base/err.h"

#include <jansson.h>

/* Creates a document whose references are JSON pointers from its root. It replaces:
 * - $ref to an $anchor, to the $id of a schema in the document, absolute or relative, or to a pointer in such a schema;
 * - $dynamicRef if the document has exactly one $dynamicAnchor of that name;
 * - $recursiveRef if the document has no schema with an $id.
 * Broken references are kept. *out: the document, which shares everything with schema except objects and arrays; NULL
 * if schema needs no change. The caller must json_decref it. ERR_NOMEM. Threads: pure. */
MUST_CHECK enum err schema_refs_plain(const json_t *schema, json_t **out);

#endif
