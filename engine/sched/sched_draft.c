/* Drafts in a step: which sequences may guess ahead, how far, and with which tokens. They take only what nobody else
 * wants: rows of a step that no prompt needs, rows of logits, and pages while every running sequence could have one. */
#include "engine/sched/sched_internal.h"

_Static_assert((int)DRAFT_MAX < (int)KV_PAGE_TOKENS, "a draft needs one page more at most");

/* Tokens q could have drafted: not beyond its end, nor more than its reader and its pages have room for. The token
 * sampled behind the last one needs room too. */
static int32_t draft_room(struct sched *s, struct sched_seq *q)
{
    bool may_grow = kv_cache_n_available(s->kv) > s->n_running;
    int32_t positions = (q->n_pages + may_grow) * KV_PAGE_TOKENS;
    int32_t n = MIN_OF(q->max_total - 1, positions) - q->n_tokens;
    return MAX_OF(MIN_OF(n, (int32_t)sched_ring_room(q) - 1), 0);
}

/* How many of the guessed tokens the sequence's grammar takes. */
static int32_t count_allowed(struct sched_seq *q)
{
    int32_t n = 0;
    bool taken = true;
    while (n < q->n_draft && taken) {
        enum err err = grammar_matcher_accept(q->matcher, q->tokens[q->n_tokens + n], &taken);
        taken = taken && err == ERR_OK; /* what went wrong will be told when the token is sampled */
        n += taken;
    }
    grammar_matcher_rollback(q->matcher, n);
    return n;
}

/* Puts n guessed tokens behind those of q. The guess may run into tokens it has just put there, as in a text that
 * repeats itself. Nothing follows an end, so none is drafted. */
static void write_draft(struct sched *s, struct sched_seq *q, int32_t n)
{
    if (n > 0 && !sched_grow(s, q, q->n_tokens + n)) {
        return;
    }
    for (int32_t i = 0; i < n && !sched_is_end(q, q->tokens[q->draft.source + i]); i++) {
        q->tokens[q->n_tokens + i] = q->tokens[q->draft.source + i];
        q->n_draft++;
    }
    q->n_draft = q->matcher != NULL ? count_allowed(q) : q->n_draft;
}

void sched_draft_all(struct sched *s, struct sched_seq **seqs, int32_t n)
{
    int32_t max_rows = MIN_OF(s->cfg.draft_max + 1, s->cfg.max_rows);
    max_rows = MIN_OF(max_rows, s->cfg.max_logits - (s->n_running - n));
    if (n == 0 || n >= max_rows) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        struct sched_seq *q = seqs[i];
        draft_look(&q->draft, q->tokens, q->n_tokens);
        s->offers[i] = (struct draft_offer){.draft = &q->draft};
        s->offers[i].n_max = q->draft.source != 0 ? draft_room(s, q) : 0;
    }
    draft_plan(&s->costs, s->offers, n, max_rows, n > 1 ? s->cfg.step_budget_ns : 0);
    for (int32_t i = 0; i < n; i++) {
        write_draft(s, seqs[i], s->offers[i].n);
    }
}
