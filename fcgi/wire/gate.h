/* The gate before work that is done for a request outside the engine: parsing its body, rendering, tokenizing, building a grammar.
 * As many requests as there are CPUs are inside; others wait. A free place goes to the client that used the least time inside
 * for its weight, and to that client's oldest request. Inside, a thread's priority is lower than the engine's (background.h).
 *
 * Threads: a ticket belongs to the thread of its request; all may be called at once. */
#ifndef INFCGI_FCGI_GATE_H
#define INFCGI_FCGI_GATE_H

#include "engine/base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct fastcgi_request;
struct gate_client;

/* A request's place. Zero-initialise; fields are private. */
struct gate_ticket {
    struct gate_ticket *next; /* of those that wait */
    struct gate_client *client;
    pthread_cond_t wake;
    uint64_t since_ns;       /* inside */
    bool is_inside, is_over; /* is_over: its client has left */
};

/* Places; 0: the CPUs that the process may run on, as without a call. Those inside stay. */
void gate_set_places(int n);

/* Waits for a place. key, weight: of the client (struct sched_share). deadline_ns: clock_now_ns, 0 = none.
 * ERR_CANCELLED: the client has left; ERR_DEADLINE; ERR_NOMEM. */
MUST_CHECK enum err gate_enter(struct gate_ticket *t, uint64_t key, int32_t weight, struct fastcgi_request *r,
                               uint64_t deadline_ns, struct err_info *info);

/* Leaves, if it is inside; the thread has its usual priority again before it takes the gate's lock. Must be called before the thread
 * waits for anything: the engine, or a reader. t OPTIONAL. */
void gate_leave(struct gate_ticket *t);

/* Requests inside, and those that wait. */
void gate_count(int *n_inside, int *n_waiting);

#endif
