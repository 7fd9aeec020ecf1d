/* JSON Schema as a grammar: texts that a schema allows, and no others. What cannot be enforced is refused and never ignored.
 * Drafts 4 to 2020-12, as far as the table in docs/internals/grammar.md goes.
 *
 * Members come in any order. Texts are JSON as grammar_json writes it; keys and values of a schema are written in one way,
 * without escapes that need not be. Nothing recurses; schemas are bounded by SCHEMA_MAX_NODES.
 * Threads: as the builder's. */
#ifndef INFCGI_SCHEMA_SCHEMA_H
#define INFCGI_SCHEMA_SCHEMA_H

#include "engine/grammar/grammar_build.h"

#include <jansson.h>

enum { SCHEMA_MAX_NODES = 10000 };

/* Adds what the schema, borrowed, allows; *out: the symbol of a value. ERR_INVALID_SCHEMA: info->where is the place in the
 * schema as a JSON pointer [RFC 6901], and the text names the keyword and what was expected; ERR_GRAMMAR_LIMIT; ERR_NOMEM.
 * What the builder fails with, grammar_finish says. */
MUST_CHECK enum err schema_add(struct grammar_builder *b, const json_t *schema, symbol_id *out, struct err_info *info);

#endif
