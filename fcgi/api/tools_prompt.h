/* Tools for models whose chat template does not support them: messages, which every template supports, describe the
 * tools, how to call them, and earlier calls. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_TOOLS_PROMPT_H
#define INFCGI_FCGI_API_TOOLS_PROMPT_H

#include "engine/base/err.h"

#include <jansson.h>

enum tools_prompt_flag {
    TOOLS_PROMPT_NO_SYSTEM = 1,   /* description in the user's first message instead of the system's */
    TOOLS_PROMPT_KEEPS_CALLS = 2, /* calls and results of earlier turns stay; else they become text */
};

/* Sets *out, owned by the caller, to the checked messages with a description of the tools (OPTIONAL) at the start.
 * flags: of tools_prompt_flag. ERR_NOMEM. */
MUST_CHECK enum err tools_prompt(const json_t *messages, const json_t *tools, unsigned flags, json_t **out);

#endif
