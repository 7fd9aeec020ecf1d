/* Thinking of earlier answers, in the form that a chat template reads: a message field under one of three names, or a
 * part of the content (Ministral 3). Threads: pure functions. Source: transformers 5, chat templates. */
#ifndef INFCGI_FCGI_API_THOUGHTS_H
#define INFCGI_FCGI_API_THOUGHTS_H

#include "engine/base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* The member in which messages_check stores content with parts of type thinking: [{"type": "text", "text": ..},
 * {"type": "thinking", "thinking": ..}]. `content` then has only its text. */
#define THOUGHTS_PARTS "content_with_thinking"

/* Sets reasoning_content, reasoning and thinking of a message to the first of them that is a text. Existing texts and
 * values of other types stay. ERR_NOMEM. */
MUST_CHECK enum err thoughts_fill(json_t *message);

/* Sets *out to whether the source of a chat template compares a `type` with 'thinking' and so reads thinking from
 * parts. Space and the kind of quotation mark do not matter. ERR_NOMEM. */
MUST_CHECK enum err thoughts_are_parts(const char *source, size_t n, bool *out);

/* Removes THOUGHTS_PARTS from checked messages. as_parts: the template reads thinking only from parts. They become the
 * content, and assistant messages with thinking but no parts get parts. keeps_last: the last message stays unchanged.
 * ERR_NOMEM. */
MUST_CHECK enum err thoughts_place(json_t *messages, bool as_parts, bool keeps_last);

/* Builds messages in which no assistant message has content, thinking and calls together, because gpt-oss's template
 * rejects those: the content is appended to the thinking. *out belongs to the caller and shares other messages; NULL:
 * no change. ERR_NOMEM. */
MUST_CHECK enum err thoughts_join(const json_t *messages, json_t **out);

#endif
