/* The grammar of answers that hold calls of tools: all of an answer, or what stands behind text that the model may say
 * first. Arguments are what the schema of the tool allows (schema.h). And thinking in front of any other grammar.
 * Threads: as the builder's. */
#ifndef INFCGI_CHAT_CHAT_FORCED_H
#define INFCGI_CHAT_CHAT_FORCED_H

#include "engine/chat/chat_format.h"
#include "engine/grammar/grammar_build.h"
#include "engine/tokenizer/tokenizer.h"

#include <jansson.h>

enum { CHAT_FORCED_MAX_CALLS = 64 }; /* of one answer */

struct chat_forced_tool {
    const char *name;         /* letters, digits, '_' and '-' */
    const json_t *parameters; /* a JSON Schema, an object; NULL: there are none */
    bool is_loose;            /* any object does for arguments */
};

struct chat_forced {
    const struct chat_format *format;
    const struct chat_forced_tool *tools;
    size_t n_tools; /* 1 at least */
    bool is_single; /* one call at most */
    bool may_speak; /* the answer may be text, and calls may come behind it; else it is thinking, if any, and a call */
    enum chat_thinking thinking;
};

/* Adds the answers; *out: their symbol. t finds the control tokens that are marks; OPTIONAL, without there are none.
 * Fails as schema_add does, *i_failed: of which tool; ERR_INVALID_SCHEMA too where arguments would not be an object. */
MUST_CHECK enum err chat_forced_add(struct grammar_builder *b, const struct chat_forced *f, const struct tokenizer *t,
                                    symbol_id *out, size_t *i_failed, struct err_info *info);

/* The symbol of what the model thinks and then `said`, with the format's marks; without thinking `said` itself. t as above. */
symbol_id chat_forced_think(struct grammar_builder *b, const struct chat_format *format, enum chat_thinking thinking,
                            const struct tokenizer *t, symbol_id said);

#endif
