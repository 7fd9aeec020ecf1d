/* llama-server's API: its dialect and endpoints, and endpoints of rerankers. Threads: handlers run in the request's
 * thread. */
#ifndef INFCGI_LLAMA_H
#define INFCGI_LLAMA_H

#include "fcgi/wire/call.h"

extern const struct dialect dialect_llama;

void api_llama_completion(struct call *c);
void api_llama_infill(struct call *c);
void api_llama_count(struct call *c);
void api_llama_slot_action(struct call *c);
void api_llama_slots(struct call *c);
void api_llama_props(struct call *c);
void api_llama_adapters(struct call *c);
void api_llama_template(struct call *c);
void api_tokenize(struct call *c);
void api_detokenize(struct call *c);
void api_rerank(struct call *c);
void api_score(struct call *c);

#endif
