/* Counts waiting: each turn of the loop adds the time since the last one to every sequence's current reason. All
 * sequences that wait for a slot share the reason of the next one, because they do not overtake it. For running
 * sequences, a step records why it leaves one out. */
#include "engine/sched/sched_internal.h"

#include <inttypes.h>
#include <stdio.h>

const char *sched_wait_name(enum sched_wait w)
{
    static const char *const names[SCHED_WAIT_COUNT] = {
#define NAME(name, text) [name] = (text),
        SCHED_WAIT_LIST(NAME)
#undef NAME
    };
    return names[w];
}

static void count(struct sched_seq *q, enum sched_wait why, uint64_t ns, struct sched_waits *sum)
{
    if (why != SCHED_WAIT_COUNT) {
        q->waits.ns[why] += ns;
        sum->ns[why] += ns;
    }
}

void sched_count_waits(struct sched *s, struct sched_seq *fresh)
{
    struct sched_waits sum = {0};
    uint64_t now = clock_now_ns(), ns = now - s->counted_ns;
    s->counted_ns = now;
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        count(q, q->wait, ns, &sum);
    }
    for (struct sched_seq *q = s->waiting; q != fresh; q = q->next) {
        count(q, q->reader.stalled_since != 0 ? SCHED_WAIT_READER : s->queue_wait, ns, &sum);
    }
    for (struct sched_seq *q = fresh; q != NULL; q = q->next) {
        count(q, s->queue_wait, now - MIN_OF(now, q->submit_ns), &sum);
    }
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        s->stats.waits.ns[i] += sum.ns[i];
    }
    pthread_mutex_unlock(&s->lock);
}

/* Call it under sched.lock. */
void sched_note_waiting(struct sched *s)
{
    uint64_t *n = s->stats.n_waiting_for;
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        n[i] = 0;
    }
    for (const struct sched_seq *q = s->running; q != NULL; q = q->next) {
        if (q->wait != SCHED_WAIT_COUNT) {
            n[q->wait]++;
        }
    }
    uint64_t n_stalled = 0;
    for (const struct sched_seq *q = s->waiting; q != NULL; q = q->next) {
        n_stalled += q->reader.stalled_since != 0;
    }
    n[SCHED_WAIT_READER] += n_stalled;
    n[s->queue_wait] += (uint64_t)s->queue.n - n_stalled;
}

void sched_waits_raise(struct sched_waits *longest, const struct sched_waits *w)
{
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        longest->ns[i] = MAX_OF(longest->ns[i], w->ns[i]);
    }
}

const char *sched_waits_text(const struct sched_waits *w, char out[SCHED_WAITS_BYTES])
{
    size_t n = 0;
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        uint64_t ms = w->ns[i] / 1000000u;
        n += ms == 0 ? 0
                     : (size_t)snprintf(out + n, SCHED_WAITS_BYTES - n, "%s%s:%" PRIu64, n > 0 ? "," : "",
                                        sched_wait_name((enum sched_wait)i), ms);
    }
    return n > 0 ? out : "none";
}
