/* One step: choose rows, run them, sample, wake the readers. */
#include "engine/sched/sched_internal.h"

#include <math.h>

/* The result of a step. */
struct step_result {
    uint64_t n_generated, n_accepted;
    struct draft_counts drafts;
};

/* Does the sequence sample a token after its last row? */
static bool wants_token(const struct sched_seq *q) { return q->n_tokens < q->max_total; }

/* Returns whether q's reader leaves room for `events` more, and notes it; a sequence without room is left out of the
 * step. */
static bool has_room(struct sched_seq *q, uint32_t events)
{
    if (sched_ring_room(q) >= events) {
        q->reader.stalled_since = 0;
        return true;
    }
    if (q->reader.stalled_since == 0) {
        q->reader.stalled_since = clock_now_ns();
    }
    q->wait = SCHED_WAIT_READER;
    return false;
}

/* Returns what the sampler needs of a row that a token of q follows. Drafts count as the next token, because they need
 * no more. */
static int32_t row_wants(const struct sched *s, const struct sched_seq *q)
{
    int32_t n = sampler_wants(&q->terms.sampling, s->cfg.n_vocab, q->n_tokens - q->n_prompt < q->terms.min_tokens);
    /* the guide can require any token's log-probability */
    n = q->terms.guide.next != NULL && q->terms.sampling.n_top >= 0 ? BACKEND_ALL_LOGITS : n;
    return n <= s->cfg.max_best || n == 0 ? n : BACKEND_ALL_LOGITS;
}

static bool is_decoding(const struct sched_seq *q)
{
    return q->n_tokens > q->n_prompt && q->n_computed == q->n_tokens - 1;
}

/* Adds n rows of q and the logits it needs of them. */
static void add_rows(const struct sched *s, struct sched_batch *b, struct sched_seq *q, int32_t n)
{
    q->rows.n = n;
    q->rows.i_first = b->n_rows;
    q->rows.i_logits = b->n_logits;
    q->rows.i_hidden = b->n_hidden;
    q->rows.i_sample = -1;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = q->n_computed + i, row = b->n_rows++;
        b->tokens[row] = q->tokens[at];
        b->pos[row] = at;
        b->sum_pos += is_decoding(q) ? 0 : at;
        b->seq[row] = b->n_seqs;
        bool is_last = at >= q->n_tokens - 1; /* or a draft after it */
        bool for_prompt = q->terms.prompt_logprobs && at < q->n_prompt - 1;
        if (for_prompt || (is_last && wants_token(q))) {
            q->rows.i_sample = at == q->n_tokens - 1 ? b->n_logits : q->rows.i_sample;
            b->wants[b->n_logits] = for_prompt ? BACKEND_ALL_LOGITS : row_wants(s, q);
            b->logit_rows[b->n_logits++] = row;
        }
        if (sched_wants_state(q, at)) {
            b->hidden_rows[b->n_hidden++] = row;
        }
    }
    q->wait = SCHED_WAIT_COUNT;
    q->rows.n_hidden = b->n_hidden - q->rows.i_hidden;
    b->tables[b->n_seqs] = q->pages.table;
    b->window_tables[b->n_seqs] = q->windows.table;
    b->states[b->n_seqs] = q->states.own;
    b->begin_states[b->n_seqs] = q->states.begin != KV_NO_STATE ? q->states.begin : q->states.own;
    b->seq_drafts[b->n_seqs] = q->rows.n_draft;
    b->seq_true[b->n_seqs] = q->states.n_true;
    b->seqs[b->n_seqs++] = q;
}

/* Adds a row for each sequence that generates, and drafts if no prompt is computed. Growing can preempt sequences later
 * in the list. */
static void add_decoding(struct sched *s, struct sched_batch *b)
{
    int32_t n = 0;
    bool all_decode = true;
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        if (sched_is_left_out(s, q)) {
            continue;
        }
        bool can_run = !q->rows.are_begun && is_decoding(q) && has_room(q, 1) && n < s->cfg.max_rows;
        all_decode = all_decode && !q->rows.are_begun && is_decoding(q);
        if (can_run && sched_grow(s, q, q->n_tokens) && sched_claim_state(s, q)) {
            q->rows.n = 1;
            b->seqs[n++] = q;
        }
    }
    if (all_decode) {
        sched_draft_all(s, b->seqs, n);
    }
    for (int32_t i = 0; i < n; i++) {
        struct sched_seq *q = b->seqs[i];
        add_rows(s, b, q, 1 + q->rows.n_draft);
        b->n_drafted += q->rows.n_draft;
        b->n_drafts += q->rows.n_draft > 0;
    }
    b->n_decoding = b->n_rows;
}

/* Returns the time of a step of n decoding rows without a prompt; 0 if none was seen yet. */
static double decoding_ns(const struct sched *s, int32_t n)
{
    double ns[DRAFT_MAX + 2];
    draft_costs_get(&s->speeds.costs, ns);
    return n <= DRAFT_MAX + 1 ? ns[n] : ns[DRAFT_MAX + 1] * n / (DRAFT_MAX + 1);
}

/* Returns the time for a step with decoding sequences: set so that few steps exceed the budget, whatever their
 * variance. */
static double step_ns(const struct sched *s)
{
    double budget = (double)s->cfg.step_budget_ns, usual = budget - SCHED_OFF_TIMES * s->speeds.row_costs.off_ns;
    return MAX_OF(MIN_OF(usual, 0.9 * budget), 0.5 * budget) - s->express.last_ns;
}

/* Returns the time of a prompt row next to decoding ones, at the prompts' current positions; 0 if none was seen yet. */
static double prompt_row_ns(const struct sched *s)
{
    double pos = 0, n = 0;
    for (const struct sched_seq *q = s->running; q != NULL; q = q->next) {
        if (!is_decoding(q) && !q->rows.are_begun) {
            pos += q->n_computed + SCHED_MIN_CHUNK / 2;
            n++;
        }
    }
    double ns = row_costs_ns(&s->speeds.row_costs, n > 0 ? pos / n : 0);
    return ns > 0 ? ns : s->speeds.ns_per_row;
}

/* Returns how many prompt rows fit into a step in the time that the decoding rows leave. All rows together become the
 * nearest multiple of even_rows, unless they are fewer. */
static int32_t prefill_budget(const struct sched *s, const struct sched_batch *b)
{
    bool is_behind = s->progress.behind_ns != 0 && !s->cfg.is_bidirectional;
    int32_t room = (is_behind ? MIN_OF(b->max_rows, s->progress.behind_rows) : b->max_rows) - b->n_rows;
    if (room <= 0) {
        return 0;
    }
    double ns_per_row = prompt_row_ns(s);
    if ((b->n_rows == 0 && !s->express.is_now) || ns_per_row <= 0) {
        return room;
    }
    double decoding = b->n_rows > 0 ? decoding_ns(s, b->n_rows) : 0;
    double rows = MAX_OF((step_ns(s) - decoding) / ns_per_row, 0);
    int32_t unit = MAX_OF(s->cfg.even_rows, 1), all = b->n_rows + (int32_t)MIN_OF(rows, 1e6);
    all = all < unit ? all : (all + unit / 2) / unit * unit;
    return MIN_OF(room, MAX_OF(all - b->n_rows, (int32_t)SCHED_MIN_CHUNK));
}

/* Returns the prompt rows that q could compute in this step. */
static int32_t count_prefill(struct sched *s, const struct sched_batch *b, struct sched_seq *q)
{
    if (is_decoding(q) || q->rows.n != 0 || sched_is_left_out(s, q) || sched_disk_waits(s, q) ||
        sched_waits_for_state(s, q)) {
        return 0;
    }
    int32_t n = sched_ready_rows(s, q);
    q->wait = n == 0 ? SCHED_WAIT_PAGES : q->wait;
    return q->terms.prompt_logprobs ? MIN_OF(n, MIN_OF(b->max_logits - b->n_logits, SCHED_RING / 2)) : n;
}

/* Returns the sequence of the highest class with the fewest prompt rows left that has no reserved rows yet, or NULL. */
static struct sched_seq *shortest(struct sched *s)
{
    struct sched_seq *best = NULL;
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        int higher = best != NULL ? q->group->tenant->priority - best->group->tenant->priority : 1;
        bool is_better = higher > 0 || (higher == 0 && q->n_tokens - q->n_computed < best->n_tokens - best->n_computed);
        best = q->rows.n_prefill > q->rows.n_reserved && is_better && q->rows.n_reserved == 0 ? q : best;
    }
    return best;
}

/* Half of the rows go in order, so that the first sequence always advances; the other half to the prompts with the
 * fewest rows left, so that short prompts do not wait for long ones. Returns the reserved rows. */
static int32_t reserve_prefill(struct sched *s, const struct sched_batch *b, int32_t budget)
{
    int32_t left = s->cfg.is_bidirectional ? 0 : budget / 2; /* these prompts run whole or not at all */
    int32_t kept = 0;
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        q->rows.n_prefill = count_prefill(s, b, q);
        q->rows.n_reserved = 0;
    }
    for (struct sched_seq *q = shortest(s); left > 0 && q != NULL; q = left > 0 ? shortest(s) : NULL) {
        q->rows.n_reserved = MIN_OF(q->rows.n_prefill, left);
        left -= q->rows.n_reserved;
        kept += q->rows.n_reserved;
    }
    return kept;
}

static void add_prefill(struct sched *s, struct sched_batch *b)
{
    int32_t budget = prefill_budget(s, b), kept = budget > 0 ? reserve_prefill(s, b, budget) : 0;
    for (struct sched_seq *q = s->running; q != NULL && budget > 0 && b->n_seqs < b->max_seqs; q = q->next) {
        kept -= q->rows.n_reserved;
        int32_t n = MIN_OF(q->rows.n_prefill, budget - kept);
        /* one for each other sequence */
        int32_t logits_left = b->max_logits - b->n_logits - (s->n_running - b->n_seqs - 1);
        if (q->terms.prompt_logprobs) {
            n = MIN_OF(n, logits_left);
        }
        n = n > 0 ? sched_grow_windows(s, q, q->n_computed + n) - q->n_computed : n;
        if (n <= 0 || (s->cfg.is_bidirectional && n < q->n_tokens)) { /* the oldest always fits */
            continue;
        }
        /* The prompt tokens that were returned before a preemption are not returned again. */
        int32_t n_events = q->terms.prompt_logprobs ? q->n_computed + n + 1 - q->reader.n_prompt_tokens : 1;
        if (!has_room(q, (uint32_t)MAX_OF(n_events, 1))) {
            /* Other sequences can wait for its shared pages, which are before its last token and produce no event. */
            n = q->terms.prompt_logprobs ? 0 : MIN_OF(n, q->n_tokens - 1 - q->n_computed);
            if (n == 0) {
                continue;
            }
        }
        if (sched_claim_state(s, q)) {
            add_rows(s, b, q, n);
            budget -= n;
        }
    }
}

/* --- results ------------------------------------------------------------------------------------------------------ */

bool sched_is_end(const struct sched_seq *q, int32_t id)
{
    for (size_t i = 0; i < q->terms.sampling.n_ends; i++) {
        if (q->terms.sampling.ends[i] == id) {
            return true;
        }
    }
    return false;
}

static struct sampler_row row_at(const struct sched *s, const struct sched_batch *b, int32_t i)
{
    const struct backend_row_stats *st = &b->stats[i];
    struct sampler_row row = {
        .n_vocab = s->cfg.n_vocab, .argmax = st->argmax, .max = st->max, .logsumexp = st->logsumexp};
    if (b->wants[i] == BACKEND_ALL_LOGITS) {
        row.logits = b->logits + (size_t)i * (size_t)s->cfg.n_vocab;
    } else {
        row.best = b->best + (size_t)i * (size_t)s->cfg.max_best;
        row.n_best = b->wants[i];
    }
    return row;
}

static void note_first_token(struct sched_seq *q)
{
    if (q->first_ns == 0) {
        q->first_ns = clock_now_ns();
        pthread_mutex_lock(&q->reader.lock);
        q->reader.usage.prefill_ns = q->first_ns - q->admit_ns;
        pthread_mutex_unlock(&q->reader.lock);
    }
}

/* Takes the guide's token, if there is one and the grammar accepts it. */
static enum err pick_guided(struct sched *s, struct sched_seq *q, const struct sampler_row *row,
                            struct sampler_result *r, bool *taken)
{
    int32_t id = q->terms.guide.next != NULL ? q->terms.guide.next(q->terms.guide_state) : -1;
    *taken = id >= 0;
    if (*taken && q->matcher != NULL) {
        TRY(grammar_matcher_accept(q->matcher, id, taken));
    }
    if (!*taken) {
        return ERR_OK;
    }
    *r = (struct sampler_result){.id = id, .logprob = NAN};
    if (q->terms.sampling.n_top >= 0) {
        TRY(isfinite(row->logsumexp) ? ERR_OK : ERR_NUMERICAL);
        sampler_logprobs(row, id, q->terms.sampling.n_top, &s->sampling.scratch, r);
    }
    if (q->terms.sampling.n_top >= 0 && q->terms.sampling.tells_drawn) { /* no other token was possible */
        r->logprob = 1;
        r->n_top = 0;
    }
    return ERR_OK;
}

/* Picks a token; with a grammar an allowed one, by a mask that can already exist. */
static enum err pick(struct sched *s, struct sched_seq *q, const struct sampler_row *row, struct sampler_history *h,
                     struct sampler_result *r)
{
    bool taken;
    TRY(pick_guided(s, q, row, r, &taken));
    if (taken) {
        return ERR_OK;
    }
    taken = true;
    s->sampling.n_masks += q->matcher != NULL;
    s->sampling.n_masks_beside += h->allowed != NULL;
    if (q->matcher != NULL && h->allowed == NULL) {
        TRY(grammar_matcher_mask(q->matcher, s->sampling.allowed));
        h->allowed = s->sampling.allowed;
    }
    enum err err = sampler_pick(&q->terms.sampling, row, h, &s->sampling.scratch, r);
    if (q->matcher == NULL || err != ERR_OK) {
        return q->matcher != NULL && err == ERR_INVALID_VALUE ? ERR_GRAMMAR_DEAD_END : err; /* bans leave no token */
    }
    TRY(grammar_matcher_accept(q->matcher, r->id, &taken));
    return taken ? ERR_OK : ERR_INTERNAL;
}

/* Samples after the last token. *finish: whether the sequence is complete. */
static enum err sample_next(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t i_logits,
                            enum sched_finish *finish)
{
    struct sampler_row row = row_at(s, b, i_logits);
    int32_t n_generated = q->n_tokens - q->n_prompt;
    struct sampler_history h = {.tokens = q->tokens,
                                .n_prompt = q->n_prompt,
                                .n_tokens = q->n_tokens,
                                .ban_ends = n_generated < q->terms.min_tokens,
                                .allowed = q->matcher != NULL ? sched_mask(s, b, q, i_logits) : NULL};
    struct sampler_result r;
    TRY(pick(s, q, &row, &h, &r));
    note_first_token(q);
    q->tokens[q->n_tokens++] = r.id;
    draft_learn(&q->draft, q->tokens, q->n_tokens);
    if (q->terms.guide.take != NULL) {
        q->terms.guide.take(q->terms.guide_state, r.id);
    }
    pthread_mutex_lock(&q->reader.lock);
    q->reader.usage.completion_tokens++;
    pthread_mutex_unlock(&q->reader.lock);
    if (sched_is_end(q, r.id)) {
        *finish = SCHED_FINISH_STOP;
        return ERR_OK;
    }
    sched_put_token(q, SCHED_TOKEN, &r);
    if (q->matcher != NULL && grammar_matcher_must_end(q->matcher)) {
        *finish = SCHED_FINISH_STOP; /* saves a step if the end is certain */
    } else if (q->n_tokens >= q->max_total) {
        *finish = SCHED_FINISH_LENGTH;
    }
    return ERR_OK;
}

/* Returns the log-probability of the prompt token at position pos, from the logits of the row before it. */
static void give_prompt_token(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t i_logits,
                              int32_t pos)
{
    struct sampler_result r = {.id = q->tokens[pos], .logprob = NAN};
    if (i_logits >= 0) {
        struct sampler_row row = row_at(s, b, i_logits);
        sampler_logprobs(&row, q->tokens[pos], q->terms.sampling.n_top, &s->sampling.scratch, &r);
    }
    if (pos == q->reader.n_prompt_tokens) { /* not again after a preemption */
        q->reader.n_prompt_tokens++;
        sched_put_token(q, SCHED_PROMPT_TOKEN, &r);
    }
}

/* Removes q, which has ended, from the running sequences. */
static void end_running(struct sched *s, struct sched_seq *q, enum sched_finish finish, enum err err,
                        const struct err_info *why)
{
    sched_unlink(&s->running, q);
    sched_end(s, q, finish, err, why);
}

/* Samples after the last token and then after each draft while drafts match the sampled tokens: the tokens are exactly
 * those of single steps. Rows of rejected drafts leave nothing, because the next step overwrites them. */
static enum err sample_rows(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t i_logits,
                            enum sched_finish *finish)
{
    int32_t from = q->n_computed;
    for (int32_t left = q->rows.n_draft;; left--) {
        int32_t guess = left > 0 ? q->tokens[q->n_tokens] : -1;
        TRY(sample_next(s, b, q, i_logits++, finish));
        if (*finish != SCHED_FINISH_NONE || q->tokens[q->n_tokens - 1] != guess) {
            break;
        }
        q->n_computed++;
    }
    q->states.n_true = q->n_computed - from;
    sched_named_pages_filled(s, q, from);
    return ERR_OK;
}

/* Counts q's drafts, of which the first n_true came true. */
static void count_drafts(struct sched_seq *q, int32_t n_true, struct step_result *out)
{
    const struct sched_rows *rows = &q->rows;
    struct sched_usage *u = &q->reader.usage;
    out->n_accepted += (uint64_t)n_true;
    draft_counts_add(&out->drafts, rows->sources, rows->n_draft, n_true);
    pthread_mutex_lock(&q->reader.lock);
    u->drafted_tokens += rows->n_draft;
    u->accepted_tokens += n_true;
    for (int32_t i = 0; i < rows->n_draft; i++) {
        u->drafts[rows->sources[i]].drafted++;
        u->drafts[rows->sources[i]].accepted += i < n_true;
    }
    pthread_mutex_unlock(&q->reader.lock);
}

/* Processes the results of q's rows; q can end. */
static void finish_rows(struct sched *s, const struct sched_batch *b, struct sched_seq *q, struct step_result *out)
{
    q->rows.are_begun = false;
    int32_t first = q->n_computed, i_logits = q->rows.i_logits, n_tokens = q->n_tokens;
    q->n_computed += q->rows.n - q->rows.n_draft;
    q->states.n_true = 0;
    if (first < q->n_prompt) {
        sched_note_processed(q);
    }
    sched_named_pages_filled(s, q, first);
    sched_window_slide(s, q);
    sched_local_slide(s, q);
    sched_keep_copies(s, b, q);
    enum sched_finish finish = SCHED_FINISH_NONE;
    enum err err = ERR_OK;
    sched_pool_states(s, b, q, first);
    if (q->terms.prompt_logprobs && first == 0) {
        give_prompt_token(s, b, q, -1, 0);
    }
    for (int32_t at = first; q->terms.prompt_logprobs && at < q->n_computed && at < q->n_prompt - 1 && err == ERR_OK;
         at++) {
        if (isfinite(b->stats[i_logits].logsumexp)) {
            give_prompt_token(s, b, q, i_logits++, at + 1);
        } else {
            err = ERR_NUMERICAL;
        }
    }
    if (err == ERR_OK && q->n_computed == q->n_tokens) {
        if (wants_token(q)) {
            err = sample_rows(s, b, q, i_logits, &finish);
            out->n_generated += (uint64_t)(q->n_tokens - n_tokens);
            if (q->rows.n_draft > 0) {
                count_drafts(q, q->n_computed - first - (q->rows.n - q->rows.n_draft), out);
            }
        } else {
            note_first_token(q);
            finish = SCHED_FINISH_LENGTH;
            err = q->embed.pooling != PLAN_POOL_NONE ? sched_finish_embedding(s, q) : ERR_OK;
        }
    }
    q->rows.n = q->rows.n_draft = 0;
    bool goes_on = err == ERR_OK && finish == SCHED_FINISH_NONE;
    sched_predict_note(s, b, q, first, goes_on);
    if (!goes_on) {
        end_running(s, q, finish, err, NULL);
    }
}

/* Ends the sequences of the batch; if the back end is lost, the next turn of the loop ends all others. */
static void fail_batch(struct sched *s, struct sched_batch *b, struct err_info *why, enum err err)
{
    if (why->code != err) {
        err_set(why, err, NULL, "%s", err_text(err));
    }
    bool is_known = s->lost.code != ERR_OK; /* from an earlier batch */
    if (err == ERR_LOST && !is_known) {
        pthread_mutex_lock(&s->lock);
        s->lost = *why;
        pthread_mutex_unlock(&s->lock);
    }
    if (s->cfg.failed != NULL && !is_known) {
        s->cfg.failed(s->cfg.failed_arg, why);
    }
    sched_drop_copies(s, b);
    if (sched_masks_stop(s) != NULL) {
        sched_masks_wait(s);
    }
    for (int32_t i = 0; i < b->n_seqs; i++) {
        b->seqs[i]->rows.are_begun = false;
        end_running(s, b->seqs[i], SCHED_FINISH_NONE, err, why);
    }
}

static void count_step(struct sched *s, const struct sched_batch *b, uint64_t ns, const struct step_result *r)
{
    if (b->n_rows == b->n_decoding) {
        draft_costs_note(&s->speeds.costs, b->n_rows, ns);
    }
    if (s->speeds.ns_per_early_row == 0) {
        s->speeds.ns_per_early_row = (double)ns / b->n_rows;
    }
    if (b->n_rows - b->n_drafted >= SCHED_MIN_CHUNK) {
        double now = (double)ns / b->n_rows;
        s->speeds.ns_per_row = s->speeds.ns_per_row == 0 ? now : 0.8 * s->speeds.ns_per_row + 0.2 * now;
    }
    if (b->n_decoding > 0 && b->n_rows - b->n_decoding >= SCHED_MIN_CHUNK) {
        double took = MAX_OF((double)ns - decoding_ns(s, b->n_decoding), 0.1 * (double)ns);
        row_costs_note(&s->speeds.row_costs, b->n_rows - b->n_decoding, b->sum_pos, took);
    }
    if (b->n_rows == b->n_decoding && r->n_generated > 0) {
        double now = (double)ns / (double)r->n_generated;
        s->speeds.ns_per_token = s->speeds.ns_per_token == 0 ? now : 0.8 * s->speeds.ns_per_token + 0.2 * now;
    }
    sched_count_turn(s, ns, b->n_rows == b->n_decoding);
    pthread_mutex_lock(&s->lock);
    s->stats.steps++;
    s->stats.step_rows += (uint64_t)b->n_rows;
    s->stats.step_ns += ns;
    s->stats.overtaking += s->express.is_overtaking;
    s->stats.generated_tokens += r->n_generated;
    s->stats.drafted_tokens += (uint64_t)b->n_drafted;
    s->stats.drafts += (uint64_t)b->n_drafts;
    s->stats.accepted_tokens += r->n_accepted;
    if (b->n_drafted > 0) {
        draft_counts_merge(&s->stats.draft_counts, &r->drafts);
        draft_recent_add(&s->stats.draft_recent, &r->drafts);
    }
    s->stats.masks += s->sampling.n_masks;
    s->stats.masks_beside += s->sampling.n_masks_beside;
    s->sampling.n_masks = s->sampling.n_masks_beside = 0;
    pthread_mutex_unlock(&s->lock);
}

static void clear_batch(struct sched_batch *b)
{
    b->n_rows = b->n_seqs = b->n_logits = b->n_hidden = b->n_decoding = b->n_drafted = b->n_drafts = b->n_copies = 0;
    b->sum_pos = 0;
}

static void form_batch(struct sched *s, struct sched_batch *b)
{
    clear_batch(b);
    for (struct sched_seq *q = s->running; q != NULL; q = q->next) {
        if (!q->rows.are_begun) {
            q->rows.n = q->rows.n_draft = 0;
            q->wait = SCHED_WAIT_BUDGET; /* unless another reason keeps it out */
        }
    }
    add_decoding(s, b);
    add_prefill(s, b);
}

/* Assembles a batch from sequences that are not being computed; returns its rows, 0 if there are none. */
static int32_t choose_rows(struct sched *s, struct sched_batch *b)
{
    sched_begin_step(s);
    form_batch(s, b);
    if (b->n_rows == 0 && s->express.is_now) { /* the short prompt waits for its reader, or for pages */
        s->express.is_now = false;
        form_batch(s, b);
    }
    if (b->n_rows == 0 && s->turns.leaves_extras) { /* the others wait for readers, or for pages that extras hold */
        s->turns.leaves_extras = false;
        form_batch(s, b);
    }
    b->leaves_extras = s->turns.leaves_extras;
    b->is_express = s->express.is_now;
    return b->n_rows;
}

/* Sets the expected time, so that watchers can detect a slow step. */
static void expect(struct sched *s, int32_t n_rows)
{
    double rows = n_rows;
    for (int32_t i = 0; i < s->batches.n_begun; i++) {
        rows += s->batches.begun[i]->n_rows;
    }
    /* the paused batch still has to be computed, too */
    uint64_t before = s->express.is_overtaking ? atomic_load(&s->progress.expected_ns) : 0;
    atomic_store(&s->progress.expected_ns,
                 before + s->progress.behind_ns +
                     (uint64_t)(rows * (s->speeds.ns_per_row > 0 ? s->speeds.ns_per_row : s->speeds.ns_per_early_row)));
}

/* Passes the batch to the back end. Its sequences stay unchanged until the scheduler waits for it. Returns false if it
 * failed, and its sequences have ended. */
static bool give(struct sched *s, struct sched_batch *b)
{
    struct err_info why = {0};
    sched_add_copies(s, b);
    bool is_left = s->cfg.overtaking_rows != 0 && !s->express.is_overtaking; /* others can overtake it */
    struct backend_batch batch = {.n_rows = b->n_rows,
                                  .tokens = b->tokens,
                                  .pos = b->pos,
                                  .seq = b->seq,
                                  .n_seqs = b->n_seqs,
                                  .page_tables = b->tables,
                                  .window_tables = s->cfg.n_windows != 0 ? b->window_tables : NULL,
                                  .states = b->states,
                                  .begin_states = b->begin_states,
                                  .n_drafts = b->seq_drafts,
                                  .n_true = b->seq_true,
                                  .n_copies = b->n_copies,
                                  .copy_rows = b->copy_rows,
                                  .copy_states = b->copy_states,
                                  .n_logits = b->n_logits,
                                  .logit_rows = b->logit_rows,
                                  .wants = b->wants,
                                  .logits = b->logits,
                                  .stats = b->stats,
                                  .best = b->best,
                                  .n_hidden = b->n_hidden,
                                  .hidden_rows = b->hidden_rows,
                                  .hidden = b->hidden,
                                  .output = b->output,
                                  .asks = is_left ? &s->queue.asks : NULL,
                                  .between = is_left ? sched_overtake : NULL,
                                  .between_arg = s};
    for (int32_t i = 0; i < b->n_seqs; i++) {
        b->seqs[i]->rows.are_begun = true;
    }
    expect(s, b->n_rows);
    atomic_store(&s->progress.at, SCHED_AT_BEGIN);
    b->begin_ns = s->cfg.now_ns();
    enum err err = s->cfg.backend->begin(s->cfg.model, &batch, &why);
    if (err != ERR_OK) {
        fail_batch(s, b, &why, err);
        return false;
    }
    for (int32_t i = 0; i < b->n_seqs; i++) {
        sched_share_count(s, b->seqs[i], b->seqs[i]->rows.n);
    }
    return true;
}

/* Waits for the oldest begun batch, b. Returns false if it failed, and its sequences have ended. */
static bool take_results(struct sched *s, struct sched_batch *b)
{
    struct err_info why = {0};
    enum err err = s->cfg.backend->wait(s->cfg.model, &why);
    if (err != ERR_OK) {
        fail_batch(s, b, &why, err);
    }
    return err == ERR_OK;
}

/* Asks whether weights are still to be prepared, until all are. */
static void look_behind(struct sched *s)
{
    if (s->progress.behind_ns != 0) {
        struct backend_info bi;
        s->cfg.backend->info(s->cfg.model, &bi);
        s->progress.behind_ns = bi.behind_ns;
        s->progress.behind_rows = bi.behind_rows;
    }
}

/* Begins a batch; false: nothing to compute now. */
static bool begin_batch(struct sched *s)
{
    struct sched_batch *b = s->batches.begun[s->batches.n_begun];
    look_behind(s);
    atomic_store(&s->progress.at, SCHED_AT_CHOICE);
    if (choose_rows(s, b) == 0) {
        return false;
    }
    sched_masks_begin(s, b);
    s->express.overtaken_ns = 0;
    s->batches.n_begun += give(s, b);
    return true;
}

/* Waits for the oldest begun batch, and samples. */
static void finish_batch(struct sched *s)
{
    struct sched_batch *b = s->batches.begun[0];
    sched_masks_make(s, b);
    atomic_store(&s->progress.at, SCHED_AT_BACKEND);
    bool is_computed = take_results(s, b);
    uint64_t now = s->cfg.now_ns(), ns = now - MAX_OF(b->begin_ns, s->batches.waited_ns) - s->express.overtaken_ns;
    s->batches.waited_ns = now;
    s->batches.n_begun--;
    for (int32_t i = 0; i < s->cfg.max_begun - 1; i++) { /* the batches alternate */
        s->batches.begun[i] = s->batches.begun[i + 1];
    }
    s->batches.begun[s->cfg.max_begun - 1] = b;
    if (!is_computed) {
        return;
    }
    atomic_store(&s->progress.at, SCHED_AT_SAMPLING);
    struct step_result result = {0};
    struct sched_seq *late = sched_masks_stop(s); /* the other sequences need not wait for its masks */
    for (int32_t i = 0; i < b->n_seqs; i++) {
        if (b->seqs[i] != late) {
            finish_rows(s, b, b->seqs[i], &result);
        }
    }
    if (late != NULL) {
        sched_masks_wait(s);
        finish_rows(s, b, late, &result);
    }
    sched_predict_run(s, b->logits);
    s->turns.leaves_extras = b->leaves_extras;
    s->express.is_now = b->is_express;
    count_step(s, b, ns, &result);
}

/* Computes the overtaking batch; false: it failed or is empty. */
static bool compute_express(struct sched *s, struct sched_batch *b)
{
    struct step_result result = {0};
    sched_begin_step(s);
    clear_batch(b);
    if (s->express.is_now) {
        form_batch(s, b);
    }
    if (b->n_rows == 0 || !give(s, b) || !take_results(s, b)) {
        return false;
    }
    uint64_t ns = s->cfg.now_ns() - b->begin_ns;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        finish_rows(s, b, b->seqs[i], &result);
    }
    sched_predict_run(s, b->logits);
    count_step(s, b, ns, &result);
    return true;
}

void sched_step_express(struct sched *s)
{
    uint64_t from = s->cfg.now_ns(), now;
    bool goes_on = true;
    while (goes_on) {
        goes_on = compute_express(s, &s->batches.overtaker);
        now = s->cfg.now_ns();
        s->express.overtaken_ns += now - from;
        from = now;
    }
}

void sched_finish_begun(struct sched *s)
{
    while (s->batches.n_begun > 0) {
        finish_batch(s);
    }
}

/* No batch begins next to one in which sequences generate: new work joins them in the next batch, so that the weights
 * are read once. */
static bool may_begin(const struct sched *s)
{
    bool may = s->batches.n_begun < s->cfg.max_begun && (s->batches.n_begun == 0 || s->disk.n_restoring == 0);
    for (int32_t i = 0; i < s->batches.n_begun; i++) {
        may = may && s->batches.begun[i]->n_decoding == 0;
    }
    return may;
}

bool sched_step(struct sched *s)
{
    bool is_new = may_begin(s) && begin_batch(s);
    sched_tell_readers(s); /* during the computation */
    if (is_new && s->batches.n_begun < s->cfg.max_begun) {
        return true; /* another batch can begin */
    }
    if (s->batches.n_begun > 0) {
        finish_batch(s);
        return true;
    }
    return is_new;
}
