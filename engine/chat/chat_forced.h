/* The grammar of answers with tool calls: the whole answer, or the part after text that the model can write first. Each
 * tool's schema defines its arguments (schema.h). Also adds thinking before any other grammar. Threads: as the
 * builder's. */
#ifndef INFCGI_CHAT_CHAT_FORCED_H
#define INFCGI_CHAT_CHAT_FORCED_H

#include "engine/chat/chat_format.h"
#include "engine/grammar/grammar_build.h"
#include "engine/tokenizer/tokenizer.h"

#include <jansson.h>

enum { CHAT_FORCED_MAX_CALLS = 64 }; /* per answer */

struct chat_forced_tool {
    const char *name;         /* letters, digits, '_' and '-' */
    const json_t *parameters; /* a JSON Schema, an object; NULL: none */
    bool is_loose;            /* any object is valid as arguments */
};

struct chat_forced {
    const struct chat_format *format;
    const struct chat_forced_tool *tools;
    size_t n_tools; /* 1 or more */
    bool is_single; /* at most one call */
    bool may_speak; /* the answer can be text, optionally followed by calls; else it is thinking, if any, and a call */
    enum chat_thinking thinking;
};

/* Adds the answers; *out: their symbol. t finds the control tokens among the marks; OPTIONAL, without it there are
 * none. Fails as schema_add does, with the tool in *i_failed; ERR_INVALID_SCHEMA also if arguments would not be an
 * object. */
MUST_CHECK enum err chat_forced_add(struct grammar_builder *b, const struct chat_forced *f, const struct tokenizer *t,
                                    symbol_id *out, size_t *i_failed, struct err_info *info);

/* Returns the symbol for thinking, with the format's marks, followed by `said`; without thinking `said` itself. t as
 * for chat_forced_add. */
symbol_id chat_forced_think(struct grammar_builder *b, const struct chat_format *format, enum chat_thinking thinking,
                            const struct tokenizer *t, symbol_id said);

#endif
