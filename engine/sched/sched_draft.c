/* Drafts in a step: which sequences can draft, how far, and which tokens: first those that a grammar forces, then those
 * that followed the same text before. Drafts only use what is spare: rows that no prompt needs, rows of logits, and
 * pages while every running sequence could still get one. */
#include "engine/sched/sched_internal.h"

_Static_assert((int)DRAFT_MAX < (int)KV_PAGE_TOKENS, "a draft needs one page more at most");

/* Returns how many tokens q, which has a recurrent state, could draft: no more than its state can be advanced by, and
 * so that it does not pass the next page boundary, where its state is kept. */
static int32_t room_of_state(const struct sched *s, const struct sched_seq *q)
{
    int32_t to_boundary = KV_PAGE_TOKENS - 1 - q->n_tokens % KV_PAGE_TOKENS;
    return q->terms.leaves_pages ? MIN_OF(s->cfg.draft_max, to_boundary) : s->cfg.draft_max;
}

/* Not beyond its end, nor more than its reader and its pages have room for, including the token sampled after the last
 * one. */
int32_t sched_draft_room(struct sched *s, struct sched_seq *q)
{
    bool may_grow = kv_cache_n_available(s->kv) > s->n_running;
    int32_t positions = (q->pages.n + may_grow) * KV_PAGE_TOKENS;
    if (s->cfg.n_windows != 0 && kv_cache_n_windows(s->kv) - kv_cache_n_windows_held(s->kv) <= s->n_running) {
        positions = MIN_OF(positions, q->windows.n * KV_PAGE_TOKENS);
    }
    int32_t n = MIN_OF(q->max_total - 1, positions) - q->n_tokens;
    n = s->cfg.n_states != 0 ? MIN_OF(n, room_of_state(s, q)) : n;
    return MAX_OF(MIN_OF(n, (int32_t)sched_ring_room(q) - 1), 0);
}

/* Returns how many of the guessed tokens the sequence's grammar accepts. */
static int32_t count_allowed(struct sched_seq *q)
{
    int32_t n = 0;
    bool taken = true;
    while (n < q->rows.n_draft && taken) {
        enum err err = grammar_matcher_accept(q->matcher, q->tokens[q->n_tokens + n], &taken);
        taken = taken && err == ERR_OK; /* the error surfaces when the token is sampled */
        n += taken;
    }
    grammar_matcher_rollback(q->matcher, n);
    return n;
}

/* Appends n guessed tokens to those of q. A guess can continue into tokens just appended, as in repetitive text.
 * Drafting stops at an end token. */
static void write_draft(struct sched *s, struct sched_seq *q, int32_t n)
{
    if (n > 0 && !sched_grow(s, q, q->n_tokens + n)) {
        return;
    }
    for (int32_t i = 0; i < n && !sched_is_end(q, draft_token(&q->draft, q->tokens, i)); i++) {
        q->tokens[q->n_tokens + i] = draft_token(&q->draft, q->tokens, i);
        q->rows.sources[q->rows.n_draft++] = (uint8_t)draft_source_of(&q->draft, i);
    }
    q->rows.n_draft = q->matcher != NULL ? count_allowed(q) : q->rows.n_draft;
}

/* Finds the tokens that the sequence's grammar forces, unless some are left from before. */
static void look_forced(struct sched_seq *q)
{
    struct draft *d = &q->draft;
    if (q->matcher != NULL && draft_n_forced(d) == 0) {
        d->i_forced = 0;
        /* The error surfaces when the token is sampled. */
        (void)!grammar_matcher_forced(q->matcher, d->forced, DRAFT_MAX, &d->n_forced);
    }
}

void sched_draft_look(struct sched_seq *q)
{
    look_forced(q);
    draft_look(&q->draft, q->tokens, q->n_tokens);
}

/* Makes q's offer; tokens that are not forced are included if may_look. */
static struct draft_offer make_offer(struct sched *s, struct sched_seq *q, bool may_look)
{
    struct draft *d = &q->draft;
    struct draft_offer o = {.draft = d};
    int32_t n_forced = draft_n_forced(d);
    if (may_look) {
        draft_look(d, q->tokens, q->n_tokens);
    }
    if (n_forced > 0 || may_look) {
        int32_t n_first = may_look ? MAX_OF(n_forced, MIN_OF(draft_n_first(d), s->cfg.draft_max)) : n_forced;
        bool goes_on = may_look && draft_agrees(d, q->tokens, q->n_tokens);
        o.n_max = MIN_OF(sched_draft_room(s, q), goes_on ? MAX_OF(s->cfg.draft_max, n_first) : n_first);
    }
    return o;
}

/* Returns the rows of a step of n sequences, in which a single one can have `most` drafts. With many sequences each can
 * have one draft, or a few more in exchange for others; a sequence without any waits at most about twice as long per
 * token. */
static int32_t max_draft_rows(struct sched *s, int32_t n, int32_t most)
{
    int32_t max_rows = MIN_OF(MAX_OF(2 * n, most + 1), MIN_OF((int32_t)DRAFT_MAX + 1, s->cfg.max_rows));
    return MIN_OF(max_rows, s->cfg.max_logits - (s->n_running - n));
}

void sched_draft_all(struct sched *s, struct sched_seq **seqs, int32_t n)
{
    if (n == 0 || s->cfg.draft_max == 0) {
        return;
    }
    bool has_forced = false;
    for (int32_t i = 0; i < n; i++) {
        look_forced(seqs[i]);
        has_forced = has_forced || draft_n_forced(&seqs[i]->draft) > 0;
    }
    bool may_look = n < max_draft_rows(s, n, s->cfg.draft_max);
    int32_t max_rows = max_draft_rows(s, n, has_forced ? (int32_t)DRAFT_MAX : s->cfg.draft_max);
    if (n >= max_rows) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        s->offers[i] = make_offer(s, seqs[i], may_look);
    }
    draft_plan(&s->speeds.costs, s->offers, n, max_rows, n > 1 ? s->cfg.step_budget_ns : 0);
    for (int32_t i = 0; i < n; i++) {
        write_draft(s, seqs[i], s->offers[i].n);
    }
}
