/* Requests of Anthropic's Messages API [its reference, "Create a Message", "Count tokens in a Message"] as bodies of
 * /v1/chat/completions, so that one path checks and renders both. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_ANTHROPIC_INPUT_H
#define INFCGI_FCGI_API_ANTHROPIC_INPUT_H

#include "fcgi/wire/json_in.h"

/* Makes *chat, which the caller decrefs, of `body`: model, messages, tools, tool_choice, thinking and output_config.
 * Fields that say how to cache, bill or serve are passed over. Left out is the system block with Claude Code's billing
 * header: it differs from call to call, and would end the prefix that calls share. Images, documents and tools that the
 * server itself would have to run are refused. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE,
 * ERR_UNSUPPORTED_PARAMETER with info->where the place in `body`, as messages[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err anthropic_to_chat(const json_t *body, json_t **chat, struct err_info *info);

/* Adds to such a chat what an answer needs beside: max_tokens, which must be there, how to sample, stop_sequences and
 * stream; also the chat endpoint's own fields of sampling. Fails as anthropic_to_chat; of values whose names are the
 * same in both, the chat endpoint checks type and range. */
MUST_CHECK enum err anthropic_add_answer(const json_t *body, json_t *chat, struct err_info *info);

/* Turns the place of an error that was found in such a chat into the one in the body it was made of: reply.h's
 * name_place. arg is not read. */
void anthropic_name_place(const void *arg, struct err_info *info);

#endif
