/* What a request says of the form of its answer: response_format, llama.cpp's `grammar` and `json_schema`, and vLLM's
 * `structured_outputs` and `guided_*`. One of them at most. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_CONSTRAINT_H
#define INFCGI_FCGI_API_CONSTRAINT_H

#include "engine/engine.h"

#include <jansson.h>

enum constraint_kind {
    CONSTRAINT_NONE,
    CONSTRAINT_OBJECT, /* any JSON object */
    CONSTRAINT_SCHEMA, /* an object, or a string with one */
    CONSTRAINT_REGEX,
    CONSTRAINT_CHOICE, /* an array of strings */
    CONSTRAINT_GBNF,   /* or Lark's behind %llguidance, as llama.cpp has it */
    CONSTRAINT_GRAMMAR /* Lark's or GBNF, as vLLM tells them apart */
};

struct constraint {
    enum constraint_kind kind;
    const char *where;   /* its place in the request */
    const json_t *value; /* of the request */
    bool is_of_response; /* response_format, which does not forbid calls of tools */
};

/* ERR_INVALID_TYPE, ERR_INVALID_VALUE: two of them, or an empty list; ERR_MISSING_PARAMETER, ERR_UNSUPPORTED_PARAMETER; info->where is
 * the field, or the member of it. */
MUST_CHECK enum err constraint_read(const json_t *root, struct constraint *out, struct err_info *info);

/* Makes *out, the caller's, with thinking in front of it; NULL where nothing is asked for. An error names the place in the request:
 * ERR_INVALID_JSON of a schema in a string; engine_grammar_*'s. */
MUST_CHECK enum err constraint_grammar(const struct constraint *c, struct engine *e, enum chat_thinking thinking,
                                       struct grammar **out, struct err_info *info);

#endif
