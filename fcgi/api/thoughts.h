/* Thinking of earlier answers, in the form that a chat template reads: a field of the message under one of three names, or a part
 * of its content (Ministral 3). Threads: pure functions. Source: transformers 5, chat templates. */
#ifndef INFCGI_FCGI_API_THOUGHTS_H
#define INFCGI_FCGI_API_THOUGHTS_H

#include "engine/base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* The member in which messages_check leaves content that has parts of type thinking: [{"type": "text", "text": ..},
 * {"type": "thinking", "thinking": ..}]. `content` is then its text alone. */
#define THOUGHTS_PARTS "content_with_thinking"

/* Fills reasoning_content, reasoning and thinking of a message with the first of them that is a text; those that have one, or
 * are of another type, stay. ERR_NOMEM. */
MUST_CHECK enum err thoughts_fill(json_t *message);

/* *out: the source of a chat template compares the `type` of something with 'thinking', so it reads thinking from parts. Space and
 * the kind of quotation mark do not matter. ERR_NOMEM. */
MUST_CHECK enum err thoughts_are_parts(const char *source, size_t n, bool *out);

/* Removes THOUGHTS_PARTS from checked messages. as_parts: the template reads thinking from parts alone; they become the content,
 * and messages of the assistant that have thinking without parts get parts made of it. keeps_last: the last message stays as
 * it is. ERR_NOMEM. */
MUST_CHECK enum err thoughts_place(json_t *messages, bool as_parts, bool keeps_last);

/* Messages in which none of the assistant's has content, thinking and calls at once, which gpt-oss refuses: the content is
 * appended to the thinking. *out is the caller's and shares other messages; NULL: none is such. ERR_NOMEM. */
MUST_CHECK enum err thoughts_join(const json_t *messages, json_t **out);

#endif
