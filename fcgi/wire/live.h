/* The requests that are being handled, for who looks from outside: the admin socket and the status page. Each is on the list from its
 * arrival to its last byte; one can be found by its number and ended.
 *
 * Threads: begin, name, watch and end are called by the thread of the request; each and cancel from any. While somebody looks, the list
 * is locked: what is called then must not wait for anything. */
#ifndef INFCGI_FCGI_LIVE_H
#define INFCGI_FCGI_LIVE_H

#include "engine/base/task.h"
#include "fcgi/ground/pulse.h"
#include "fcgi/wire/reply.h"

#include <stdbool.h>
#include <stdint.h>

/* What a request is about to do, or waits for. */
enum live_state {
    LIVE_READING, /* its parameters and body; the prompt is made */
    LIVE_QUEUED,  /* none of its sequences was computed yet */
    LIVE_PREFILL,
    LIVE_DECODE,
    LIVE_STATE_COUNT
};
const char *live_state_name(enum live_state s);

/* How far it is, of all its sequences together. */
struct live_look {
    enum live_state state;
    int64_t prompt_tokens, cached_tokens, processed_tokens, completion_tokens;
};

enum { LIVE_OWNER_BYTES = 64 };

/* One request; on the stack of its thread. */
struct live {
    struct live *next, **at; /* the list's */
    uint64_t number;         /* 1, 2, .. since the start of the process */
    struct fastcgi_request *request;
    const char *id;               /* borrowed: X-Request-Id */
    const char *path;             /* static: the route's; "" until it is known */
    char owner[LIVE_OWNER_BYTES]; /* whose it is; "" = nobody's, or not known yet */
    uint64_t arrived_ns;
    struct task task;        /* the thread's */
    struct pulse_task pulse; /* live_check's */
    void (*look)(const void *arg, struct live_look *out);
    const void *look_arg;
};

/* Puts it on the list, and takes it off; between these calls l->task is the thread's task. id is borrowed until then. */
void live_begin(struct live *l, struct fastcgi_request *r, const char *id, uint64_t arrived_ns);
void live_end(struct live *l);

/* Says which route it takes (static) and whose it is (copied, cut to fit). */
void live_name(struct live *l, const char *path, const char *owner);

/* Who looks is told by `look` how far it is; NULL: no longer, and it is not running when this returns. */
void live_watch(struct live *l, void (*look)(const void *arg, struct live_look *out), const void *arg);

/* Ends the request of that number as if its client had left (fastcgi_abandon); false: there is none. */
bool live_cancel(uint64_t number);

/* Calls each(arg, ..) for every request, in the order of arrival; returns how many there are. */
int live_each(void (*each)(void *arg, const struct live *l, const struct live_look *look), void *arg);

/* A request that computes for too long. */
struct live_report {
    uint64_t number;
    char id[REPLY_ID_MAX + 1], owner[LIVE_OWNER_BYTES];
    const char *path, *phase; /* static */
    uint64_t cpu_ms;          /* since its last progress */
    enum pulse_verdict verdict;
};

/* How many requests compute for too long (PULSE_LONG or worse), and how many of these do not end (PULSE_LOST). news: some of the requests
 * that have become either since the last look. */
enum { LIVE_MOST_NEWS = 8 };
struct live_pulse {
    int n_long, n_lost, n_news;
    struct live_report news[LIVE_MOST_NEWS];
};

/* Looks at all requests, about once a second, and stops each that is PULSE_LONG: task_check() of its thread returns ERR_DEADLINE. */
void live_check(uint64_t limit_ns, struct live_pulse *out);

#endif
