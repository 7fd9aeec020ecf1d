/* The worker pool. The start of a run and the barriers inside it are the same: a generation counter that the last
 * thread to arrive increments. Waiting threads spin on it briefly and then sleep in futex(FUTEX_WAIT). Spinning only
 * helps while every thread has a CPU; with more threads than CPUs the pool sleeps immediately. */
#define SPIN_ROUNDS 4000 /* about 20 us of `pause` on a 3 GHz core: longer than any gap inside a step */

#include "engine/base/pool.h"

#include "engine/base/mem.h"
#include "engine/base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct gate {
    /* release by the last thread to arrive, acquire by waiting ones */
    _Alignas(CACHE_LINE_BYTES) atomic_uint generation;
    atomic_uint sleepers; /* threads in futex; seq_cst with generation */
    _Alignas(CACHE_LINE_BYTES) atomic_uint arrived;
};

struct pool {
    struct gate start;   /* incremented by pool_run */
    struct gate barrier; /* incremented by the last thread to arrive */
    pool_fn fn;          /* written before start is incremented, read after */
    void *arg;
    bool stop;
    int n_threads;
    int spin_rounds;
    int n_started;
    bool is_pinned;
    cpu_set_t cpus; /* that the process can run on, if pinned */
    struct worker {
        pthread_t thread;
        struct pool *pool;
        int id;
    } workers[POOL_MAX_THREADS];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static long futex(atomic_uint *word, int op, unsigned value)
{
    return syscall(SYS_futex, (void *)word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Waits until the gate's generation differs from `seen`. */
static void gate_wait(struct gate *g, unsigned seen, int spin_rounds)
{
    for (int i = 0; i < spin_rounds; i++) {
        if (atomic_load_explicit(&g->generation, memory_order_acquire) != seen) {
            return;
        }
        relax();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->generation) == seen) {
        futex(&g->generation, FUTEX_WAIT, seen);
    }
    atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->generation, 1);
    if (atomic_load(&g->sleepers) != 0) {
        futex(&g->generation, FUTEX_WAKE, POOL_MAX_THREADS);
    }
}

void pool_barrier(struct pool *p)
{
    if (p->n_threads == 1) {
        return;
    }
    struct gate *g = &p->barrier;
    /* cannot change before this thread arrives */
    unsigned seen = atomic_load_explicit(&g->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&g->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)p->n_threads) {
        atomic_store_explicit(&g->arrived, 0, memory_order_relaxed);
        gate_open(g);
    } else {
        gate_wait(g, seen, p->spin_rounds);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        gate_wait(&p->start, seen, p->spin_rounds);
        seen++;
        if (p->stop) {
            return NULL;
        }
        p->fn(p->arg, w->id, p->n_threads);
        pool_barrier(p);
    }
}

int pool_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n;
}

/* Pins a thread to the i-th CPU of the pool's set. */
static void pin(const struct pool *p, pthread_t thread, int i)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &p->cpus) && i-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)pthread_setaffinity_np(thread, sizeof one, &one); /* if the CPU has gone, the thread runs anywhere */
            return;
        }
    }
}

void pool_pin(struct pool *p)
{
    if (sched_getaffinity(0, sizeof p->cpus, &p->cpus) != 0 || CPU_COUNT(&p->cpus) < p->n_threads) {
        return;
    }
    p->is_pinned = true;
    for (int i = 1; i < p->n_threads; i++) {
        pin(p, p->workers[i].thread, i);
    }
}

void pool_pin_owner(struct pool *p)
{
    static _Thread_local const struct pool *pinned_for;
    if (p->is_pinned && pinned_for != p) {
        pinned_for = p;
        pin(p, pthread_self(), 0);
    }
}

enum err pool_new(int n_threads, struct pool **out, struct err_info *info)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS) {
        return err_set(info, ERR_CONFIG, "threads", "expected 1 to %d threads, found %d", POOL_MAX_THREADS, n_threads);
    }
    struct pool *p = mem_map(sizeof *p, MEM_GENERAL);
    TRY_MEM_FOR(p != NULL, info, "out of memory for the worker pool");
    p->n_threads = n_threads;
    p->n_started = 1;
    p->spin_rounds = n_threads <= pool_cpu_count() ? SPIN_ROUNDS : 0;
    int rc = 0;
    for (int i = 1; i < n_threads && rc == 0; i++) {
        p->workers[i] = (struct worker){.pool = p, .id = i};
        rc = thread_start(&p->workers[i].thread, "worker", worker_main, &p->workers[i]);
        p->n_started += rc == 0;
    }
    if (rc != 0) {
        pool_free(&p);
        return err_set(info, ERR_INTERNAL, "threads", "cannot start %d threads: %s", n_threads, strerror(rc));
    }
    *out = p;
    return ERR_OK;
}

void pool_free(struct pool **pool)
{
    struct pool *p = *pool;
    if (p == NULL) {
        return;
    }
    p->stop = true;
    gate_open(&p->start);
    for (int i = 1; i < p->n_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    mem_unmap(p, sizeof *p, MEM_GENERAL);
    *pool = NULL;
}

void pool_run(struct pool *p, pool_fn fn, void *arg)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    gate_open(&p->start);
    fn(arg, 0, p->n_threads);
    pool_barrier(p);
}

int pool_n_threads(const struct pool *p) { return p->n_threads; }
