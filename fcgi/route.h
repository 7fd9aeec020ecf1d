/* Endpoints: one table. The route decides before the body is read who may call and how. Threads: handlers run in the
 * request's thread. */
#ifndef INFCGI_FCGI_ROUTE_H
#define INFCGI_FCGI_ROUTE_H

#include "fcgi/apikey.h"
#include "fcgi/json_in.h"
#include "fcgi/live.h"
#include "fcgi/reply.h"
#include "fcgi/server.h"
#include "fcgi/tenant.h"

/* What a call came to, for the tenant's account and the journal; zero where nothing was computed. */
struct call_usage {
    struct tenant_use tokens;
    uint64_t queue_ns, prefill_ns, decode_ns; /* of its first sequence */
    const char *finish;                       /* static; NULL: it was not begun */
};

/* A call of an endpoint. */
struct call {
    struct server *server;
    struct engine *engine; /* NULL only where the route does not need the model */
    struct reply reply;
    struct live live; /* for who looks from outside */
    struct apikey_id caller;
    struct tenant *tenant; /* theirs; NULL where the route needs no key */
    struct tenant_request counted;
    struct call_usage usage; /* the handler's to fill */
    uint64_t deadline_ns; /* clock_now_ns; 0 = none */
    const char *path;   /* decoded, without query */
    struct buf body;    /* read already; empty once it is parsed */
    json_t *json;       /* owned; NULL before route_read_json and after route_drop_json */
    struct arena arena; /* for what lives as long as the call */
    bool is_late;       /* came while the server shuts down */
};

struct route {
    const char *method; /* "GET", "POST" or "DELETE" */
    const char *path;   /* exact, or a prefix when it ends with "/" and is_prefix */
    void (*handle)(struct call *c);
    const char *doc; /* heading in docs/api.md */
    bool is_prefix, needs_model, needs_key;
    bool is_counted; /* tenants' limits hold for its requests */
    bool computes;   /* in the engine: rejected while its queue is full */
    bool prepares;   /* parses, renders or tokenizes: goes through the gate (gate.h) */
    bool takes_untyped; /* programs may post JSON without a Content-Type, or call it a form as `curl -d` does */
};

/* Handles one FastCGI request. arg: the struct server. */
void route_request(struct fastcgi_request *r, void *arg);

/* Takes the prompt's tokens from the tenant's limit, once, before anything is computed. ERR_RATE_LIMIT: not now; Retry-After
 * is set. */
MUST_CHECK enum err route_reserve(struct call *c, int64_t n_tokens, struct err_info *info);

/* Whose part of the engine and of the store a request takes: the tenant's; of a client without a key or a name that of its
 * address, so that one such client cannot lock out the others. */
struct sched_share route_share(const struct call *c);

/* For a 503 of a queue that is full: when what waits will have been done, a minute at most. */
void route_set_retry_after(struct call *c);

/* Parses the body into c->json and frees its text. Errors as json_in_parse. */
MUST_CHECK enum err route_read_json(struct call *c, struct err_info *info);

/* Frees c->json, which nothing may point into any more: before a long answer, not after it. */
void route_drop_json(struct call *c);

/* The tenant's name for a line of the log, or "-" before it is known; never a key. */
const char *route_tenant(const struct call *c);

/* i-th row; NULL beyond the last. */
const struct route *route_at(int i);

/* The row for method and path, or NULL; then *allow lists the methods the path takes ("" = unknown path). */
const struct route *route_find(const char *method, const char *path, const char **allow);

/* Decodes %XX in path[0..n) up to '?' into out[cap]; false when it does not fit or holds a bad or NUL escape. */
bool route_decode_path(const char *uri, char *out, size_t cap);

/* fcgi/api: the handlers. */
void api_chat(struct call *c);
void api_completions(struct call *c);
void api_anthropic_count(struct call *c);
void api_anthropic_messages(struct call *c);
void api_responses(struct call *c);
void api_responses_count(struct call *c);
void api_response_get(struct call *c);
void api_response_delete(struct call *c);
void api_response_post(struct call *c);
void api_embeddings(struct call *c);
void api_ollama_chat(struct call *c);
void api_ollama_generate(struct call *c);
void api_ollama_embed(struct call *c);
void api_ollama_embeddings(struct call *c);
void api_ollama_show(struct call *c);
void api_ollama_tags(struct call *c);
void api_ollama_ps(struct call *c);
void api_ollama_version(struct call *c);
void api_rerank(struct call *c);
void api_score(struct call *c);
void api_models(struct call *c);
void api_model(struct call *c);
void api_tokenize(struct call *c);
void api_detokenize(struct call *c);
void api_llama_completion(struct call *c);
void api_llama_count(struct call *c);
void api_llama_infill(struct call *c);
void api_llama_slot_action(struct call *c);
void api_llama_slots(struct call *c);
void api_llama_props(struct call *c);
void api_llama_adapters(struct call *c);
void api_llama_template(struct call *c);
void api_openapi(struct call *c);
void api_health(struct call *c);
void api_metrics(struct call *c);
void api_status(struct call *c);

#endif
