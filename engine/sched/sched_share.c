/* Shares: the engine's time that each tenant had, and the order that follows. Time is counted in rows of batches,
 * prompt rows and generated ones alike, which do not depend on the machine's load.
 *
 * Start-time fair queueing [Goyal 1996] over keys: each key has a virtual time, the rows computed for it over its
 * weight. A slot goes to the key with the least, including what its running sequences are expected to need. So of two
 * keys that always have work each gets its share in the long run, whatever its sequences are like. A key that was idle
 * counts as if it had had as much as the least of the others, so it is next, but idle keys save nothing up.
 *
 * Classes: the highest priority with work goes first. Lower ones are owed a row for every SCHED_LOW_PART - 1 rows of
 * it. While they are owed rows, a free slot is theirs and their running sequences are left alone. When SCHED_LOW_OWED
 * rows are owed, they take a slot from a key of the highest class that has several. So lower classes together get an
 * eighth of the rows while they have work, shared only by weight. */
#include "engine/sched/sched_internal.h"

static double weight_of(const struct sched_tenant *t) { return t->weight; }

void sched_share_enter(struct sched *s, struct sched_seq *q)
{
    struct sched_tenant *t = q->group->tenant;
    if (t->n_work++ > 0) {
        return;
    }
    double least = s->shares.most_vtime;
    for (const struct sched_tenant *u = s->shares.active; u != NULL; u = u->next_active) {
        least = MIN_OF(least, u->vtime);
    }
    t->vtime = MAX_OF(t->vtime, least);
    t->next_active = s->shares.active;
    s->shares.active = t;
}

void sched_share_leave(struct sched *s, struct sched_seq *q)
{
    struct sched_tenant *t = q->group->tenant, **link = &s->shares.active;
    if (--t->n_work > 0) {
        return;
    }
    while (*link != t) {
        link = &(*link)->next_active;
    }
    *link = t->next_active;
}

void sched_share_expect(struct sched *s, struct sched_seq *q, int64_t n_rows)
{
    pthread_mutex_lock(&s->lock);
    double mean = s->shares.mean_tokens >= 0 ? s->shares.mean_tokens : SCHED_GUESS_TOKENS;
    pthread_mutex_unlock(&s->lock);
    q->turn.n_ahead = n_rows + MIN_OF((int64_t)mean, (int64_t)q->max_total - q->n_tokens);
    q->group->tenant->n_ahead += q->turn.n_ahead;
}

void sched_share_stop(struct sched_seq *q)
{
    q->group->tenant->n_ahead -= q->turn.n_ahead;
    q->turn.n_ahead = 0;
}

void sched_share_count(struct sched *s, struct sched_seq *q, int32_t n_rows)
{
    struct sched_tenant *t = q->group->tenant;
    int64_t expected = MIN_OF((int64_t)n_rows, q->turn.n_ahead);
    t->vtime += n_rows / weight_of(t);
    t->n_ahead -= expected;
    q->turn.n_ahead -= expected;
    s->shares.most_vtime = MAX_OF(s->shares.most_vtime, t->vtime);
    if (s->shares.has_lower) {
        s->shares.owed += t->priority == s->shares.top ? (double)n_rows / (SCHED_LOW_PART - 1) : -n_rows;
        s->shares.owed = MAX_OF(MIN_OF(s->shares.owed, SCHED_LOW_MOST), -SCHED_LOW_MOST);
    }
}

void sched_share_look(struct sched *s)
{
    s->shares.top = INT32_MIN;
    s->shares.has_lower = false;
    for (const struct sched_tenant *t = s->shares.active; t != NULL; t = t->next_active) {
        s->shares.top = MAX_OF(s->shares.top, t->priority);
    }
    for (const struct sched_tenant *t = s->shares.active; t != NULL; t = t->next_active) {
        s->shares.has_lower = s->shares.has_lower || t->priority < s->shares.top;
    }
    s->shares.owed = s->shares.has_lower ? s->shares.owed : 0;
}

static bool is_owed(const struct sched *s) { return s->shares.has_lower && s->shares.owed > 0; }

/* Returns t's current class: all lower classes that are owed rows count as one. */
static int class_of(const struct sched *s, const struct sched_tenant *t)
{
    return t->priority == s->shares.top || !is_owed(s) ? t->priority : s->shares.top + 1;
}

static double tag_of(const struct sched_tenant *t) { return t->vtime + (double)t->n_ahead / weight_of(t); }

int sched_share_compare(const struct sched *s, const struct sched_tenant *t, const struct sched_tenant *u)
{
    int a = class_of(s, t), b = class_of(s, u);
    double x = tag_of(t), y = tag_of(u);
    return a != b ? (a > b) - (a < b) : (x < y) - (x > y);
}

bool sched_share_may_take(const struct sched *s, const struct sched_tenant *t, int32_t place,
                          const struct sched_tenant *u)
{
    int a = class_of(s, t), b = class_of(s, u);
    if (a < b) { /* a lower class yields any slot; the highest, which owes others rows, not a key's only one */
        return t->priority < u->priority || (place > 0 && s->shares.owed >= SCHED_LOW_OWED);
    }
    /* Afterwards t must still have no less than u, by weight. */
    return a == b && place > 0 && (int64_t)(t->n_running - 1) * u->weight >= (int64_t)(u->n_running + 1) * t->weight;
}

int sched_share_compare_places(const struct sched_tenant *t, int32_t place, const struct sched_tenant *u, int32_t other)
{
    int64_t a = (int64_t)place * u->weight, b = (int64_t)other * t->weight;
    return a < b ? -1 : a > b;
}
