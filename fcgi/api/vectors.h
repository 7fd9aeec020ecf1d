/* Many texts of one request through the engine, for endpoints that answer each with numbers: embeddings, ranking. They run
 * beside each other, so many at a time that others find room in the queue, and are told in their order as they come. A
 * client that leaves ends them. Threads: the request's, but for the poller's cancel. */
#ifndef INFCGI_FCGI_API_VECTORS_H
#define INFCGI_FCGI_API_VECTORS_H

#include "fcgi/api/prompts.h"
#include "fcgi/wire/call.h"

enum { VECTORS_MAX_TEXTS = 2048 /* of a request, as OpenAI's */ };

struct vectors {
    const struct prompts *prompts; /* borrowed */
    /* engine_embed or engine_rank */
    enum err (*start)(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                      struct engine_embedding **out, struct err_info *info);
    enum err (*each)(void *arg, size_t i, const float *vector); /* i = 0, 1, ...; its error ends the rest */
    void *arg;
    size_t n_tokens; /* of all texts, once it has run */
};

/* The parameters of a request: salt (OPTIONAL, borrowed from the JSON, copied), and the server's time limit. text: where
 * the salt may lie. ERR_NOMEM. */
MUST_CHECK enum err vectors_params(struct call *c, const char *own_salt, char text[APIKEY_SALT_BYTES],
                                   struct engine_embed_params *out);

/* The check of texts that become numbers (prompts_check): at most the model's context. */
MUST_CHECK enum err vectors_check_length(struct call *c, size_t i, const int32_t *ids, size_t n_ids, const char *field,
                                         struct err_info *info);

/* ERR_UNSUPPORTED_ENDPOINT when the model gives no embeddings, or one for each token where one of a text is needed. */
MUST_CHECK enum err vectors_check_pools(const struct call *c, struct err_info *info);

/* Cuts texts to `limit` tokens, at most those of the context (limit < 1: those). The beginning stays, and the end token that the
 * vocabulary adds, as Ollama and vLLM have it. */
void vectors_truncate(const struct call *c, struct prompts *p, int64_t limit);

enum { VECTORS_AS_IS = -1, VECTORS_EUCLID = 2, VECTORS_MAX_NORM = 64 };

/* The first `width` components, divided by their norm: 0: the largest magnitude, which becomes 32760; 1: the sum of magnitudes;
 * 2: the Euclidean length; p: the p-norm; VECTORS_AS_IS: not divided [llama.cpp's `embd_normalize`]. out may be `vector`. */
void vectors_scale(const float *vector, size_t width, int norm, float *out);

/* Runs them all and writes a line to the log, under the endpoint's name. Fails as `start`, engine_embedding_wait and
 * `each` do; then Retry-After is set. */
MUST_CHECK enum err vectors_run(struct vectors *v, struct call *c, struct engine_embed_params *params, const char *name,
                                struct err_info *info);

#endif
