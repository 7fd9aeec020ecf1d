/* Does the scheduler get on with its work? A step that lasts longer than a number of seconds, and than twenty usual ones, is stuck: a
 * driver that hangs, a lock that is never given back. Time in which the process itself did not run (SIGSTOP, a debugger, a machine
 * that slept) does not count. Threads: one. */
#ifndef INFCGI_FCGI_PULSE_H
#define INFCGI_FCGI_PULSE_H

#include "engine/engine.h"

enum { PULSE_USUAL_STEPS = 20, PULSE_LATE_MS = 2000 /* between two looks: the process did not run */ };

struct pulse {
    uint64_t least_ms; /* no step is stuck before it; 0: none ever is */
    uint64_t last_ns;  /* of the last look; 0: there was none */
    uint64_t forgiven_ms,
        last_age_ms;   /* of the step underway: in which the process did not run; when it was last looked at */
    uint64_t limit_ms; /* of the step underway */
};

/* Looks at what the scheduler says of itself at now_ns, about once a second. Is the step underway stuck? */
bool pulse_is_stuck(struct pulse *p, const struct sched_stats *s, uint64_t now_ns);

/* Does the thread of a request compute for too long? CPU time counts from the task's last progress (task.h); a thread that waits uses
 * none. Beyond the limit the request should end; beyond PULSE_LOST_LIMITS of it, it does not end and the process has to. */
enum pulse_verdict { PULSE_FINE, PULSE_LONG, PULSE_LOST };
enum { PULSE_LOST_LIMITS = 3 };
struct pulse_task {
    unsigned n_notes;  /* of the last look */
    uint64_t begun_ns; /* CPU time of the task at the look that saw them first */
    uint64_t since_ns; /* CPU time since then */
    enum pulse_verdict verdict;
};

/* Looks at a task with n_notes notes (task.n_notes) after cpu_ns of CPU time, about once a second. limit_ns 0: none is too long. */
enum pulse_verdict pulse_of_task(struct pulse_task *p, unsigned n_notes, uint64_t cpu_ns, uint64_t limit_ns);

#endif
