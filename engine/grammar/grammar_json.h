/* Free JSON [RFC 8259] as a grammar. Between lexemes stand at most GRAMMAR_JSON_SPACES characters of white space, so that no
 * model goes on with them for ever; none stand in front of a value or behind it. Threads: as the builder's. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_JSON_H
#define INFCGI_GRAMMAR_GRAMMAR_JSON_H

#include "engine/grammar/grammar_build.h"

enum { GRAMMAR_JSON_SPACES = 64 };

/* Any value, or any object, as deep as may be. Errors: the builder's. */
symbol_id grammar_json_value(struct grammar_builder *b);
symbol_id grammar_json_object(struct grammar_builder *b);

/* The white space that may stand between lexemes; a string, with its quotes; a number. */
regex_id grammar_json_spaces(struct grammar_builder *b);
regex_id grammar_json_string(struct grammar_builder *b);
regex_id grammar_json_number(struct grammar_builder *b);

#endif
