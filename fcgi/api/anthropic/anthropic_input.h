/* Converts requests of Anthropic's Messages API [its reference, "Create a Message", "Count tokens in a Message"] to
 * bodies of /v1/chat/completions, so that one path checks and renders both. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_ANTHROPIC_INPUT_H
#define INFCGI_FCGI_API_ANTHROPIC_INPUT_H

#include "fcgi/wire/json_in.h"

/* Builds *chat, which the caller decrefs, from `body`: model, messages, tools, tool_choice, thinking and output_config.
 * Fields about caching, billing and serving are ignored. The system block with Claude Code's billing header is removed,
 * because it changes with each call and would end the shared prefix. Images, documents and tools that the server would
 * have to run are rejected. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_UNSUPPORTED_PARAMETER with
 * info->where the position in `body`, as messages[0].content[1].type; ERR_NOMEM. */
MUST_CHECK enum err anthropic_to_chat(const json_t *body, json_t **chat, struct err_info *info);

/* Adds to such a chat the fields for an answer: max_tokens, which is required, sampling, stop_sequences and stream;
 * also the chat endpoint's own sampling fields. Fails as anthropic_to_chat. If both APIs use the same field name, the
 * chat endpoint checks type and range. */
MUST_CHECK enum err anthropic_add_answer(const json_t *body, json_t *chat, struct err_info *info);

/* Translates the position of an error in such a chat to the one in the original body: reply.h's name_place. arg is not
 * used. */
void anthropic_name_place(const void *arg, struct err_info *info);

#endif
