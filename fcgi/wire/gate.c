/* Start-time fair queueing, as in the scheduler (engine/sched/sched_share.c). Each client has a virtual time: the time
 * of its requests inside, divided by its weight. A client that returns from idleness starts with the minimum of the
 * others. Few clients wait, so lists are searched linearly. */
#include "fcgi/wire/gate.h"

#include "engine/base/background.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/base/thread.h"
#include "fcgi/wire/fastcgi.h"

#include <errno.h>
#include <time.h>

/* A client with requests here. */
struct gate_client {
    struct gate_client *next;
    uint64_t key;
    double weight, vtime; /* ns over the weight */
    int n_tickets, n_inside;
};

static struct {
    pthread_mutex_t lock;
    struct gate_client *clients;
    struct gate_ticket *waiting, **waiting_end; /* in order of arrival */
    double vtime;                               /* virtual time at which the last client began */
    int n_places, n_inside, n_waiting;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .waiting_end = &gate.waiting};

/* --- under the lock ----------------------------------------------------------------------------------------------- */

static int places(void)
{
    gate.n_places = gate.n_places != 0 ? gate.n_places : pool_cpu_count();
    return gate.n_places;
}

static struct gate_client *ref_client(uint64_t key, int32_t weight)
{
    struct gate_client *c = gate.clients;
    double least = -1;
    for (; c != NULL && c->key != key; c = c->next) {
        least = least < 0 || c->vtime < least ? c->vtime : least;
    }
    if (c == NULL) {
        c = mem_zalloc(sizeof *c, MEM_GENERAL);
        if (c == NULL) {
            return NULL;
        }
        gate.vtime = least >= 0 ? least : gate.vtime;
        *c = (struct gate_client){.next = gate.clients, .key = key, .vtime = gate.vtime};
        gate.clients = c;
    }
    c->weight = MAX_OF(weight, 1);
    c->n_tickets++;
    return c;
}

static void unref_client(struct gate_client *c)
{
    struct gate_client **link = &gate.clients;
    if (--c->n_tickets > 0) {
        return;
    }
    while (*link != c) {
        link = &(*link)->next;
    }
    *link = c->next;
    mem_free(c);
}

/* Returns whether a enters before b, which arrived earlier. Of clients with equal time the one with fewer requests
 * inside is first. */
static bool goes_before(const struct gate_client *a, const struct gate_client *b)
{
    return a->vtime != b->vtime ? a->vtime < b->vtime : a->n_inside < b->n_inside;
}

static void go_in(struct gate_ticket *t, uint64_t now_ns)
{
    t->is_inside = true;
    t->since_ns = now_ns;
    t->client->n_inside++;
    gate.n_inside++;
}

static void stop_waiting(struct gate_ticket *t)
{
    struct gate_ticket **link = &gate.waiting;
    while (*link != t) {
        link = &(*link)->next;
    }
    *link = t->next;
    gate.waiting_end = *link == NULL ? link : gate.waiting_end;
    gate.n_waiting--;
}

/* Admits requests while slots are free. */
static void let_in(void)
{
    uint64_t now = clock_now_ns();
    while (gate.n_inside < places() && gate.waiting != NULL) {
        struct gate_ticket *best = gate.waiting;
        for (struct gate_ticket *t = best->next; t != NULL; t = t->next) {
            best = goes_before(t->client, best->client) ? t : best;
        }
        stop_waiting(best);
        go_in(best, now);
        pthread_cond_signal(&best->wake);
    }
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* Runs in the poller's thread or in the request's own. */
static void on_gone(void *arg)
{
    struct gate_ticket *t = arg;
    pthread_mutex_lock(&gate.lock);
    t->is_over = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&gate.lock);
}

/* Waits until t is admitted, its client leaves, or the deadline passes; t then no longer waits. */
static enum err wait_inside(struct gate_ticket *t, uint64_t deadline_ns)
{
    struct timespec at = thread_until(deadline_ns);
    bool is_late = false;
    pthread_mutex_lock(&gate.lock);
    while (!t->is_inside && !t->is_over && !is_late) {
        if (deadline_ns == 0) {
            pthread_cond_wait(&t->wake, &gate.lock);
        } else {
            is_late = pthread_cond_timedwait(&t->wake, &gate.lock, &at) == ETIMEDOUT;
        }
    }
    enum err err = ERR_OK;
    if (!t->is_inside) {
        err = t->is_over ? ERR_CANCELLED : ERR_DEADLINE;
        stop_waiting(t);
        unref_client(t->client);
    }
    pthread_mutex_unlock(&gate.lock);
    return err;
}

/* --- what others call --------------------------------------------------------------------------------------------- */

void gate_set_places(int n)
{
    pthread_mutex_lock(&gate.lock);
    gate.n_places = n;
    let_in();
    pthread_mutex_unlock(&gate.lock);
}

enum err gate_enter(struct gate_ticket *t, uint64_t key, int32_t weight, struct fastcgi_request *r,
                    uint64_t deadline_ns, struct err_info *info)
{
    pthread_mutex_lock(&gate.lock);
    t->client = ref_client(key, weight);
    bool has_place = t->client != NULL && gate.n_inside < places(); /* no request waits then */
    if (has_place) {
        go_in(t, clock_now_ns());
    } else if (t->client != NULL) {
        thread_cond_init(&t->wake);
        t->next = NULL;
        *gate.waiting_end = t;
        gate.waiting_end = &t->next;
        gate.n_waiting++;
    }
    pthread_mutex_unlock(&gate.lock);
    if (t->client == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the request");
    }
    enum err err = ERR_OK;
    if (!has_place) {
        fastcgi_watch(r, on_gone, t);
        err = wait_inside(t, deadline_ns);
        fastcgi_watch(r, NULL, NULL);
        pthread_cond_destroy(&t->wake);
    }
    if (err == ERR_OK) {
        background_begin();
    }
    return err;
}

void gate_leave(struct gate_ticket *t)
{
    if (t == NULL || !t->is_inside) {
        return;
    }
    background_end(); /* first, because at low priority the thread could hold the lock for long */
    pthread_mutex_lock(&gate.lock);
    t->is_inside = false;
    t->client->vtime += (double)(clock_now_ns() - t->since_ns) / t->client->weight;
    t->client->n_inside--;
    unref_client(t->client);
    gate.n_inside--;
    let_in();
    pthread_mutex_unlock(&gate.lock);
}

void gate_count(int *n_inside, int *n_waiting)
{
    pthread_mutex_lock(&gate.lock);
    *n_inside = gate.n_inside;
    *n_waiting = gate.n_waiting;
    pthread_mutex_unlock(&gate.lock);
}
