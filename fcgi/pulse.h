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
    uint64_t forgiven_ms, last_age_ms; /* of the step underway: in which the process did not run; when it was last looked at */
    uint64_t limit_ms; /* of the step underway */
};

/* Looks at what the scheduler says of itself at now_ns, about once a second. Is the step underway stuck? */
bool pulse_is_stuck(struct pulse *p, const struct sched_stats *s, uint64_t now_ns);

#endif
