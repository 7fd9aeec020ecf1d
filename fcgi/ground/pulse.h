/* Detects a stuck scheduler. A step is stuck if it lasts longer than a limit in seconds and longer than 20 usual steps:
 * for example a hung driver or a lock that is never released. Time in which the process did not run (SIGSTOP, debugger,
 * suspended machine) does not count. Threads: one. */
#ifndef INFCGI_FCGI_PULSE_H
#define INFCGI_FCGI_PULSE_H

#include "engine/engine.h"

enum { PULSE_USUAL_STEPS = 20, PULSE_LATE_MS = 2000 /* a longer gap between two checks: the process did not run */ };

struct pulse {
    uint64_t least_ms; /* no step is stuck earlier; 0: detection is off */
    uint64_t last_ns;  /* time of the last check; 0: none yet */
    uint64_t forgiven_ms,
        last_age_ms;   /* of the current step: time in which the process did not run; its age at the last check */
    uint64_t limit_ms; /* of the current step */
};

/* Returns whether the current step is stuck, by the scheduler's statistics at now_ns. Call about once per second. */
bool pulse_is_stuck(struct pulse *p, const struct sched_stats *s, uint64_t now_ns);

/* Detects a request whose thread computes for too long. CPU time counts from the task's last progress (task.h); a
 * waiting thread uses none. Beyond the limit the request should end. Beyond PULSE_LOST_LIMITS times the limit the
 * request does not respond, so the process must exit. */
enum pulse_verdict { PULSE_FINE, PULSE_LONG, PULSE_LOST };
enum { PULSE_LOST_LIMITS = 3 };
struct pulse_task {
    unsigned n_notes;  /* at the last check */
    uint64_t begun_ns; /* CPU time of the task when n_notes was first seen */
    uint64_t since_ns; /* CPU time since then */
    enum pulse_verdict verdict;
};

/* Checks a task with n_notes notes (task.n_notes) after cpu_ns of CPU time. Call about once per second. limit_ns 0: no
 * limit. */
enum pulse_verdict pulse_of_task(struct pulse_task *p, unsigned n_notes, uint64_t cpu_ns, uint64_t limit_ns);

#endif
