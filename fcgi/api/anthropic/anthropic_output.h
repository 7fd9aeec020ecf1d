/* Output of POST /v1/messages: answers in the form of Anthropic's Messages API [its reference, "Create a Message",
 * "Streaming Messages"], whole and streamed. Threads: the request's. */
#ifndef INFCGI_FCGI_API_ANTHROPIC_OUTPUT_H
#define INFCGI_FCGI_API_ANTHROPIC_OUTPUT_H

#include "fcgi/api/generation.h"

/* The `arg` of a generation in this shape. Zero-initialise. */
struct anthropic_answer {
    enum anthropic_block { ANTHROPIC_NONE, ANTHROPIC_THINKING, ANTHROPIC_TEXT, ANTHROPIC_CALL } open;
    size_t n_blocks; /* blocks begun so far */
};

/* Returns the shape, for one choice. */
const struct shape *anthropic_shape(void);

#endif
