/* Output of Ollama's /api/chat and /api/generate: lines of JSON, the last with counts and durations; or one object.
 * Threads: the request's. */
#ifndef INFCGI_FCGI_API_OLLAMA_OUTPUT_H
#define INFCGI_FCGI_API_OLLAMA_OUTPUT_H

#include "fcgi/api/generation.h"

/* The `arg` of a generation in this shape. */
struct ollama_answer {
    bool is_generate; /* the text is `response`, not a message */
};

const struct shape *ollama_shape(void);

/* Appends `{"model":...,"created_at":...`. */
void ollama_write_head(const struct call *c, struct buf *out);

/* Appends the message or response of an empty answer. */
void ollama_write_nothing(bool generates, struct buf *out);

#endif
