#include "fcgi/ground/pulse.h"

#include "engine/base/compiler.h"

bool pulse_is_stuck(struct pulse *p, const struct sched_stats *s, uint64_t now_ns)
{
    uint64_t since_ms = p->last_ns != 0 && now_ns > p->last_ns ? (now_ns - p->last_ns) / 1000000u : 0;
    if (s->last_step_age_ms < p->last_age_ms + since_ms / 2) { /* another step has begun */
        p->forgiven_ms = 0;
    }
    if (since_ms > PULSE_LATE_MS && s->last_step_age_ms > p->forgiven_ms) {
        p->forgiven_ms = s->last_step_age_ms;
    }
    p->last_ns = now_ns;
    p->last_age_ms = s->last_step_age_ms;
    p->limit_ms = MAX_OF(p->least_ms, PULSE_USUAL_STEPS * s->usual_step_ms);
    return p->least_ms != 0 && s->last_step_age_ms > p->forgiven_ms + p->limit_ms;
}

enum pulse_verdict pulse_of_task(struct pulse_task *p, unsigned n_notes, uint64_t cpu_ns, uint64_t limit_ns)
{
    if (n_notes != p->n_notes) {
        p->n_notes = n_notes;
        p->begun_ns = cpu_ns;
    }
    p->since_ns = cpu_ns - p->begun_ns;
    p->verdict = PULSE_FINE;
    if (limit_ns != 0 && p->since_ns > limit_ns) {
        p->verdict = p->since_ns <= PULSE_LOST_LIMITS * limit_ns ? PULSE_LONG : PULSE_LOST;
    }
    return p->verdict;
}
