/* Translates JSON Schema to a grammar of exactly the texts that the schema allows. A constraint that cannot be enforced
 * is rejected, never ignored. Supports drafts 4 to 2020-12, within the limits of the table in
 * docs/internals/grammar.md.
 *
 * Members can come in any order. Texts are JSON as grammar_json writes it. Keys and values of a schema have one
 * spelling, without unneeded escapes. No function recurses; SCHEMA_MAX_NODES bounds a schema. Threads: as the
 * builder's. */
#ifndef INFCGI_SCHEMA_SCHEMA_H
#define INFCGI_SCHEMA_SCHEMA_H

#include "engine/grammar/grammar_build.h"

#include <jansson.h>

enum { SCHEMA_MAX_NODES = 10000 };

/* Adds rules for the values that the schema (borrowed) allows; *out: the symbol of a value. ERR_INVALID_SCHEMA:
 * info->where is the location in the schema as a JSON pointer [RFC 6901]; the text has the keyword and the expected
 * value. Also ERR_GRAMMAR_LIMIT and ERR_NOMEM. grammar_finish reports the builder's errors. */
MUST_CHECK enum err schema_add(struct grammar_builder *b, const json_t *schema, symbol_id *out, struct err_info *info);

#endif
