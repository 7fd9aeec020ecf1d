/* Tools for models whose chat template knows none: what they are, how they are called, and what was called before, in the
 * text of messages that every template has. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_TOOLS_PROMPT_H
#define INFCGI_FCGI_API_TOOLS_PROMPT_H

#include "engine/base/err.h"

#include <jansson.h>
#include <stdbool.h>

enum tools_prompt_flag {
    TOOLS_PROMPT_NO_SYSTEM = 1,   /* told in the user's first message, not in the system's */
    TOOLS_PROMPT_KEEPS_CALLS = 2, /* calls and results of earlier turns stay; else they are text */
};

/* *out, the caller's: checked messages with the tools (OPTIONAL) told at the front. flags: of tools_prompt_flag.
 * ERR_NOMEM. */
MUST_CHECK enum err tools_prompt(const json_t *messages, const json_t *tools, unsigned flags, json_t **out);

#endif
