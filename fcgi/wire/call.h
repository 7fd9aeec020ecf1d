/* A call of an endpoint: the base of every handler. A handler gets one struct call, and answers it. Threads: handlers run in the
 * request's thread. */
#ifndef INFCGI_WIRE_CALL_H
#define INFCGI_WIRE_CALL_H

#include "fcgi/tenant/apikey.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/wire/dialect.h"
#include "fcgi/wire/json_in.h"
#include "fcgi/wire/live.h"
#include "fcgi/wire/reply.h"
#include "fcgi/wire/server.h"

/* What a call came to, for the tenant's account and the journal; zero where nothing was computed. */
struct call_usage {
    struct tenant_use tokens;
    uint64_t queue_ns, prefill_ns, decode_ns; /* of its first sequence */
    const char *finish;                       /* static; NULL: it was not begun */
};

struct route;

/* A call of an endpoint. */
struct call {
    struct server *server;
    const struct route *route; /* NULL before it is known, and for an unknown URL */
    struct engine *engine;     /* NULL only where the route does not need the model */
    struct reply reply;
    struct live live; /* for who looks from outside */
    struct apikey_id caller;
    struct tenant *tenant; /* theirs; NULL where the route needs no key */
    struct tenant_request counted;
    struct call_usage usage; /* the handler's to fill */
    uint64_t deadline_ns;    /* clock_now_ns; 0 = none */
    const char *path;        /* decoded, without query */
    struct buf body;         /* read already; empty once it is parsed */
    json_t *json;            /* owned; NULL before call_read_json and after call_drop_json */
    struct arena arena;      /* for what lives as long as the call */
    bool is_late;            /* came while the server shuts down */
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
    bool computes;   /* in the engine: rejected while the queue is full */
    bool prepares;   /* parses, renders or tokenizes: passes the gate (gate.h) */
    bool
        takes_untyped; /* programs can post JSON without a Content-Type, or with the type of a form as `curl -d` does */
};

/* Takes the prompt's tokens from the tenant's limit, once, before anything is computed. ERR_RATE_LIMIT: not now; Retry-After
 * is set. */
MUST_CHECK enum err call_reserve(struct call *c, int64_t n_tokens, struct err_info *info);

/* Whose part of the engine and of the store a request takes: the tenant's; of a client without a key or a name that of its
 * address, so that one such client cannot lock out the others. */
struct sched_share call_share(const struct call *c);

/* For a 503 of a queue that is full: when what waits will have been done, a minute at most. */
void call_set_retry_after(struct call *c);

/* Parses the body into c->json and frees its text. Errors as json_in_parse. */
MUST_CHECK enum err call_read_json(struct call *c, struct err_info *info);

/* Frees c->json, which nothing may point into any more: before a long answer, not after it. */
void call_drop_json(struct call *c);

/* The tenant's name for a line of the log, or "-" before it is known; never a key. */
const char *call_tenant(const struct call *c);

#endif
