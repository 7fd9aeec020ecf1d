/* The endpoints of OpenAI's API. Threads: handlers run in the request's thread. */
#ifndef INFCGI_OPENAI_H
#define INFCGI_OPENAI_H

#include "fcgi/wire/call.h"

struct shape;

void api_chat(struct call *c);
void api_completions(struct call *c);
void api_responses(struct call *c);
void api_responses_count(struct call *c);
void api_response_get(struct call *c);
void api_response_delete(struct call *c);
void api_response_post(struct call *c);
void api_embeddings(struct call *c);

/* Returns the shape of /v1/chat/completions. */
const struct shape *api_chat_shape(void);

/* POST /embedding and /embeddings, as in llama-server. */
void api_embedding_llama(struct call *c);
void api_embeddings_llama(struct call *c);

#endif
