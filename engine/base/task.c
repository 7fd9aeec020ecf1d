#include "engine/base/task.h"

#include "engine/base/clock.h"

#include <pthread.h>

static _Thread_local struct task *current;

static uint64_t cpu_ns(const struct task *t)
{
    struct timespec at = {0};
    (void)clock_gettime(t->cpu, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

void task_enter(struct task *t, const char *phase)
{
    if (pthread_getcpuclockid(pthread_self(), &t->cpu) != 0) {
        t->cpu = CLOCK_THREAD_CPUTIME_ID; /* never happens for a running thread */
    }
    t->begun_cpu_ns = cpu_ns(t);
    atomic_store_explicit(&t->phase, phase, memory_order_relaxed);
    current = t;
}

void task_leave(void) { current = NULL; }

void task_note(const char *phase)
{
    struct task *t = current;
    if (t != NULL) {
        atomic_store_explicit(&t->phase, phase, memory_order_relaxed);
        atomic_fetch_add_explicit(&t->n_notes, 1, memory_order_relaxed);
    }
}

enum err task_check(void)
{
    const struct task *t = current;
    if (t == NULL) {
        return ERR_OK;
    }
    if (t->has_left != NULL && atomic_load_explicit(t->has_left, memory_order_relaxed)) {
        return ERR_CANCELLED;
    }
    if (atomic_load_explicit(&t->is_stopped, memory_order_relaxed)) {
        return ERR_DEADLINE;
    }
    return t->deadline_ns != 0 && clock_now_ns() > t->deadline_ns ? ERR_DEADLINE : ERR_OK;
}

void task_stop(struct task *t) { atomic_store_explicit(&t->is_stopped, true, memory_order_relaxed); }

uint64_t task_cpu_ns(const struct task *t)
{
    uint64_t now = cpu_ns(t);
    return now > t->begun_cpu_ns ? now - t->begun_cpu_ns : 0;
}
