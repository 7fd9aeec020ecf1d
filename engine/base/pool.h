/* Worker threads that run one function together: persistent, with a short spin before they sleep on a futex, because a
 * decode step crosses a hundred barriers and a wake-up costs more than most steps between them.
 *
 * Threads: one thread (the owner) calls pool_run; inside the function every worker may call pool_barrier. */
#ifndef INFCGI_BASE_POOL_H
#define INFCGI_BASE_POOL_H

#include "engine/base/err.h"

struct pool;

enum { POOL_MAX_THREADS = 256 };

/* Called on every thread of the pool with thread = 0 .. n_threads-1; the caller of pool_run is thread 0. */
typedef void (*pool_fn)(void *arg, int thread, int n_threads);

/* Starts n_threads - 1 workers (1 <= n_threads <= POOL_MAX_THREADS). All signals are blocked in them.
 * ERR_NOMEM, ERR_INTERNAL (thread creation refused), ERR_CONFIG (n_threads out of range). */
MUST_CHECK enum err pool_new(int n_threads, struct pool **out, struct err_info *info);
void pool_free(struct pool **pool);

/* Keeps every worker on a CPU of its own: worker i on the i-th CPU that this process may run on. Nothing happens when
 * there are fewer CPUs than threads. The owner, thread 0, joins them by pool_pin_owner, which costs nothing once done:
 * its affinity is inherited by the threads it starts, so only a thread that does nothing else should call it. */
void pool_pin(struct pool *pool);
void pool_pin_owner(struct pool *pool);

/* Runs fn(arg, ...) on all threads; returns when all have returned. What each wrote is visible to the caller. */
void pool_run(struct pool *pool, pool_fn fn, void *arg);

/* Inside a pool_fn: waits until all threads of the pool have called it. What was written before is visible after. */
void pool_barrier(struct pool *pool);

int pool_n_threads(const struct pool *pool);

/* Splits n items over n_threads in nearly equal runs: thread's share is [*from, *to). */
static inline void pool_share(int n, int thread, int n_threads, int *from, int *to)
{
    *from = (int)((long long)n * thread / n_threads);
    *to = (int)((long long)n * (thread + 1) / n_threads);
}

/* CPUs this process may run on (its affinity mask), at least 1. */
int pool_cpu_count(void);

#endif
