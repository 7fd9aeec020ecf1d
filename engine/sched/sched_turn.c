/* Decides whose turn it is. Slots of the batch go to the key that had the least of the engine's time (sched_share.c).
 * Among its requests, the one with the fewest slots is next; among equals, the one that has waited longest: round
 * robin. A request without competition has all slots. When others arrive, it hands over those beyond its fair share,
 * its newest sequences first. Nothing here changes a sequence's output, because a row's bits do not depend on its
 * batch.
 *
 * Running sequences are ordered by their rank within their key and then by age: the first of each key come first, and
 * within a key the first of each request. Pages and rows are assigned in this order. The oldest of all is always the
 * first: it never hands over its slot, so it always advances, and everything terminates. */
#include "engine/sched/sched_internal.h"

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* Does a come before b, neither of which runs? */
static bool is_earlier(const struct sched *s, const struct sched_seq *a, const struct sched_seq *b)
{
    const struct sched_group *g = a->group, *h = b->group;
    const struct sched_tenant *t = g->tenant, *u = h->tenant;
    if (t != u) {
        int order = sched_share_compare(s, t, u);
        return order != 0 ? order > 0 : t->turn < u->turn;
    }
    if (g != h) {
        return g->n_running != h->n_running ? g->n_running < h->n_running : g->turn < h->turn;
    }
    return false; /* the list is in order of age */
}

/* Does the waiting q wait for its reader? It gave up its slot because its ring was full. */
static bool waits_for_reader(struct sched_seq *q)
{
    if (q->reader.stalled_since != 0 && sched_ring_room(q) >= SCHED_RING / 2) { /* the most that a step can need */
        q->reader.stalled_since = 0;
    }
    return q->reader.stalled_since != 0;
}

struct sched_seq **sched_next_turn(struct sched *s)
{
    struct sched_seq **best = NULL;
    for (struct sched_seq **link = &s->waiting; *link != NULL; link = &(*link)->next) {
        if (!waits_for_reader(*link) && (best == NULL || is_earlier(s, *link, *best))) {
            best = link;
        }
    }
    return best;
}

void sched_take_turn(struct sched *s, struct sched_seq *q)
{
    q->turn.is_running = true;
    q->turn.of_group = q->group->turn;
    q->turn.of_tenant = q->group->tenant->turn;
    q->group->n_running++;
    q->group->tenant->n_running++;
    s->n_running++;
    s->turns.are_ranked = false;
    pthread_mutex_lock(&s->lock);
    q->group->turn = q->group->tenant->turn = ++s->tenants.n_turns;
    pthread_mutex_unlock(&s->lock);
}

void sched_leave_turn(struct sched *s, struct sched_seq *q)
{
    if (q->turn.is_running) {
        q->turn.is_running = false;
        q->group->n_running--;
        q->group->tenant->n_running--;
        s->n_running--;
        s->express.n -= q->turn.is_express;
        q->turn.is_express = false;
        s->turns.are_ranked = false;
        sched_share_stop(q);
    }
}

void sched_give_turn_back(struct sched *s, struct sched_seq *q)
{
    struct sched_group *g = q->group;
    sched_leave_turn(s, q);
    g->turn = MIN_OF(g->turn, q->turn.of_group);
    g->tenant->turn = MIN_OF(g->tenant->turn, q->turn.of_tenant);
}

static bool is_older(const struct sched_seq *a, const struct sched_seq *b) { return a->number < b->number; }
static bool is_less_deep(const struct sched_seq *a, const struct sched_seq *b) { return a->turn.level < b->turn.level; }
static bool is_in_front(const struct sched_seq *a, const struct sched_seq *b)
{
    int order = sched_share_compare_places(a->group->tenant, a->turn.place, b->group->tenant, b->turn.place);
    return order != 0 ? order < 0 : a->number < b->number;
}

/* Sorts by insertion, because lists are short and nearly sorted; stable. */
static void sort(struct sched_seq **list, int32_t n,
                 bool (*is_before)(const struct sched_seq *, const struct sched_seq *))
{
    for (int32_t i = 1; i < n; i++) {
        struct sched_seq *q = list[i];
        int32_t at = i;
        for (; at > 0 && is_before(q, list[at - 1]); at--) {
            list[at] = list[at - 1];
        }
        list[at] = q;
    }
}

/* Finds extras: running sequences of a request beyond the number that every running request has, and of a key beyond
 * what every key has by its weight. */
static void find_extras(struct sched *s, int32_t n)
{
    int32_t n_fair = INT32_MAX;
    const struct sched_tenant *least = NULL;
    for (int32_t i = 0; i < n; i++) {
        const struct sched_group *g = s->turns.ranked[i]->group;
        const struct sched_tenant *t = g->tenant;
        n_fair = MIN_OF(n_fair, g->n_running);
        least = least == NULL || sched_share_compare_places(t, t->n_running, least, least->n_running) < 0 ? t : least;
    }
    s->turns.has_extras = false;
    for (int32_t i = 0; i < n; i++) {
        struct sched_seq *q = s->turns.ranked[i];
        bool is_beyond = sched_share_compare_places(q->group->tenant, q->turn.place, least, least->n_running) >= 0;
        q->turn.is_extra = q->turn.level >= n_fair || is_beyond;
        s->turns.has_extras = s->turns.has_extras || q->turn.is_extra;
    }
}

/* Sorts the running sequences. */
static void rank(struct sched *s)
{
    int32_t n = 0;
    if (s->turns.are_ranked) {
        return;
    }
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        q->group->n_ranked = q->group->tenant->n_ranked = 0;
        s->turns.ranked[n++] = q;
    }
    sort(s->turns.ranked, n, is_older);
    for (int32_t i = 0; i < n; i++) {
        s->turns.ranked[i]->turn.level = s->turns.ranked[i]->group->n_ranked++;
    }
    sort(s->turns.ranked, n, is_less_deep);
    for (int32_t i = 0; i < n; i++) {
        s->turns.ranked[i]->turn.place = s->turns.ranked[i]->group->tenant->n_ranked++;
    }
    find_extras(s, n);
    sort(s->turns.ranked, n, is_in_front);
    struct sched_seq **link = &s->running;
    for (int32_t i = 0; i < n; i++) {
        *link = s->turns.ranked[i];
        link = &s->turns.ranked[i]->next;
    }
    *link = NULL;
    s->turns.are_ranked = true;
}

/* Should a sequence of g, rather than of h, make room? */
static bool has_more(const struct sched_group *g, const struct sched_group *h)
{
    const struct sched_tenant *t = g->tenant, *u = h->tenant;
    int more = sched_share_compare_places(t, t->n_running, u, u->n_running);
    return t->priority != u->priority ? t->priority < u->priority
                                      : more > 0 || (more == 0 && g->n_running >= h->n_running);
}

/* Chooses a sequence whose reader has stopped, of any key. Otherwise chooses among the keys, or the other requests of
 * q's key, the one with the most slots by weight, and takes its newest sequence. That one must still have no fewer
 * slots afterwards, or be of a class that makes room.
 *
 * Never chooses a sequence that got its slot back and has not done its quantum, which bounds repeated computation, nor
 * one that is being computed, nor the first of all. */
struct sched_seq *sched_whose_place(struct sched *s, const struct sched_seq *q)
{
    struct sched_seq *best = NULL;
    const struct sched_group *g = q->group;
    bool best_is_other = false;
    rank(s);
    for (struct sched_seq *v = s->running; v != NULL; v = v->next) {
        const struct sched_group *h = v->group;
        bool is_other = h->tenant != g->tenant;
        bool is_safe = v->rows.are_begun || v == s->running || v->n_computed < v->turn.n_safe;
        if (v->reader.stalled_since != 0 && !v->rows.are_begun) {
            return v;
        }
        bool may_go = !is_safe && (is_other ? sched_share_may_take(s, h->tenant, v->turn.place, g->tenant)
                                            : h->n_running - g->n_running >= 2 && v->turn.level > 0);
        if (!may_go || (best_is_other && !is_other)) {
            continue;
        }
        if (best == NULL || is_other != best_is_other || has_more(h, best->group)) {
            best = v;
            best_is_other = is_other;
        }
    }
    return best;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* Express steps: a short request does not wait behind the rows of others that keep the engine busy. The first prompt of
 * a key's only request, if it fits into a step, is computed without them. A fifth of the time can go to express steps,
 * so that the others always advance. The step after one takes fewer prompt rows, because the generating sequences have
 * waited. If the back end supports it, a prompt of at most half a step does not even wait for the step being computed:
 * that step is paused and continues afterwards. */
bool sched_may_go_alone(const struct sched *s, const struct sched_seq *q, int32_t n_unknown)
{
    const struct sched_tenant *t = q->group->tenant;
    bool is_prompt =
        q->n_tokens == q->n_prompt && !q->rows.are_begun && !(s->express.is_overtaking && q->terms.prompt_logprobs);
    double budget = (double)s->cfg.step_budget_ns,
           room = s->express.is_overtaking ? budget / 2 - (double)s->express.overtaken_ns : budget;
    bool fits = MIN_OF(q->n_tokens - q->n_computed, n_unknown) * s->speeds.ns_per_row <= room;
    return is_prompt && fits && t->n_work == 1 && t->priority == s->shares.top && s->shares.active->next_active != NULL;
}

/* More rows make a step longer for all. Steps without extras give the others twice the time that extras take, so extras
 * slow them by at most half. If reading weights takes longer than computing, extras cost almost nothing and nearly
 * always run. */
void sched_begin_step(struct sched *s)
{
    rank(s);
    if (!s->turns.has_extras) {
        s->turns.debt_ns = s->turns.fair_ns = 0;
        s->turns.n_full = 0;
    }
    s->turns.leaves_extras = s->turns.has_extras && (s->turns.debt_ns > 0 || s->turns.n_full >= SCHED_FAIR_EVERY);
    s->express.is_now = false;
    for (const struct sched_seq *q = s->running; q != NULL && s->express.left_ns >= 0; q = q->next) {
        s->express.is_now = s->express.is_now || sched_may_go_alone(s, q, q->pages.n_unknown);
    }
}

bool sched_is_left_out(const struct sched *s, const struct sched_seq *q)
{
    return s->express.is_now ? !sched_may_go_alone(s, q, q->pages.n_unknown)
                             : s->turns.leaves_extras && q->turn.is_extra;
}

void sched_count_turn(struct sched *s, uint64_t ns, bool only_decodes)
{
    double took = (double)ns, most = (double)s->cfg.step_budget_ns;
    s->express.last_ns = s->express.is_now ? took : 0;
    s->express.left_ns += s->express.is_now ? -took : took / (SCHED_EXPRESS_PART - 1);
    s->express.left_ns = MIN_OF(s->express.left_ns, most);
    if (s->express.is_now) {
        return;
    }
    if (s->turns.leaves_extras) {
        s->turns.n_full = 0;
        s->turns.debt_ns -= took;
        if (only_decodes) {
            s->turns.fair_ns = s->turns.fair_ns == 0 ? took : 0.5 * s->turns.fair_ns + 0.5 * took;
        }
    } else if (s->turns.has_extras) {
        s->turns.n_full++;
        s->turns.debt_ns += 2 * (took - s->turns.fair_ns);
    }
    s->turns.debt_ns = MAX_OF(MIN_OF(s->turns.debt_ns, 10 * most), -most);
}

/* Estimates the tokens q will still generate, from others and from itself: a sequence with many tokens is expected to
 * generate as many again. */
static double tokens_left(const struct sched_seq *q, double mean)
{
    double made = q->n_tokens - q->n_prompt, most = q->max_total - q->n_tokens;
    return mean < 0 ? most : MIN_OF(most, MAX_OF(mean, made));
}

double sched_estimate_ns(struct sched *s)
{
    double rows = 0, tokens = 0, made = 0, mean = s->shares.mean_tokens;
    for (const struct sched_seq *q = s->running; q != NULL; q = q->next) {
        made += (double)(q->n_tokens - q->n_prompt) / s->n_running;
    }
    mean = mean >= 0 ? MAX_OF(mean, made) : mean;
    for (const struct sched_seq *q = s->running; q != NULL; q = q->next) {
        rows += q->n_tokens - q->n_computed;
        tokens += tokens_left(q, mean);
    }
    const struct sched_seq *const lists[] = {s->waiting, s->queue.first};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        for (const struct sched_seq *q = lists[i]; q != NULL; q = q->next) {
            rows += q->n_tokens;
            tokens += tokens_left(q, mean);
        }
    }
    return rows * s->speeds.ns_per_row + tokens * s->speeds.ns_per_token;
}
