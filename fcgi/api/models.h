/* Answers about the model. Threads: the request's. */
#ifndef INFCGI_API_MODELS_H
#define INFCGI_API_MODELS_H

#include "fcgi/wire/call.h"

/* Members that an API adds; each begins with a comma. */
struct models_more {
    void (*write_model)(const struct call *c, struct buf *out); /* to a model */
    void (*write_list)(const struct call *c, struct buf *out);  /* to the list */
};

/* models_list answers with the list, which has one model; models_one with the model that the path names. more
 * OPTIONAL. */
void models_list(struct call *c, const struct models_more *more);
void models_one(struct call *c, const struct models_more *more);

/* The endpoints of OpenAI's API and llama-server's. */
void api_models(struct call *c);
void api_model(struct call *c);

#endif
