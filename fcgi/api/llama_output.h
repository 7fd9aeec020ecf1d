/* Data of a sequence in llama-server's form, in its own answers and as members of others. All functions append to
 * `out`. [llama.cpp tools/server/README.md] Threads: the request's. */
#ifndef INFCGI_FCGI_API_LLAMA_OUTPUT_H
#define INFCGI_FCGI_API_LLAMA_OUTPUT_H

#include "fcgi/api/generation.h"

/* Writes `"timings":{..}` of the sequence so far. */
void llama_write_timings(const struct choice *c, struct buf *out);

/* Writes `"prompt_progress":{..}`, and timings if each event shows them. */
void llama_write_progress(const struct generation *g, const struct choice *c, struct buf *out);

/* Writes a token's element of completion_probabilities. */
void llama_write_probabilities(const struct generation *g, const struct engine_event *ev, struct buf *out);

/* Writes `{"temperature":..}`, the effective settings of a request. p NULL: the defaults. */
void llama_write_settings(const struct call *call, const struct params *p, struct buf *out);

/* Writes `{"index":..,"content":..}`, the answer of a finished sequence. c->text is its text; parts[0] its
 * log-probabilities, if any. */
void llama_write_result(const struct generation *g, const struct choice *c, struct buf *out);

#endif
