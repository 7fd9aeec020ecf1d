/* The required form of an answer: response_format, llama.cpp's `grammar` and `json_schema`, and vLLM's
 * `structured_outputs` and `guided_*`. A request can have at most one of them. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_CONSTRAINT_H
#define INFCGI_FCGI_API_CONSTRAINT_H

#include "engine/engine.h"

#include <jansson.h>

enum constraint_kind {
    CONSTRAINT_NONE,
    CONSTRAINT_OBJECT, /* any JSON object */
    CONSTRAINT_SCHEMA, /* an object, or a string that holds one */
    CONSTRAINT_REGEX,
    CONSTRAINT_CHOICE, /* an array of strings */
    CONSTRAINT_GBNF,   /* or Lark's after %llguidance, as in llama.cpp */
    CONSTRAINT_GRAMMAR /* Lark's or GBNF, distinguished as vLLM does */
};

struct constraint {
    enum constraint_kind kind;
    const char *where;   /* position in the request */
    const json_t *value; /* borrowed from the request */
    bool is_of_response; /* response_format, which permits tool calls */
};

/* Reads the constraint of a request. ERR_INVALID_TYPE; ERR_INVALID_VALUE: two of them, or an empty list;
 * ERR_MISSING_PARAMETER, ERR_UNSUPPORTED_PARAMETER. info->where is the field or its member. */
MUST_CHECK enum err constraint_read(const json_t *root, struct constraint *out, struct err_info *info);

/* Builds *out, owned by the caller, with thinking before the answer; NULL without a constraint. Errors name the
 * position in the request: ERR_INVALID_JSON for a schema in a string; those of engine_grammar_*. */
MUST_CHECK enum err constraint_grammar(const struct constraint *c, struct engine *e, enum chat_thinking thinking,
                                       struct grammar **out, struct err_info *info);

#endif
