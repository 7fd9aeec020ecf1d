/* The task of a thread for one client: its progress, and whether it should stop. Long computations call task_check()
 * regularly. Watchers in other threads see the progress and the CPU time, and can stop the task. A thread without a
 * task is never stopped.
 *
 * Threads: the task's thread calls task_enter, task_note, task_check and task_leave. Any thread can call the other
 * functions between task_enter and task_leave. */
#ifndef INFCGI_BASE_TASK_H
#define INFCGI_BASE_TASK_H

#include "engine/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct task {
    const atomic_bool *has_left; /* OPTIONAL, borrowed: becomes true when the client has gone */
    uint64_t deadline_ns;        /* on clock_now_ns; 0: none */
    atomic_bool is_stopped;      /* set by task_stop */
    _Atomic(const char *) phase; /* static: what the thread does now */
    atomic_uint n_notes;         /* grows with each task_note */
    uint64_t begun_cpu_ns;       /* the thread's CPU time at task_enter */
    clockid_t cpu;               /* of the thread */
};

/* Makes *t, zeroed or filled by the caller, the task of the calling thread, in this phase (static). A thread has one
 * task or none. */
void task_enter(struct task *t, const char *phase);
void task_leave(void);

/* Reports progress of the calling thread's task, in this phase (static). */
void task_note(const char *phase);

/* Returns ERR_CANCELLED if the client has gone, ERR_DEADLINE if the deadline has passed or a watcher stopped the task.
 * Cheap enough to call every microsecond. */
MUST_CHECK enum err task_check(void);

/* Returns whether a work counter at `before` that moves by `work` steps calls for a task_check(): one per
 * TASK_STEPS. */
enum { TASK_STEPS = 1 << 14 };
static inline bool task_is_due(uint64_t before, uint64_t work)
{
    return before / TASK_STEPS != (before + work) / TASK_STEPS;
}

/* Stops a task that computes for too long: from now on its task_check() returns ERR_DEADLINE. */
void task_stop(struct task *t);

/* Returns the CPU time of the task's thread since task_enter. */
uint64_t task_cpu_ns(const struct task *t);

#endif
