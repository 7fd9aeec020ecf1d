/* Runs the texts of one request through the engine, for endpoints that answer each with numbers: embeddings, ranking.
 * Texts run concurrently, but so few at a time that other requests find room in the queue. Results are reported in
 * order. They are cancelled if the client leaves. Threads: the request's, except for the poller's cancel. */
#ifndef INFCGI_FCGI_API_VECTORS_H
#define INFCGI_FCGI_API_VECTORS_H

#include "fcgi/api/prompts.h"
#include "fcgi/wire/call.h"

enum { VECTORS_MAX_TEXTS = 2048 /* per request, as for OpenAI */ };

struct vectors {
    const struct prompts *prompts; /* borrowed */
    /* engine_embed or engine_rank */
    enum err (*start)(struct engine *e, const int32_t *ids, size_t n_ids, const struct engine_embed_params *p,
                      struct engine_embedding **out, struct err_info *info);
    enum err (*each)(void *arg, size_t i, const float *vector); /* i = 0, 1, ...; its error cancels the rest */
    void *arg;
    size_t n_tokens; /* of all texts, after running */
};

/* Sets the parameters of a request: salt (OPTIONAL, borrowed from the JSON, copied) and the server's time limit. text:
 * buffer for the salt. ERR_NOMEM. */
MUST_CHECK enum err vectors_params(struct call *c, const char *own_salt, char text[APIKEY_SALT_BYTES],
                                   struct engine_embed_params *out);

/* The check of texts that become numbers (prompts_check): at most the model's context. */
MUST_CHECK enum err vectors_check_length(struct call *c, const struct prompts *p, size_t i, const char *field,
                                         struct err_info *info);

/* Checks the model's pooling. ERR_UNSUPPORTED_ENDPOINT: the model produces no embeddings, or one per token where one
 * per text is needed. */
MUST_CHECK enum err vectors_check_pools(const struct call *c, struct err_info *info);

/* Truncates texts to `limit` tokens, at most the context (limit < 1: the context). Keeps the beginning and the end
 * token that the vocabulary adds, as Ollama and vLLM do. */
void vectors_truncate(const struct call *c, struct prompts *p, int64_t limit);

enum { VECTORS_AS_IS = -1, VECTORS_EUCLID = 2, VECTORS_MAX_NORM = 64 };

/* Writes the first `width` components divided by their norm. 0: the largest magnitude becomes 32760; 1: sum of
 * magnitudes; 2: Euclidean length; p: p-norm; VECTORS_AS_IS: not divided [llama.cpp's `embd_normalize`]. out can be
 * `vector`. */
void vectors_scale(const float *vector, size_t width, int norm, float *out);

/* Runs all texts and logs a line under the endpoint's name. Fails as `start`, engine_embedding_wait and `each`;
 * Retry-After is then set. */
MUST_CHECK enum err vectors_run(struct vectors *v, struct call *c, struct engine_embed_params *params, const char *name,
                                struct err_info *info);

#endif
