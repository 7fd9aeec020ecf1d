/* The list of requests in progress, for the admin socket and the status page. A request is on the list from its arrival
 * to its last byte. It can be found by number and ended.
 *
 * Threads: the request's thread calls begin, name, watch and end; any thread can call each and cancel. The list is
 * locked during each, so its callbacks must not block. */
#ifndef INFCGI_FCGI_LIVE_H
#define INFCGI_FCGI_LIVE_H

#include "engine/base/task.h"
#include "engine/engine.h"
#include "fcgi/ground/pulse.h"
#include "fcgi/wire/reply.h"

#include <stdbool.h>
#include <stdint.h>

/* The current stage of a request. */
enum live_state {
    LIVE_READING, /* reading parameters and body, preparing the prompt */
    LIVE_QUEUED,  /* none of its sequences has been computed yet */
    LIVE_PREFILL,
    LIVE_DECODE
};
const char *live_state_name(enum live_state s);

/* The progress of a request, summed over its sequences. */
struct live_look {
    enum live_state state;
    int64_t prompt_tokens, cached_tokens, processed_tokens, completion_tokens;
    struct draft_count drafts[DRAFT_SOURCES];
};

enum { LIVE_OWNER_BYTES = 64 };

/* One request, on the stack of its thread. */
struct live {
    struct live *next, **at; /* list links */
    uint64_t number;         /* 1, 2, .. from the start of the process */
    struct fastcgi_request *request;
    const char *id;               /* borrowed: X-Request-Id */
    const char *path;             /* static, of the route; "" before it is known */
    char owner[LIVE_OWNER_BYTES]; /* tenant; "": none, or not yet known */
    uint64_t arrived_ns;
    struct task task;        /* the thread's */
    struct pulse_task pulse; /* used by live_check */
    void (*look)(const void *arg, struct live_look *out);
    const void *look_arg;
};

/* Add a request to the list and remove it. Between the calls l->task is the thread's task. id is borrowed until
 * live_end. */
void live_begin(struct live *l, struct fastcgi_request *r, const char *id, uint64_t arrived_ns);
void live_end(struct live *l);

/* Sets the route (static) and the owner (copied, truncated to fit). */
void live_name(struct live *l, const char *path, const char *owner);

/* Registers `look`, which reports the progress to readers of the list. NULL: unregisters; `look` is not running after
 * the return. */
void live_watch(struct live *l, void (*look)(const void *arg, struct live_look *out), const void *arg);

/* Cancels the request of that number as if its client had left (fastcgi_abandon). Returns false if no such request
 * exists. */
bool live_cancel(uint64_t number);

/* Calls each(arg, ..) for every request in order of arrival. Returns their number. */
int live_each(void (*each)(void *arg, const struct live *l, const struct live_look *look), void *arg);

/* A request that has computed for too long. */
struct live_report {
    uint64_t number;
    char id[REPLY_ID_MAX + 1], owner[LIVE_OWNER_BYTES];
    const char *path, *phase; /* static */
    uint64_t cpu_ms;          /* since its last progress */
    enum pulse_verdict verdict;
};

/* Numbers of requests that compute for too long (PULSE_LONG or worse) and of requests that do not end (PULSE_LOST).
 * news: up to LIVE_MOST_NEWS requests that reached either verdict since the last check. */
enum { LIVE_MOST_NEWS = 8 };
struct live_pulse {
    int n_long, n_lost, n_news;
    struct live_report news[LIVE_MOST_NEWS];
};

/* Checks all requests, about once per second, and stops each that is PULSE_LONG: task_check() in its thread returns
 * ERR_DEADLINE. */
void live_check(uint64_t limit_ns, struct live_pulse *out);

#endif
