/* Unrestricted JSON [RFC 8259] as a grammar. At most GRAMMAR_JSON_SPACES characters of white space separate lexemes,
 * because a model could write them endlessly; none precede or follow a value. Threads: as the builder's. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_JSON_H
#define INFCGI_GRAMMAR_GRAMMAR_JSON_H

#include "engine/grammar/grammar_build.h"

enum { GRAMMAR_JSON_SPACES = 64 };

/* Returns any value, or any object, of any depth. Errors: the builder's. */
symbol_id grammar_json_value(struct grammar_builder *b);
symbol_id grammar_json_object(struct grammar_builder *b);

/* Return the white space between lexemes; a string, with its quotes; a number. */
regex_id grammar_json_spaces(struct grammar_builder *b);
regex_id grammar_json_string(struct grammar_builder *b);
regex_id grammar_json_number(struct grammar_builder *b);

#endif
