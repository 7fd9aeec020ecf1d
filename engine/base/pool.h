/* Worker threads that run one function together. They are persistent and spin briefly before they sleep on a futex: a
 * decode step has a hundred barriers, and a wake-up takes longer than most of the work between two of them.
 *
 * Threads: one thread (the owner) calls pool_run; inside the function every worker can call pool_barrier. */
#ifndef INFCGI_BASE_POOL_H
#define INFCGI_BASE_POOL_H

#include "engine/base/err.h"

struct pool;

enum { POOL_MAX_THREADS = 256 };

/* Called on every thread of the pool with thread = 0 .. n_threads-1; the caller of pool_run is thread 0. */
typedef void (*pool_fn)(void *arg, int thread, int n_threads);

/* Starts n_threads - 1 workers (1 <= n_threads <= POOL_MAX_THREADS), with signals blocked as thread_start does. ERR_NOMEM, ERR_INTERNAL
 * (the system refused a thread), ERR_CONFIG (n_threads out of range). */
MUST_CHECK enum err pool_new(int n_threads, struct pool **out, struct err_info *info);
void pool_free(struct pool **pool);

/* pool_pin pins worker i to the i-th CPU that this process can run on; it does nothing if there are fewer CPUs than
 * threads. pool_pin_owner pins the owner, thread 0, and costs nothing once done. The threads that the owner starts
 * inherit its affinity, so only a thread that does nothing else should call it. */
void pool_pin(struct pool *pool);
void pool_pin_owner(struct pool *pool);

/* Runs fn(arg, ...) on all threads and returns when all have returned. Their writes are visible to the caller. */
void pool_run(struct pool *pool, pool_fn fn, void *arg);

/* Inside a pool_fn: waits until all threads of the pool have called it. Writes before it are visible after it. */
void pool_barrier(struct pool *pool);

int pool_n_threads(const struct pool *pool);

/* Splits n items over n_threads into nearly equal runs: the thread's share is [*from, *to). */
static inline void pool_share(int n, int thread, int n_threads, int *from, int *to)
{
    *from = (int)((long long)n * thread / n_threads);
    *to = (int)((long long)n * (thread + 1) / n_threads);
}

/* Returns the number of CPUs this process can run on (its affinity mask), 1 or more. */
int pool_cpu_count(void);

#endif
