/* The state that request handlers share: options, engine, progress. Threads: fields marked "set once" are written
 * before serving or published by `engine`. */
#ifndef INFCGI_FCGI_SERVER_H
#define INFCGI_FCGI_SERVER_H

#include "engine/engine.h"
#include "fcgi/conf/conf.h"

#include <stdatomic.h>

#define SERVER_VERSION "0.1.0"

struct route;
struct dialect;

struct server {
    const struct route *routes; /* [n_routes], set once: fcgi/routes.c */
    int n_routes;
    const struct dialect *const *dialects; /* NULL-terminated; set once */
    _Atomic(const struct conf *) conf; /* SIGHUP replaces it with other values of live options; old ones stay valid */
    _Atomic(struct engine *) engine;   /* NULL while the model loads; release/acquire: model_id is set before it */
    const char *model_id;              /* set once */
    atomic_int progress;               /* model loading, per mille */
    atomic_bool has_failed;            /* the model cannot be loaded: the process exits soon */
    atomic_bool is_draining;
    atomic_bool is_stuck;         /* a step takes too long (pulse.h) */
    atomic_int n_stuck_requests;  /* requests that compute for too long (live_check) */
    atomic_bool has_lost_request; /* one of these does not end */
    atomic_bool is_refusing;      /* new requests get ERR_DRAINING */
    atomic_int n_working;         /* requests from before */
    int64_t started;              /* seconds since 1970 */
    uint64_t started_ns;          /* start by clock_now_ns, which is not settable */
};

extern struct server server_state;

#endif
