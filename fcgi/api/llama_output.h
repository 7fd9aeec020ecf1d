/* What llama-server tells of a sequence, in its own answers and as members of others. All append to `out`.
 * [llama.cpp tools/server/README.md] Threads: the request's. */
#ifndef INFCGI_FCGI_API_LLAMA_OUTPUT_H
#define INFCGI_FCGI_API_LLAMA_OUTPUT_H

#include "fcgi/api/generation.h"

/* `"timings":{..}`, as far as the sequence is. */
void llama_write_timings(const struct choice *c, struct buf *out);

/* `"prompt_progress":{..}`, and timings where each event is to have them. */
void llama_write_progress(const struct generation *g, const struct choice *c, struct buf *out);

/* The element of a token in completion_probabilities. */
void llama_write_probabilities(const struct generation *g, const struct engine_event *ev, struct buf *out);

/* `{"temperature":..}`: what applies to a request. p NULL: to one that says nothing. */
void llama_write_settings(const struct call *call, const struct params *p, struct buf *out);

/* `{"index":..,"content":..}`: the answer of a sequence that has ended. c->text is its text; with
 * parts[0] where there are log-probabilities. */
void llama_write_result(const struct generation *g, const struct choice *c, struct buf *out);

#endif
