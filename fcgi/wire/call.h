/* A call of an endpoint, which every handler gets and answers. Threads: handlers run in the request's thread. */
#ifndef INFCGI_WIRE_CALL_H
#define INFCGI_WIRE_CALL_H

#include "fcgi/tenant/apikey.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/wire/dialect.h"
#include "fcgi/wire/json_in.h"
#include "fcgi/wire/live.h"
#include "fcgi/wire/reply.h"
#include "fcgi/wire/server.h"

/* The usage of a call, for the tenant's account and the journal; zero if nothing was computed. */
struct call_usage {
    struct tenant_use tokens;
    uint64_t queue_ns, prefill_ns, decode_ns; /* of the first sequence */
    const char *finish;                       /* static; NULL: not begun */
};

struct route;

/* A call of an endpoint. */
struct call {
    struct server *server;
    const struct route *route; /* NULL for an unknown URL, and before it is looked up */
    struct engine *engine;     /* NULL only if the route does not need the model */
    struct reply reply;
    struct live live; /* for the admin socket and the status page */
    struct apikey_id caller;
    struct tenant *tenant; /* of the caller; NULL if the route needs no key */
    struct tenant_request counted;
    struct call_usage usage; /* filled by the handler */
    uint64_t deadline_ns;    /* by clock_now_ns; 0: none */
    const char *path;        /* decoded, without query */
    struct buf body;         /* already read; empty after parsing */
    json_t *json;            /* owned; NULL before call_read_json and after call_drop_json */
    struct arena arena;      /* for data that lives as long as the call */
    bool is_late;            /* arrived during shutdown */
};

/* An endpoint: a row of fcgi/routes.c. */
struct route {
    const char *method; /* "GET", "POST" or "DELETE" */
    const char *path;   /* exact, or a prefix if it ends with "/" and is_prefix */
    void (*handle)(struct call *c);
    const struct dialect *dialect; /* the API that its clients speak */
    const char *doc;               /* heading in docs/api.md */
    const char *header; /* OPTIONAL: the row counts only for requests with this parameter ("HTTP_ANTHROPIC_VERSION") */
    bool is_prefix, needs_model, needs_key;
    bool is_counted; /* limits of tenants apply to its requests */
    bool computes;   /* uses the engine: rejected while the queue is full */
    bool prepares;   /* parses, renders or tokenizes: passes the gate (gate.h) */
    bool
        takes_untyped; /* programs can post JSON without a Content-Type, or with the type of a form as `curl -d` does */
};

/* Takes the prompt's tokens from the tenant's limit. Call once, before computing. ERR_RATE_LIMIT: the limit is reached;
 * Retry-After is set. */
MUST_CHECK enum err call_reserve(struct call *c, int64_t n_tokens, struct err_info *info);

/* Returns the share of the engine and the response store that a request uses: the tenant's. For a client without a key
 * or name it is the share of its address, so that one such client cannot lock out the others. */
struct sched_share call_share(const struct call *c);

/* Sets Retry-After for a 503 of a full queue to the estimated time until the queued work is done, at most one
 * minute. */
void call_set_retry_after(struct call *c);

/* Parses the body into c->json and frees its text. Errors as json_in_parse. */
MUST_CHECK enum err call_read_json(struct call *c, struct err_info *info);

/* Frees c->json; nothing may point into it. Call it before a long answer, not after it. */
void call_drop_json(struct call *c);

/* The tenant's name for a line of the log, or "-" before it is known; never a key. */
const char *call_tenant(const struct call *c);

#endif
