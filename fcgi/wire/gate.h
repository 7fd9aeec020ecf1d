/* Limits request work outside the engine: parsing bodies, rendering, tokenizing, building grammars. As many requests
 * run inside the gate as there are CPUs; others wait. A free slot goes to the client that has used the least time
 * inside relative to its weight, and to that client's oldest request. Inside, a thread's priority is lower than the
 * engine's (background.h).
 *
 * Threads: a ticket belongs to the thread of its request; all functions can run at the same time. */
#ifndef INFCGI_FCGI_GATE_H
#define INFCGI_FCGI_GATE_H

#include "engine/base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct fastcgi_request;
struct gate_client;

/* A request's slot. Zero-initialise; fields are private. */
struct gate_ticket {
    struct gate_ticket *next; /* in the waiting list */
    struct gate_client *client;
    pthread_cond_t wake;
    uint64_t since_ns;       /* time of entry */
    bool is_inside, is_over; /* is_over: the client has left */
};

/* Sets the number of slots. 0: the CPUs that the process can run on, which is also the initial value. Requests inside
 * stay. */
void gate_set_places(int n);

/* Waits for a slot. key, weight: of the client (struct sched_share). deadline_ns: by clock_now_ns, 0 = none.
 * ERR_CANCELLED: the client has left; ERR_DEADLINE; ERR_NOMEM. */
MUST_CHECK enum err gate_enter(struct gate_ticket *t, uint64_t key, int32_t weight, struct fastcgi_request *r,
                               uint64_t deadline_ns, struct err_info *info);

/* Leaves the gate if the ticket is inside. The thread regains its usual priority before it takes the gate's lock. Must
 * be called before the thread waits for anything: the engine, or a client that reads. t OPTIONAL. */
void gate_leave(struct gate_ticket *t);

/* Returns the numbers of requests inside and waiting. */
void gate_count(int *n_inside, int *n_waiting);

#endif
