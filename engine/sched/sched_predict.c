/* The prediction head guesses tokens. Its row of a token reads the model's output for the token before it, so after each
 * step the head computes the rows whose tokens are then known: those of the step but for the first one of a sequence, and
 * the sampled token's. Pages that others can share thus include its keys and values. The first run of a step does all
 * that; each further one adds a guess, from the head's own output. The next step's rows of these positions overwrite
 * what the guesses left. Nothing here changes a token: the model checks every guess.
 *
 * A draft model does the same with tokens alone, so it can compute any row later. While it is idle it leaves out all rows.
 *
 * A head that guesses in place (plan.h) stores nothing, so it only computes the rows of sequences that guess. */
#include "engine/sched/sched_internal.h"

#include <math.h>
#include <string.h>

enum {
    IDLE_STEPS = 64,
    EXTRA_ROWS = 256, /* of earlier steps, that a draft model computes with those of a step of one sequence */
};
#define RELEARNED                                                                                                      \
    0.25f /* part of the way back to the first rates, and of its times that is forgotten, after IDLE_STEPS */

static size_t width_bytes(const struct sched *s) { return (size_t)s->cfg.output_width * sizeof(float); }
static size_t outputs_bytes(const struct sched *s)
{
    return (size_t)s->cfg.n_pages * (size_t)sched_kept_floats(&s->cfg) * sizeof(float);
}
static size_t input_bytes(const struct sched *s) { return (size_t)s->predict.batch.max_rows * width_bytes(s); }
static bool is_draft_model(const struct sched *s) { return s->cfg.predicts && s->cfg.output_width == 0; }
static int32_t max_pages(const struct sched *s) { return (s->cfg.n_ctx + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; }

enum err sched_predict_init(struct sched *s)
{
    struct sched_predict *p = &s->predict;
    size_t n = (size_t)s->cfg.max_seqs * (size_t)max_pages(s);
    p->tables = mem_zalloc_array(n, sizeof *p->tables, MEM_SCRATCH);
    p->window_tables = s->cfg.n_windows != 0 ? mem_zalloc_array(n, sizeof *p->tables, MEM_SCRATCH) : NULL;
    TRY_MEM(p->tables != NULL && (s->cfg.n_windows == 0 || p->window_tables != NULL));
    if (is_draft_model(s)) {
        p->filled = mem_zalloc_array((size_t)s->cfg.n_pages, sizeof *p->filled, MEM_SCRATCH);
        return p->filled != NULL ? ERR_OK : ERR_NOMEM;
    }
    p->outputs = outputs_bytes(s) != 0 ? mem_map(outputs_bytes(s), MEM_KV) : NULL; /* takes memory on first use */
    p->input = mem_map(input_bytes(s), MEM_SCRATCH);
    return (p->outputs != NULL || outputs_bytes(s) == 0) && p->input != NULL ? ERR_OK : ERR_NOMEM;
}

void sched_predict_fini(struct sched *s)
{
    mem_unmap(s->predict.outputs, outputs_bytes(s), MEM_KV);
    mem_unmap(s->predict.input, input_bytes(s), MEM_SCRATCH);
    mem_free(s->predict.tables);
    mem_free(s->predict.window_tables);
    mem_free(s->predict.filled);
}

/* Returns the output of q's page for its last position computed, or NULL if q does not hold the page. */
static float *output_of_page(const struct sched *s, const struct sched_seq *q, int32_t i)
{
    return i >= q->pages.n_gone && i < q->pages.n ? sched_page_output(s, q->pages.table[i]) : NULL;
}

/* Returns the model's output for position `at`, computed in this batch or the last one before it; NULL: unknown. */
static const float *output_at(const struct sched *s, const struct sched_batch *b, const struct sched_seq *q,
                              int32_t first, int32_t at)
{
    return at < 0        ? NULL
           : at >= first ? b->output + (size_t)(q->rows.i_first + at - first) * (size_t)s->cfg.output_width
                         : output_of_page(s, q, at / KV_PAGE_TOKENS);
}

/* Adds a row to the head's batch. input: OPTIONAL; NULL: zeros. */
static void add_row(struct sched *s, int32_t token, int32_t pos, int32_t i_seq, const float *input)
{
    struct sched_batch *b = &s->predict.batch;
    float *to = s->predict.input + (size_t)b->n_rows * (size_t)s->cfg.output_width;
    b->tokens[b->n_rows] = token;
    b->pos[b->n_rows] = pos;
    b->seq[b->n_rows++] = i_seq;
    if (is_draft_model(s)) {
        return;
    }
    if (input != NULL) {
        memcpy(to, input, width_bytes(s));
    } else {
        memset(to, 0, width_bytes(s));
    }
}

static void copy_table(struct sched *s, const struct sched_seq *q, int32_t i)
{
    size_t at = (size_t)i * (size_t)max_pages(s);
    memcpy(s->predict.tables + at, q->pages.table, (size_t)q->pages.n * sizeof *q->pages.table);
    s->predict.batch.tables[i] = s->predict.tables + at;
    if (s->predict.window_tables != NULL) {
        memcpy(s->predict.window_tables + at, q->windows.table, (size_t)q->windows.n * sizeof *q->windows.table);
        s->predict.batch.window_tables[i] = s->predict.window_tables + at;
    }
}

/* Adds q to the batch; it can guess if it goes on. Returns its index. */
static int32_t add_seq(struct sched *s, struct sched_seq *q, bool goes_on)
{
    struct sched_batch *b = &s->predict.batch;
    int32_t i = b->n_seqs++;
    copy_table(s, q, i);
    b->seqs[i] = goes_on ? q : NULL;
    return i;
}

/* Keeps the outputs that later batches can need: of each page's last position. */
static void keep_outputs(struct sched *s, const struct sched_batch *b, const struct sched_seq *q, int32_t first)
{
    for (int32_t i = first / KV_PAGE_TOKENS; i * KV_PAGE_TOKENS < q->n_computed; i++) {
        float *to = output_of_page(s, q, i);
        if (to != NULL) {
            memcpy(to, output_at(s, b, q, first, MIN_OF(q->n_computed, (i + 1) * KV_PAGE_TOKENS) - 1), width_bytes(s));
        }
    }
}

/* --- rows that a draft model makes up for ------------------------------------------------------------------------- */

/* Notes that the draft model has, with this batch, q's rows [from, end); and none yet of the pages that the model began. */
static void note_filled(struct sched *s, const struct sched_seq *q, int32_t first, int32_t from, int32_t end)
{
    uint8_t *filled = s->predict.filled;
    for (int32_t i = (first + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; i * KV_PAGE_TOKENS < q->n_computed; i++) {
        filled[q->pages.table[i]] = 0;
    }
    for (int32_t at = from; at < end; at++) {
        uint8_t *n = &filled[q->pages.table[at / KV_PAGE_TOKENS]];
        *n = *n == at % KV_PAGE_TOKENS ? (uint8_t)(*n + 1) : *n;
    }
}

/* Returns the first position that the draft model has no row of, in the pages that q holds. */
static int32_t first_missing(const struct sched *s, const struct sched_seq *q, int32_t first)
{
    int32_t n_gone = MAX_OF(q->pages.n_gone, q->windows.n_gone);
    int32_t from = MAX_OF(q->predicted.n, n_gone * KV_PAGE_TOKENS), n = KV_PAGE_TOKENS;
    while (q->predicted.n == 0 && from < first && n == KV_PAGE_TOKENS) {
        n = s->predict.filled[q->pages.table[from / KV_PAGE_TOKENS]];
        from += n;
    }
    return q->predicted.n < first ? MIN_OF(from, first) : q->predicted.n;
}

/* Reduces rows [*from, *end) of the batch's q, or adds some of earlier steps, as far as there is room. */
static void make_up(struct sched *s, const struct sched_batch *b, const struct sched_seq *q, int32_t first,
                    int32_t *from, int32_t *end)
{
    int32_t room = b != &s->batches.overtaker ? s->predict.batch.max_rows - b->n_rows - b->n_seqs : 0;
    *from = first_missing(s, q, first);
    room = MIN_OF(room, EXTRA_ROWS / MAX_OF(s->n_running, 1)) - s->predict.n_extra;
    int32_t n_extra = MIN_OF(MAX_OF(first - *from, 0), MAX_OF(room, 0));
    s->predict.n_extra += n_extra;
    *end = MIN_OF(*end, *from + n_extra + q->n_computed + 1 - MAX_OF(*from, first));
}

/* --- the first run of a step -------------------------------------------------------------------------------------- */

/* Adds the row of q's sampled token for a head that guesses in place. */
static void add_sampled(struct sched *s, const struct sched_batch *b, struct sched_seq *q)
{
    int32_t i_logits = q->rows.i_sample + q->states.n_true; /* of the row that it was sampled from */
    const float *input = b->output + (size_t)i_logits * (size_t)s->cfg.output_width;
    add_row(s, q->tokens[q->n_computed], q->n_computed - 1, add_seq(s, q, true), input);
}

void sched_predict_note(struct sched *s, const struct sched_batch *b, struct sched_seq *q, int32_t first, bool goes_on)
{
    struct sched_predict *p = &s->predict;
    if (!s->cfg.predicts || p->has_failed || q->embed.pooling != PLAN_POOL_NONE) {
        return;
    }
    if (s->cfg.guesses_in_place) {
        if (goes_on && q->rows.i_sample >= 0 && !p->is_idle) {
            add_sampled(s, b, q);
        }
        return;
    }
    bool is_draft = is_draft_model(s), generates = q->n_tokens > q->n_prompt;
    bool is_left = p->is_idle && (is_draft || (generates && first >= q->n_prompt));
    int32_t n_pages = s->cfg.n_windows != 0 ? MIN_OF(q->pages.n, q->windows.n) : q->pages.n;
    int32_t end = MIN_OF(goes_on ? q->n_tokens : q->n_computed, n_pages * KV_PAGE_TOKENS);
    int32_t from = MAX_OF(q->predicted.n, first);
    end = MIN_OF(end, q->n_computed + 1);
    if (is_draft && !is_left) {
        make_up(s, b, q, first, &from, &end);
    }
    if (!is_left && from < end) {
        int32_t i = add_seq(s, q, goes_on && generates && end == q->n_tokens);
        for (int32_t at = from; at < end; at++) {
            add_row(s, q->tokens[at], at, i, is_draft ? NULL : output_at(s, b, q, first, at - 1));
        }
    }
    if (is_draft) {
        note_filled(s, q, first, from, is_left ? from : end);
    } else {
        keep_outputs(s, b, q, first);
    }
    q->predicted.n = is_draft && is_left ? q->predicted.n : MAX_OF(from, end);
}

/* Returns how many forced tokens come before q's guesses: a draft model computes their rows in one run. A head would need
 * the model's output for each. */
static int32_t n_before(const struct sched *s, const struct sched_seq *q)
{
    return is_draft_model(s) ? draft_n_forced(&q->draft) : 0;
}

/* Sets how many of n tokens to guess for q, and gives it pages for these. */
static int32_t limit_guesses(struct sched *s, struct sched_seq *q, int32_t n)
{
    n = MIN_OF(MIN_OF(n, s->cfg.draft_max), sched_draft_room(s, q) - n_before(s, q));
    bool has_pages = n > 0 && (s->cfg.guesses_in_place || sched_grow(s, q, q->n_tokens + n_before(s, q) + n - 1));
    q->predicted.limit = has_pages ? n : 0;
    return q->predicted.limit;
}

/* Adds the rows of q's forced tokens after those of its known ones; false: there is no room. */
static bool add_forced(struct sched *s, struct sched_seq *q, int32_t i_seq)
{
    struct sched_batch *b = &s->predict.batch;
    int32_t n = n_before(s, q), at = b->n_rows;
    if (b->n_rows + n > b->max_rows) {
        return false;
    }
    while (b->seq[at - 1] != i_seq) {
        at--;
    }
    size_t n_later = (size_t)(b->n_rows - at);
    memmove(b->tokens + at + n, b->tokens + at, n_later * sizeof *b->tokens);
    memmove(b->pos + at + n, b->pos + at, n_later * sizeof *b->pos);
    memmove(b->seq + at + n, b->seq + at, n_later * sizeof *b->seq);
    for (int32_t i = 0; i < n; i++) {
        b->tokens[at + i] = q->draft.forced[q->draft.i_forced + i];
        b->pos[at + i] = q->n_tokens + i;
        b->seq[at + i] = i_seq;
    }
    b->n_rows += n;
    q->draft.n_before = n;
    return true;
}

/* Chooses how many tokens to guess for each sequence of the batch, and asks for its last row's logits. */
static void choose_guesses(struct sched *s)
{
    struct sched_batch *b = &s->predict.batch;
    float rates[DRAFT_GUESSES] = {0};
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        struct sched_seq *q = b->seqs[i];
        if (q == NULL) {
            continue;
        }
        sched_draft_look(q);
        q->draft.i_guess = q->draft.n_guesses = q->draft.n_before = 0;
        if (s->predict.relearns) {
            draft_relearn(&q->draft, RELEARNED);
        }
        bool may = draft_prefers_head(&q->draft, true) && draft_n_forced(&q->draft) == n_before(s, q) &&
                   sched_draft_room(s, q) > n_before(s, q);
        b->seqs[i] = may ? q : NULL;
        for (int32_t k = 0; may && k < DRAFT_GUESSES; k++) {
            rates[k] = (rates[k] * (float)n + q->draft.guess_rates[k]) / (float)(n + 1);
        }
        n += may;
    }
    int32_t n_guesses = draft_plan_guesses(&s->speeds.costs, &s->predict.costs, n, rates);
    if (n > 0 && s->speeds.costs.n_steps > 0) { /* else nothing is known of costs */
        s->predict.is_idle = n_guesses == 0;
        s->predict.n_idle_seqs = s->n_running;
        s->predict.n_idle_steps = 0;
        s->predict.relearns = false;
    }
    for (int32_t i = 0; i < b->n_seqs; i++) {
        struct sched_seq *q = b->seqs[i];
        b->seqs[i] = q != NULL && limit_guesses(s, q, n_guesses) > 0 && add_forced(s, q, i) ? q : NULL;
        if (b->seqs[i] != NULL) {
            copy_table(s, q, i);
        }
    }
}

/* Moves sequence `from` of the batch to `to`, before it, as one with a single row. */
static void move_seq(struct sched_batch *b, int32_t to, int32_t from)
{
    b->seqs[to] = b->seqs[from];
    b->tables[to] = b->tables[from];
    b->window_tables[to] = b->window_tables[from];
    b->seq[to] = to;
}

/* Leaves out the rows of sequences that do not guess; each has one row, which nothing later reads. */
static void drop_silent(struct sched *s)
{
    struct sched_batch *b = &s->predict.batch;
    size_t width = (size_t)s->cfg.output_width;
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        if (b->seqs[i] == NULL) {
            continue;
        }
        move_seq(b, n, i);
        b->tokens[n] = b->tokens[i];
        b->pos[n] = b->pos[i];
        memmove(s->predict.input + (size_t)n * width, s->predict.input + (size_t)i * width, width_bytes(s));
        n++;
    }
    b->n_rows = b->n_seqs = n;
}

/* Asks for the logits of the last row of each sequence that guesses. */
static void ask_logits(struct sched_batch *b)
{
    for (int32_t row = 0; row < b->n_rows; row++) {
        bool is_last = row + 1 == b->n_rows || b->seq[row + 1] != b->seq[row];
        if (is_last && b->seqs[b->seq[row]] != NULL) {
            b->wants[b->n_logits] = 0;
            b->logit_rows[b->n_logits++] = row;
        }
    }
}

static bool compute(struct sched *s, float *logits)
{
    struct sched_batch *b = &s->predict.batch;
    struct err_info why = {0};
    const struct backend_batch batch = {.n_rows = b->n_rows,
                                        .tokens = b->tokens,
                                        .pos = b->pos,
                                        .seq = b->seq,
                                        .n_seqs = b->n_seqs,
                                        .page_tables = b->tables,
                                        .window_tables = s->predict.window_tables != NULL ? b->window_tables : NULL,
                                        .n_logits = b->n_logits,
                                        .logit_rows = b->logit_rows,
                                        .wants = b->wants,
                                        .logits = logits,
                                        .stats = b->stats,
                                        .best = b->best,
                                        .predicts = true,
                                        .input = s->predict.input,
                                        .output = b->n_logits != 0 ? b->output : NULL};
    uint64_t from = s->cfg.now_ns();
    enum err err = backend_compute(s->cfg.backend, s->cfg.model, &batch, &why);
    if (err == ERR_OK && b->n_rows == b->n_logits) {
        draft_costs_note(&s->predict.costs, b->n_rows, s->cfg.now_ns() - from);
    }
    s->predict.has_failed = err != ERR_OK; /* the model's next batch tells what a lost device means */
    return err == ERR_OK;
}

/* Takes the guesses of a run, and makes the rows of the next one: the guesses, for sequences that want more. */
static void take_guesses(struct sched *s)
{
    struct sched_batch *b = &s->predict.batch;
    int32_t n_rows = 0;
    for (int32_t i = 0; i < b->n_logits; i++) {
        int32_t row = b->logit_rows[i], i_seq = b->seq[row], best = b->stats[i].argmax;
        int32_t id = s->cfg.n_guess_ids != 0 ? s->cfg.guess_ids[best] : best;
        struct sched_seq *q = b->seqs[i_seq];
        bool is_sure = expf(b->stats[i].max - b->stats[i].logsumexp) >= s->cfg.guess_p_min; /* false with a NaN */
        if (is_sure) {
            q->draft.guesses[q->draft.n_guesses++] = id;
        }
        if (!is_sure || q->draft.n_guesses == q->predicted.limit || sched_is_end(q, id)) {
            b->seqs[i_seq] = NULL;
            continue;
        }
        if (!is_draft_model(s)) {
            size_t width = (size_t)s->cfg.output_width, from = (size_t)(s->cfg.guesses_in_place ? i : row);
            memcpy(s->predict.input + (size_t)n_rows * width, b->output + from * width, width_bytes(s));
        }
        b->tokens[n_rows] = id;
        b->pos[n_rows] = b->pos[row] + !s->cfg.guesses_in_place;
        move_seq(b, n_rows, i_seq); /* no row or sequence moves back */
        n_rows++;
    }
    b->n_rows = b->n_seqs = n_rows;
    b->n_logits = 0;
}

/* Returns whether generating sequences can try guesses again: with fewer of them guesses pay more, and text changes. */
static bool stops_idling(struct sched *s)
{
    struct sched_predict *p = &s->predict;
    p->relearns = ++p->n_idle_steps >= IDLE_STEPS;
    if (p->relearns) { /* the head's times are as old as its rates */
        draft_costs_fade(&p->costs, RELEARNED);
    }
    return p->relearns || (s->n_running != 0 && s->n_running < p->n_idle_seqs);
}

void sched_predict_run(struct sched *s, float *logits)
{
    struct sched_batch *b = &s->predict.batch;
    s->predict.is_idle = s->predict.is_idle && !stops_idling(s);
    if (b->n_rows > 0) {
        sched_tell_readers(s); /* the tokens sampled need not wait for the guesses */
        choose_guesses(s);
    }
    if (s->cfg.guesses_in_place) {
        drop_silent(s);
    }
    while (b->n_rows > 0) {
        ask_logits(b);
        if (!compute(s, logits)) {
            break;
        }
        take_guesses(s);
    }
    b->n_rows = b->n_seqs = b->n_logits = s->predict.n_extra = 0;
}
