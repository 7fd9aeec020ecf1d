/* What Ollama's /api/chat and /api/generate write: lines of JSON, the last with counts and durations; or one object.
 * Threads: as the request. */
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

/* Appends the message or response of an answer that says nothing. */
void ollama_write_nothing(bool is_generate, struct buf *out);

#endif
