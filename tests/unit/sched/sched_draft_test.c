/* With drafts a sequence gives what it gives without: the same tokens and bits of log-probabilities, whatever is
 * sampled, guessed, preempted, cached or cancelled. The fake back end repeats itself here, so many guesses come true
 * and many do not; and as it takes the same time for any number of rows, drafting pays. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_join.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

Suite *sched_draft_suite(void);

enum { MOST = 24, STEP_US = 200 };

static struct rig open_slow(struct rig_limits l)
{
    l.draft_max = l.draft_max != 0 ? l.draft_max : 15;
    l.n_remembered = l.n_remembered != 0 ? l.n_remembered : 1;
    struct rig r = rig_open(l);
    atomic_store(&r.model->delay_us, STEP_US);
    return r;
}

/* Greedy, nearly greedy and free; ends, penalties, bias, log-probabilities, prompts that are shared or told. */
static struct sched_request varied(uint64_t which, int32_t *tokens)
{
    static const int32_t lengths[] = {1, 31, 32, 33, 64, 65, 100, 129}, ends[] = {5, 11};
    static const struct sampler_bias bias[] = {{3, 2}, {8, -100}};
    static const float temperatures[] = {0, 0.2f, 0.5f, 1};
    int32_t n = lengths[which % 8];
    rig_prompt(tokens, n, which % 5);
    struct sched_request q = rig_request(tokens, n, 30 + (int32_t)(which * 13 % 140));
    q.sampling.temperature = temperatures[which / 2 % 4];
    q.sampling.seed = which;
    q.sampling.top_p = which % 3 == 0 ? 0.9f : 1;
    q.sampling.n_top = which % 3 - 1;
    if (which % 5 == 1) {
        q.sampling.ends = ends;
        q.sampling.n_ends = 2;
        q.min_tokens = (int32_t)(which % 60);
    }
    if (which % 6 == 2) {
        q.sampling.repeat_penalty = 1.1f;
        q.sampling.frequency_penalty = 0.02f;
    }
    if (which % 7 == 3) {
        q.sampling.bias = bias;
        q.sampling.n_bias = 2;
    }
    q.prompt_logprobs = which % 9 == 4;
    q.sampling.n_top = q.prompt_logprobs ? 3 : q.sampling.n_top;
    return q;
}

/* Each draft is repeated text, and has counted at its position: none is true without those before it. */
static void check_counts(const struct sched_stats *st)
{
    struct draft_count sum = draft_counts_of(&st->draft_counts, DRAFT_LOOKUP);
    const struct draft_count *at = st->draft_counts.at[DRAFT_LOOKUP];
    ck_assert_uint_eq(sum.drafted, st->drafted_tokens);
    ck_assert_uint_eq(sum.accepted, st->accepted_tokens);
    ck_assert_uint_eq(at[0].drafted, st->drafts);
    for (int i = 0; i < DRAFT_POSITIONS; i++) {
        ck_assert_uint_le(at[i].accepted, at[i].drafted);
        ck_assert(i == 0 || i == DRAFT_POSITIONS - 1 ||
                  (at[i].drafted <= at[i - 1].drafted && at[i].accepted <= at[i - 1].accepted));
    }
}

/* Runs n varied requests at once or one by one; every one as without a scheduler. */
static void check_varied(struct rig *r, uint64_t n, bool at_once, const char *what)
{
    static int32_t tokens[MOST][256];
    struct sched_seq *seqs[MOST];
    struct sched_request q[MOST];
    static struct rig_output got, expected;
    int64_t drafted = 0, accepted = 0;
    struct sched_stats before = rig_stats(r);
    for (uint64_t i = 0; i < n; i++) {
        q[i] = varied(i, tokens[i]);
    }
    for (uint64_t i = 0; i < n && at_once; i++) {
        seqs[i] = rig_submit(r, &q[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
        seqs[i] = at_once ? seqs[i] : rig_submit(r, &q[i]);
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], 320, &expected);
        rig_compare(&got, &expected, what);
        ck_assert_int_eq(got.usage.completion_tokens, expected.n + (expected.finish == SCHED_FINISH_STOP));
        ck_assert_int_le(got.usage.accepted_tokens, got.usage.drafted_tokens);
        ck_assert_int_lt(got.usage.accepted_tokens, MAX_OF(got.usage.completion_tokens, 1));
        drafted += got.usage.drafted_tokens;
        accepted += got.usage.accepted_tokens;
        ck_assert_uint_eq(got.usage.drafts[DRAFT_LOOKUP].drafted, (uint64_t)got.usage.drafted_tokens);
        ck_assert_uint_eq(got.usage.drafts[DRAFT_LOOKUP].accepted, (uint64_t)got.usage.accepted_tokens);
    }
    rig_wait_idle(r);
    struct sched_stats after = rig_stats(r);
    ck_assert_int_eq(after.drafted_tokens - before.drafted_tokens, drafted);
    ck_assert_int_eq(after.accepted_tokens - before.accepted_tokens, accepted);
    check_counts(&after);
}

enum { N_LIMITS = 7 };

/* _i from N_LIMITS on: with recurrent states, which only advance by what came true. */
START_TEST(output_is_that_of_plain_decode)
{
    static const struct rig_limits limits[N_LIMITS] = {
        {.max_seqs = 1},
        {.max_seqs = 1, .draft_max = 1},
        {.max_seqs = 1, .draft_max = 31, .n_remembered = 2},
        {.max_seqs = 3, .max_rows = 5},
        {.max_seqs = 4, .draft_max = 31, .max_rows = 64, .max_logits = 40},
        {.max_seqs = 6, .max_logits = 8},
        {.max_seqs = 16, .draft_max = 31, .n_remembered = 2},
    };
    struct rig_limits l = limits[_i % N_LIMITS];
    l.is_recurrent = _i >= N_LIMITS;
    struct rig r = open_slow(l);
    check_varied(&r, MOST, l.max_seqs > 1, "cold");
    check_varied(&r, MOST, l.max_seqs > 1, "cached");
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(st.accepted_tokens, 0);
    ck_assert_uint_lt(st.accepted_tokens, st.drafted_tokens); /* some were wrong */
    ck_assert_uint_gt(st.cached_tokens, 0);
    ck_assert_int_eq(r.model->n_advanced != 0, l.is_recurrent);
    rig_close(&r);
}
END_TEST

START_TEST(small_pools_and_preemption_change_nothing)
{
    enum { SEQS = 6 };
    static int32_t tokens[SEQS][256];
    struct sched_seq *seqs[SEQS];
    struct sched_request q[SEQS];
    static struct rig_output got, expected;
    /* Even: short prompts that grow until the pool is full; odd: a pool for one sequence, to the last page. From 2 on
     * with recurrent states. */
    struct rig r = open_slow(
        (struct rig_limits){.n_pages = 10, .n_ctx = 320, .max_seqs = _i % 2 == 0 ? SEQS : 1, .is_recurrent = _i >= 2});
    for (int i = 0; i < SEQS; i++) {
        int32_t n = 20 + 3 * i;
        rig_prompt(tokens[i], n, 200 + (uint64_t)i);
        q[i] = rig_request(tokens[i], n, _i % 2 == 0 ? 260 : -1);
        q[i].sampling.temperature = i % 2 == 0 ? 0 : 0.3f;
        q[i].sampling.seed = (uint64_t)i;
        seqs[i] = rig_submit(&r, &q[i]);
    }
    for (int i = 0; i < SEQS; i++) {
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], 320, &expected);
        rig_compare(&got, &expected, "small pool");
    }
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(st.accepted_tokens, 20);
    if (_i % 2 == 0) {
        ck_assert_uint_ge(st.preempted, 1);
    }
    rig_close(&r);
}
END_TEST

/* Of the tokens a sequence gave, whole pages are found by the next turn; never those of a rejected guess. */
START_TEST(the_cache_keeps_what_was_said_and_not_what_was_guessed)
{
    static int32_t tokens[320];
    static struct rig_output got, expected;
    int64_t n_rejected = 0;
    struct rig r = open_slow((struct rig_limits){.n_pages = 200});
    for (uint64_t which = 0; which < 12; which++) {
        rig_prompt(tokens, 40, 300 + which);
        struct sched_request q = rig_request(tokens, 40, 150);
        q.sampling.temperature = 0.4f;
        q.sampling.seed = which;
        struct sched_seq *seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        n_rejected += got.usage.drafted_tokens - got.usage.accepted_tokens;
        memcpy(tokens + 40, got.ids, 150 * sizeof *tokens); /* 190 tokens, 189 of them computed: 5 whole pages */
        rig_prompt(tokens + 190, 20, which);
        q = rig_request(tokens, 210, 40);
        q.sampling.n_top = 0;
        seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        rig_expect(&q, 320, &expected);
        rig_compare(&got, &expected, "second turn");
        ck_assert_int_eq(got.usage.cached_tokens, 160);
    }
    ck_assert_int_gt(n_rejected, 20);
    rig_close(&r);
}
END_TEST

/* Sequences that start and end in the same steps. Guesses have no more rows than they may have, and none in a step of 32 rows. */
static const struct {
    int n, draft_max;
} fullness[] = {{4, 3}, {4, 15}, {16, 15}, {32, 15}};

START_TEST(a_full_batch_drafts_nothing)
{
    enum { FULL = 32 };
    static int32_t tokens[FULL][40];
    static const int32_t one[] = {9};
    const int n = fullness[_i].n, draft_max = fullness[_i].draft_max;
    struct sched_seq *seqs[FULL];
    struct rig_output got;
    struct rig r =
        open_slow((struct rig_limits){.max_seqs = n + 1, .max_rows = 600, .n_pages = 400, .draft_max = draft_max});
    rig_hold(&r);
    struct sched_request q = rig_request(one, 1, 1);
    struct sched_seq *first = rig_submit(&r, &q);
    for (int i = 0; i < n; i++) {
        rig_prompt(tokens[i], 40, (uint64_t)i);
        q = rig_request(tokens[i], 40, 200);
        seqs[i] = rig_submit(&r, &q);
    }
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < n; i++) {
        rig_collect(&seqs[i], &got);
        ck_assert_int_eq(got.n, 200);
    }
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_le(st.drafted_tokens, (uint64_t)(MIN_OF(MAX_OF(2 * n, draft_max + 1), FULL) - n) * st.steps);
    if (n == FULL) {
        ck_assert_uint_ge(st.steps, 199); /* the last one is counted after its tokens are out */
    } else {
        ck_assert_uint_gt(st.accepted_tokens, 100);
        ck_assert_uint_lt(st.steps, draft_max == 15 && n == 4 ? 150 : 199);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_copy_takes_few_steps_and_a_new_text_no_wasted_rows)
{
    static int32_t tokens[40];
    static struct rig_output got;
    rig_prompt(tokens, 40, 1);
    struct sched_request q = rig_request(tokens, 40, 250);
    struct rig r = open_slow((struct rig_limits){0});
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    ck_assert_uint_lt(rig_stats(&r).steps, 120); /* it ends in a loop */
    rig_close(&r);
    q.sampling.temperature = 4; /* hardly a guess comes true */
    r = open_slow((struct rig_limits){0});
    seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    ck_assert_int_lt(got.usage.drafted_tokens, 40);
    rig_close(&r);
}
END_TEST

/* Reads until the back end stands still in a batch with drafts. Returns how many tokens came. */
static int32_t stop_in_a_draft(struct rig *r, struct sched_seq *seq, int32_t *ids)
{
    struct sched_event ev;
    for (int32_t n = 0;; n++) {
        ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
        ck_assert_msg(ev.kind == SCHED_TOKEN, "it ended without a draft after %d tokens", n);
        ids[n] = ev.token.id;
        if (n < 20) {
            continue; /* it has to see itself repeat first */
        }
        rig_hold(r);
        rig_wait_held(r);
        if (atomic_load(&r->model->n_last) > 1) {
            return n + 1;
        }
        rig_go_on(r);
    }
}

/* Cancelled while a batch with drafts is being computed: gone with that step, and nothing is left. */
START_TEST(cancelled_in_the_middle_of_a_draft)
{
    static int32_t tokens[40], ids[RIG_MAX_OUT];
    static struct rig_output got, expected;
    struct rig r = open_slow((struct rig_limits){.n_ctx = 1000, .n_pages = 100});
    for (int i = 0; i < 8; i++) {
        rig_prompt(tokens, 40, 50 + (uint64_t)i);
        struct sched_request q = rig_request(tokens, 40, 900);
        struct sched_seq *seq = rig_submit(&r, &q);
        int32_t n = stop_in_a_draft(&r, seq, ids);
        sched_cancel(seq);
        rig_go_on(&r);
        rig_collect(&seq, &got);
        ck_assert_int_eq(got.err, ERR_CANCELLED);
        rig_expect(&q, 1000, &expected);
        ck_assert_int_lt(n + got.n, expected.n);
        memcpy(ids + n, got.ids, (size_t)got.n * sizeof *ids);
        ck_assert_mem_eq(ids, expected.ids, (size_t)(n + got.n) * sizeof *ids);
        rig_wait_idle(&r); /* no page held */
    }
    ck_assert_uint_eq(rig_stats(&r).cancelled_decode, 8);
    rig_close(&r);
}
END_TEST

/* A row of NaN counts only when its token was said. */
START_TEST(trouble_after_a_wrong_guess_is_nobodys)
{
    static int32_t tokens[40];
    static struct rig_output plain, got;
    int n_failed = 0, n_fine = 0;
    for (int32_t bad = 0; bad < 20; bad++) {
        rig_prompt(tokens, 40, 70);
        for (int32_t i = 0; i < 40; i++) { /* not in the prompt */
            tokens[i] = tokens[i] == bad ? 63 : tokens[i];
        }
        struct sched_request q = rig_request(tokens, 40, 200);
        q.sampling.temperature = 0.25f;
        q.sampling.seed = 4;
        for (int on = 0; on < 2; on++) {
            struct rig r = open_slow((struct rig_limits){.draft_max = 15});
            if (on == 0) {
                rig_close(&r);
                r = rig_open((struct rig_limits){.n_remembered = 1});
            }
            atomic_store(&r.model->nan_token, bad);
            struct sched_seq *seq = rig_submit(&r, &q);
            rig_collect(&seq, on == 0 ? &plain : &got);
            rig_wait_idle(&r);
            ck_assert(on == 0 || (uint64_t)got.usage.drafted_tokens == rig_stats(&r).drafted_tokens);
            ck_assert(on == 0 || (uint64_t)got.usage.accepted_tokens == rig_stats(&r).accepted_tokens);
            rig_close(&r);
        }
        rig_compare(&got, &plain, "a token with NaN behind it");
        n_failed += got.err == ERR_NUMERICAL;
        n_fine += got.err == ERR_OK;
    }
    ck_assert_int_gt(n_failed, 0);
    ck_assert_int_gt(n_fine, 0);
}
END_TEST

/* Its ring is full again and again, and a draft must fit what is left of it. */
START_TEST(a_slow_reader_gets_everything)
{
    static int32_t tokens[40];
    static struct rig_output got, expected;
    struct rig r = open_slow((struct rig_limits){.n_ctx = 1000, .n_pages = 100, .draft_max = 31});
    rig_prompt(tokens, 40, 8);
    struct sched_request q = rig_request(tokens, 40, 900);
    rig_expect(&q, 1000, &expected);
    struct sched_seq *seq = rig_submit(&r, &q);
    struct sched_event ev;
    for (int32_t n = 0; n < 600; n++) {
        if (n % 30 == 0) {
            nanosleep(&(struct timespec){0, n == 0 ? 150000000 : 15000000}, NULL);
        }
        ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
        if (ev.kind != SCHED_TOKEN || ev.token.id != expected.ids[n]) {
            ck_abort_msg("token %d is %d, expected %d", n, ev.token.id, expected.ids[n]);
        }
    }
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.n, 300);
    ck_assert_mem_eq(got.ids, expected.ids + 600, 300 * sizeof *got.ids);
    ck_assert_int_gt(got.usage.accepted_tokens, 300);
    rig_close(&r);
}
END_TEST

START_TEST(prompts_are_not_kept_waiting_by_drafts)
{
    static int32_t tokens[40], prompts[6][300];
    struct rig_output got;
    struct rig r = open_slow((struct rig_limits){.n_ctx = 1000, .n_pages = 200, .max_rows = 64});
    rig_prompt(tokens, 40, 1);
    struct sched_request q = rig_request(tokens, 40, 900);
    struct sched_seq *one = rig_submit(&r, &q);
    for (int i = 0; i < 6; i++) {
        rig_prompt(prompts[i], 300, 20 + (uint64_t)i);
        q = rig_request(prompts[i], 300, 2);
        struct sched_seq *seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        struct sched_event ev;
        for (int k = 0; k < 25; k++) { /* it drafts in between */
            ck_assert_int_eq(sched_next(one, 20000, &ev), ERR_OK);
        }
    }
    rig_collect(&one, &got);
    ck_assert_int_gt(got.usage.accepted_tokens, 100);
    ck_assert_int_eq(r.model->n_mixed, 0);
    rig_close(&r);
}
END_TEST

START_TEST(drafting_allocates_nothing)
{
    static int32_t tokens[2][100];
    struct sched_event ev;
    struct rig_output got;
    struct rig r = open_slow((struct rig_limits){.n_pages = 10});
    struct sched_seq *seqs[2];
    rig_hold(&r);
    for (int i = 0; i < 2; i++) {
        rig_prompt(tokens[i], 100, (uint64_t)i);
        struct sched_request q = rig_request(tokens[i], 100, 200);
        q.sampling.n_top = 5;
        seqs[i] = rig_submit(&r, &q);
    }
    mem_fail_at(0); /* the first allocation of any kind would fire */
    rig_go_on(&r);
    for (int i = 0; i < 150; i++) {
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(sched_next(seqs[k], 20000, &ev), ERR_OK);
        }
    }
    ck_assert(!mem_fault_fired());
    mem_fail_at(-1);
    ck_assert_uint_gt(rig_stats(&r).accepted_tokens, 50);
    for (int k = 0; k < 2; k++) {
        rig_collect(&seqs[k], &got);
        ck_assert_int_eq(got.err, ERR_OK);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_limit_out_of_range_is_refused)
{
    static const int32_t bad[] = {-1, 32};
    for (int i = 0; i < 2; i++) {
        struct backend_model *m = fake_backend_new(10, 32, 8);
        struct sched_config cfg = {.backend = &fake_backend,
                                   .model = m,
                                   .n_vocab = FAKE_VOCAB,
                                   .n_ctx = 320,
                                   .n_pages = 10,
                                   .max_rows = 32,
                                   .max_logits = 8,
                                   .max_seqs = 4,
                                   .queue_max = 4,
                                   .draft_max = bad[i]};
        struct sched *s;
        struct err_info info = {0};
        ck_assert_int_eq(sched_new(&cfg, &s, &info), ERR_CONFIG);
        ck_assert_ptr_null(s);
        fake_backend_free(&m);
    }
}
END_TEST

/* --- on a real model -------------------------------------------------------------------------------------------- */

static const struct backend *real;

static _Atomic uint64_t real_ns = 1;

static uint64_t real_now_ns(void) { return atomic_load(&real_ns); }

/* A text of three words repeats itself, and guesses come true. */
static const struct sampler_bias few[] = {{5, 30}, {17, 30}, {99, 30}};
static size_t real_vocab;

/* Makes the head guess one of the words. */
static void bias_guess(const float *logits, struct backend_row_stats *st)
{
    st->argmax = few[0].id;
    for (size_t i = 1; i < ARRAY_LEN(few); i++) {
        st->argmax = logits[few[i].id] > logits[st->argmax] ? few[i].id : st->argmax;
    }
}

/* The real back end, but any step takes a millisecond of the scheduler's clock, and the head a tenth of that, so that
 * drafting pays on a tiny model and a busy machine. */
static enum err slow_begin(struct backend_model *m, const struct backend_batch *b, struct err_info *info)
{
    atomic_fetch_add(&real_ns, b->predicts ? 100000 : 1000000);
    enum err err = real->begin(m, b, info);
    for (int32_t i = 0; b->predicts && err == ERR_OK && i < b->n_logits; i++) {
        bias_guess(b->logits + (size_t)i * real_vocab, &b->stats[i]);
    }
    return err;
}

enum { REAL_TOKENS = 90, REAL_REQUESTS = 6, REAL_SEQS = 3 };

/* Six requests together on a tiny model. */
static void run_real(const struct plan *plan, int32_t draft_max, struct rig_output *out, struct sched_stats *st)
{
    struct backend slow = *real;
    int32_t n_states = plan->recurrent_floats != 0 ? REAL_SEQS + 2 : 0;
    struct backend_config bc = {.n_threads = 2,
                                .n_pages = 64,
                                .n_windows = plan_local_window(plan) != 0 ? 64 : 0,
                                .n_states = n_states,
                                .max_drafts = n_states != 0 ? draft_max : 0,
                                .max_rows = 64 + REAL_SEQS,
                                .max_logits = 48};
    struct err_info info = {0};
    struct sched_config cfg = {.n_vocab = (int32_t)plan->n_vocab,
                               .n_ctx = 256,
                               .n_pages = 64,
                               .max_rows = 64,
                               .max_logits = 48,
                               .max_seqs = REAL_SEQS,
                               .n_states = n_states,
                               .queue_max = 16,
                               .draft_max = draft_max,
                               .window = plan_window(plan),
                               .n_windows = bc.n_windows,
                               .local_window = plan_local_window(plan),
                               .predicts = draft_max != 0 && plan_predicts(plan),
                               .output_width = draft_max != 0 ? (int32_t)plan->output_width : 0,
                               .guesses_in_place = draft_max != 0 && plan->guesses_in_place,
                               .now_ns = real_now_ns};
    struct sched *s;
    slow.begin = slow_begin;
    const struct backend *b = rig_backend(&slow, &cfg);
    ck_assert_int_eq(b->open(plan, &bc, &cfg.model, &info), ERR_OK);
    ck_assert_int_eq(sched_new(&cfg, &s, &info), ERR_OK);
    real_vocab = plan->n_vocab;
    struct sched_seq *seqs[REAL_REQUESTS];
    for (int i = 0; i < REAL_REQUESTS; i++) {
        int32_t tokens[REAL_TOKENS];
        for (int k = 0; k < REAL_TOKENS; k++) { /* a stretch three times over */
            tokens[k] = (k % 30 * 29 + 11 + i * 5) % 250;
        }
        struct sched_request q = rig_request(tokens, REAL_TOKENS, 120);
        q.sampling.n_top = 2;
        q.sampling.temperature = i % 2 == 0 ? 0 : 0.3f;
        q.sampling.seed = 7 + (uint64_t)i;
        q.sampling.top_k = i == 3 ? 5 : 0;
        q.sampling.repeat_penalty = i == 4 ? 1.01f : 1;
        q.sampling.bias = few;
        q.sampling.n_bias = ARRAY_LEN(few);
        ck_assert_int_eq(sched_submit_all(s, NULL, &q, 1, &seqs[i], &info), ERR_OK);
    }
    for (int i = 0; i < REAL_REQUESTS; i++) {
        rig_collect(&seqs[i], &out[i]);
        ck_assert_int_eq(out[i].n, 120);
    }
    sched_get_stats(s, st);
    sched_free(&s);
    b->close(&cfg.model);
}

static const struct {
    const char *name;
    bool on_ref;
    const char *draft; /* OPTIONAL: its draft model */
} real_models[] = {{"llama-quants", false, NULL},
                   {"qwen2-bias", false, NULL},
                   {"llama-quants", false, "gemma3-local"},
                   {"gemma3-local", false, "gpt-oss-sinks"},
                   {"glm4moe-head", false, NULL},
                   {"deepseek2-head", false, NULL},
                   {"lfm2-conv", false, NULL},
                   {"granitehybrid-experts", false, NULL},
                   {"granitehybrid-dense", true, NULL},
                   {"qwen35-head", false, NULL},
                   {"lfm2-conv", false, "llama-quants"},
                   {"gemma3-window", true, "llama-quants"},
                   {"qwen3next-delta", false, NULL},
                   {"qwen35moe-delta", false, NULL},
                   {"qwen35-delta", true, NULL},
                   {"qwen35-head", true, NULL}};

enum { N_REAL = ARRAY_LEN(real_models), N_FEW = 11 }; /* of each kind of model and draft one */

START_TEST(a_model_says_the_same_bit_by_bit)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", real_models[_i].name);
    static struct rig_output plain[REAL_REQUESTS], drafted[REAL_REQUESTS];
    struct gguf *g, *draft_file = NULL;
    struct plan *plan, *draft = NULL;
    struct err_info info = {0};
    struct sched_stats st;
    real = real_models[_i].on_ref ? &backend_ref : &backend_cpu;
    ck_assert_int_eq(gguf_open(path, &g, &info), ERR_OK);
    ck_assert_int_eq(model_build_predicting(g, 0, &plan, &info), ERR_OK);
    if (real_models[_i].draft != NULL) {
        snprintf(path, sizeof path, "tests/golden/models/%s.gguf", real_models[_i].draft);
        ck_assert_int_eq(gguf_open(path, &draft_file, &info), ERR_OK);
        ck_assert_int_eq(model_build(draft_file, 0, &draft, &info), ERR_OK);
        ck_assert_msg(plan_join(plan, draft, &info) == ERR_OK, "%s", info.text);
    }
    run_real(plan, 0, plain, &st);
    ck_assert_uint_eq(st.drafted_tokens, 0);
    run_real(plan, 15, drafted, &st);
    ck_assert_uint_gt(st.accepted_tokens, 0);
    enum draft_source guesser = real_models[_i].draft != NULL ? DRAFT_MODEL : DRAFT_HEAD;
    ck_assert_int_eq(draft_counts_of(&st.draft_counts, guesser).accepted > 0, plan_predicts(plan));
    for (int i = 0; i < REAL_REQUESTS; i++) {
        rig_compare(&drafted[i], &plain[i], path);
    }
    plan_free(&plan);
    plan_free(&draft);
    gguf_close(&draft_file);
    gguf_close(&g);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_loop_test(t, output_is_that_of_plain_decode, 0, N_LIMITS);
    tcase_add_loop_test(t, small_pools_and_preemption_change_nothing, 0, 2);
    tcase_add_test(t, the_cache_keeps_what_was_said_and_not_what_was_guessed);
    tcase_add_loop_test(t, a_full_batch_drafts_nothing, 0, (int)ARRAY_LEN(fullness));
    tcase_add_test(t, a_copy_takes_few_steps_and_a_new_text_no_wasted_rows);
    tcase_add_test(t, cancelled_in_the_middle_of_a_draft);
    tcase_add_test(t, trouble_after_a_wrong_guess_is_nobodys);
    tcase_add_test(t, a_slow_reader_gets_everything);
    tcase_add_test(t, prompts_are_not_kept_waiting_by_drafts);
    tcase_add_test(t, drafting_allocates_nothing);
    tcase_add_test(t, a_limit_out_of_range_is_refused);
    return t;
}

/* With recurrent states. */
static TCase *state_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_set_tags(t, "states");
    tcase_add_loop_test(t, output_is_that_of_plain_decode, N_LIMITS + 3, 2 * N_LIMITS);
    tcase_add_loop_test(t, small_pools_and_preemption_change_nothing, 2, 4);
    return t;
}

/* With whole models; tags: see tests/run.sh. */
static TCase *model_tests(const char *name, const char *tags, int from, int to)
{
    TCase *t = tcase_create(name);
    tcase_set_tags(t, tags);
    tcase_add_loop_test(t, a_model_says_the_same_bit_by_bit, from, to);
    return t;
}

Suite *sched_draft_suite(void)
{
    Suite *s = suite_create("sched_draft");
    TCase *remote[] = {all_tests("sched_draft_remote"), state_tests("sched_draft_states_remote"),
                       model_tests("sched_draft_models_remote", "model long", 0, N_REAL)};
    suite_add_tcase(s, all_tests("sched_draft"));
    suite_add_tcase(s, state_tests("sched_draft_states"));
    suite_add_tcase(s, model_tests("sched_draft_models", "model", 0, N_FEW));
    suite_add_tcase(s, model_tests("sched_draft_more_models", "model long", N_FEW, N_REAL));
    for (size_t i = 0; i < ARRAY_LEN(remote); i++) {
        tcase_add_checked_fixture(remote[i], rig_go_remote, NULL);
        suite_add_tcase(s, remote[i]);
    }
    return s;
}
