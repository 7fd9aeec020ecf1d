/* Reads requests of Anthropic's Messages API [its reference, "Create a Message", "Count tokens in a Message"]: messages
 * and tools in the form that templates read, and settings. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_ANTHROPIC_INPUT_H
#define INFCGI_FCGI_API_ANTHROPIC_INPUT_H

#include "fcgi/api/params.h"

/* Fills *p, initialised, from c->json. Fields about caching, billing and serving
 * are ignored. The system block with Claude Code's billing header is removed, because it changes with each call and
 * would end the shared prefix. Images, documents and tools that the server would have to run are rejected. is_answered:
 * also read the fields for an answer: max_tokens, which is required, sampling, stop_sequences, stream, and sampling
 * fields of the chat endpoint. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_UNSUPPORTED_PARAMETER
 * with info->where the position in the body, as messages[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err anthropic_read(struct call *c, bool is_answered, struct params *p, struct err_info *info);

#endif
