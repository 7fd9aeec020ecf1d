/* What a sequence gives depends on its request alone: not on neighbours, chunks, cached prefixes, preemption or pauses.
 */
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <math.h>
#include <string.h>
#include <time.h>

Suite *sched_suite(void);

static void sample_freely(struct sched_request *q, uint64_t seed)
{
    q->sampling.temperature = 1;
    q->sampling.top_p = 0.9f;
    q->sampling.seed = seed;
}

/* Requests of all shapes: lengths around the page, greedy and sampled, with end ids, penalties and salts. */
static struct sched_request mixed_request(uint64_t which, int32_t *tokens)
{
    static const int32_t lengths[] = {1, 31, 32, 33, 63, 64, 65, 100, 129, 200};
    static const int32_t ends[] = {5, 11};
    int32_t n = lengths[which % 10];
    rig_prompt(tokens, n, which % 7); /* some share their beginning */
    struct sched_request q = rig_request(tokens, n, 1 + (int32_t)(which * 13 % 80));
    if (which % 3 != 0) {
        sample_freely(&q, which);
    }
    if (which % 4 == 1) {
        q.sampling.ends = ends;
        q.sampling.n_ends = 2;
        q.min_tokens = (int32_t)(which % 8);
    }
    if (which % 6 == 2) {
        q.sampling.repeat_penalty = 1.3f;
        q.sampling.frequency_penalty = 0.5f;
    }
    q.prompt_logprobs = which % 9 == 4;
    q.sampling.n_top = q.prompt_logprobs ? 3 : -1;
    q.salt = which % 2 == 0 ? NULL : "tenant";
    return q;
}

static void check_against_alone(struct rig *r, uint64_t n, int32_t n_ctx, const char *what)
{
    enum { MOST = 40 };
    static int32_t tokens[MOST][256];
    struct sched_seq *seqs[MOST];
    struct sched_request q[MOST];
    static struct rig_output got, expected;
    for (uint64_t i = 0; i < n; i++) {
        q[i] = mixed_request(i, tokens[i]);
        seqs[i] = rig_submit(r, &q[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], n_ctx, &expected);
        rig_compare(&got, &expected, what);
        ck_assert_int_eq(got.usage.prompt_tokens, q[i].n_tokens);
        ck_assert_int_eq(got.usage.completion_tokens, expected.n + (expected.finish == SCHED_FINISH_STOP));
        ck_assert_int_lt(got.usage.cached_tokens, q[i].n_tokens);
    }
    rig_wait_idle(r);
}

START_TEST(output_does_not_depend_on_batch_or_chunks)
{
    static const struct rig_limits limits[] = {
        {.max_seqs = 1, .max_rows = 1},
        {.max_seqs = 1, .max_rows = 7},
        {.max_seqs = 3, .max_rows = 31},
        {.max_seqs = 16, .max_rows = 16},
        {.max_seqs = 16, .max_rows = 33},
        {.max_seqs = 16, .max_rows = 512},
        {.max_seqs = 16, .max_rows = 64, .max_logits = 16},
    };
    struct rig r = rig_open(limits[_i]);
    check_against_alone(&r, 40, 320, "cold");
    check_against_alone(&r, 40, 320, "cached");
    ck_assert_uint_gt(rig_stats(&r).cached_tokens, 0);
    if (limits[_i].max_seqs == 16) {
        ck_assert_int_ge(r.model->n_wide, 8); /* they really ran together */
    }
    rig_close(&r);
}
END_TEST

START_TEST(prompt_is_found_again_but_its_last_token_is_computed)
{
    static const int32_t lengths[] = {1, 32, 33, 64, 65, 97, 200};
    static const int32_t cached[] = {0, 0, 32, 32, 64, 96, 192};
    int32_t tokens[200];
    struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i == 1});
    for (int i = 0; i < 7; i++) {
        rig_prompt(tokens, lengths[i], 100 + (uint64_t)i);
        struct sched_request q = rig_request(tokens, lengths[i], 4);
        rig_expect(&q, 320, &expected);
        for (int again = 0; again < 2; again++) {
            struct sched_seq *seq = rig_submit(&r, &q);
            rig_collect(&seq, &got);
            rig_compare(&got, &expected, "prompt");
            ck_assert_int_eq(got.usage.cached_tokens, again == 0 ? 0 : cached[i]);
        }
    }
    rig_close(&r);
}
END_TEST

START_TEST(generated_pages_are_found_by_the_next_turn)
{
    int32_t tokens[200];
    struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i == 1});
    rig_prompt(tokens, 40, 1);
    struct sched_request q = rig_request(tokens, 40, 70);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    memcpy(tokens + 40, got.ids, 70 * sizeof *tokens); /* 110 tokens, 109 of them computed: 3 whole pages */
    rig_prompt(tokens + 110, 20, 2);
    q = rig_request(tokens, 130, 8);
    seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    rig_expect(&q, 320, &expected);
    rig_compare(&got, &expected, "second turn");
    ck_assert_int_eq(got.usage.cached_tokens, 96);
    rig_close(&r);
}
END_TEST

START_TEST(salts_share_nothing)
{
    int32_t tokens[100];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i == 1});
    rig_prompt(tokens, 100, 1);
    static const char *const salts[] = {NULL, "a", "b", "a", NULL};
    static const int32_t cached[] = {0, 0, 0, 96, 96};
    for (int i = 0; i < 5; i++) {
        struct sched_request q = rig_request(tokens, 100, 1);
        q.salt = salts[i];
        struct sched_seq *seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        ck_assert_int_eq(got.usage.cached_tokens, cached[i]);
    }
    rig_close(&r);
}
END_TEST

/* Submits n requests with one cold prompt of 300 tokens while the back end is held by a first, unrelated one. */
static void submit_together(struct rig *r, int n, const int32_t *tokens, struct sched_seq **seqs,
                            struct sched_seq **first)
{
    static const int32_t one[] = {9};
    rig_hold(r);
    struct sched_request q = rig_request(one, 1, 1);
    *first = rig_submit(r, &q);
    for (int i = 0; i < n; i++) {
        q = rig_request(tokens, 300, 5);
        sample_freely(&q, 77);
        q.sampling.choice = (uint32_t)i;
        seqs[i] = rig_submit(r, &q);
    }
}

START_TEST(sixteen_with_one_cold_prefix_compute_it_once)
{
    int32_t tokens[300];
    struct sched_seq *seqs[16], *first;
    struct rig_output got, expected;
    rig_prompt(tokens, 300, 3);
    /* Either roomy, or a pool in which sixteen unshared prompts could not run together. */
    struct rig r =
        rig_open((struct rig_limits){.n_pages = _i == 1 ? 30 : 256, .max_rows = 50, .is_recurrent = _i == 2});
    submit_together(&r, 16, tokens, seqs, &first);
    rig_go_on(&r);
    rig_collect(&first, &got);
    bool differs = false;
    int32_t zero[5];
    for (int i = 0; i < 16; i++) {
        rig_collect(&seqs[i], &got);
        struct sched_request q = rig_request(tokens, 300, 5);
        sample_freely(&q, 77);
        q.sampling.choice = (uint32_t)i;
        rig_expect(&q, 320, &expected);
        rig_compare(&got, &expected, "choice");
        if (i == 0) {
            memcpy(zero, got.ids, sizeof zero);
        }
        differs = differs || memcmp(zero, got.ids, sizeof zero) != 0;
    }
    ck_assert_msg(differs, "all choices gave the same text");
    ck_assert_int_eq(r.model->n_rows, 1 + 288 + 16 * 12 + 16 * 4); /* prefix once; rest of prompt and tokens for each */
    ck_assert_int_ge(r.model->n_wide, 15);
    rig_close(&r);
}
END_TEST

START_TEST(waiter_takes_over_when_the_owner_leaves)
{
    int32_t tokens[300];
    struct sched_seq *seqs[6], *first;
    struct rig_output got;
    rig_prompt(tokens, 300, 4);
    struct rig r = rig_open((struct rig_limits){.n_pages = 128, .max_rows = 40});
    submit_together(&r, 6, tokens, seqs, &first);
    atomic_store(&r.model->delay_us, 3000);
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < 5; i++) { /* each owner leaves in turn, in mid-prefix */
        long before = r.model->n_rows;
        for (int k = 0; k < 1000 && r.model->n_rows < before + 40;
             k++) { /* on a busy machine all may be computed already */
            nanosleep(&(struct timespec){0, 200000}, NULL);
        }
        sched_release(&seqs[i]);
    }
    rig_collect(&seqs[5], &got);
    ck_assert_int_eq(got.err, ERR_OK);
    ck_assert_int_eq(got.n, 5);
    ck_assert_int_lt(r.model->n_rows, 600); /* what was complete was not computed again */
    rig_close(&r);
}
END_TEST

START_TEST(recurrent_sequences_go_on_from_kept_states)
{
    static const struct rig_limits limits[] = {
        {.is_recurrent = true, .max_rows = 33, .n_pages = 500, .n_kept_states = 100}, /* room for all there is */
        {.is_recurrent = true, .max_rows = 512, .n_pages = 500, .n_kept_states = 100},
        {.is_recurrent = true, .max_seqs = 5, .max_rows = 7, .n_pages = 500, .n_kept_states = 100},
        {.is_recurrent = true, .max_seqs = 1, .max_rows = 1, .n_pages = 256, .n_kept_states = 40},
        {.is_recurrent = true, .n_pages = 12},      /* too few for all that run */
        {.is_recurrent = true, .n_kept_states = 1}, /* which all that run want */
    };
    struct rig r = rig_open(limits[_i]);
    check_against_alone(&r, 40, 320, "recurrent");
    check_against_alone(&r, 40, 320, "recurrent, again");
    ck_assert_msg(rig_stats(&r).cached_tokens > 0 || _i > 3, "nothing was found again");
    ck_assert_int_gt(r.model->n_copies, 0);
    rig_close(&r);
}
END_TEST

START_TEST(preempted_sequences_give_the_same)
{
    enum { N = 8 };
    static int32_t tokens[N][256];
    struct sched_seq *seqs[N];
    struct sched_request q[N];
    static struct rig_output got, expected;
    /* Even: eight that need 90 % of the pool each; odd: short prompts that grow until the pool is full. */
    struct rig r = rig_open((struct rig_limits){.n_pages = 10, .n_ctx = 320, .is_recurrent = _i >= 2});
    for (int i = 0; i < N; i++) {
        int32_t n = _i % 2 == 0 ? 250 : 20 + 3 * i;
        rig_prompt(tokens[i], n, 200 + (uint64_t)i);
        q[i] = rig_request(tokens[i], n, _i % 2 == 0 ? 38 : 260);
        sample_freely(&q[i], (uint64_t)i);
        seqs[i] = rig_submit(&r, &q[i]);
    }
    for (int i = 0; i < N; i++) {
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], 320, &expected);
        rig_compare(&got, &expected, "preempted");
        ck_assert_int_le(got.usage.cached_tokens, q[i].n_tokens);
    }
    const struct sched_stats st = rig_stats(&r);
    ck_assert_uint_le(st.most_preempted, 3);
    if (_i % 2 == 1) {
        ck_assert_uint_ge(st.most_preempted, 2);
    }
    rig_close(&r);
}
END_TEST

START_TEST(prompt_log_probabilities_come_in_order)
{
    int32_t tokens[150];
    struct rig r = rig_open((struct rig_limits){.max_seqs = 2, .max_logits = 2});
    rig_prompt(tokens, 150, 5);
    struct sched_request other = rig_request(tokens, 150, 170), q = rig_request(tokens, 150, 2);
    rig_hold(&r);
    struct sched_seq *neighbour =
        rig_submit(&r, &other); /* decodes all the while and takes one of the two logit rows */
    q.prompt_logprobs = true;
    q.sampling.n_top = 2;
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_go_on(&r);
    for (int32_t i = 0; i < 152; i++) {
        struct sched_event ev;
        ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
        ck_assert_int_eq(ev.kind, i < 150 ? SCHED_PROMPT_TOKEN : SCHED_TOKEN);
        float logits[FAKE_VOCAB];
        double sum = 0;
        fake_backend_logits(tokens, i < 150 ? i : 0, logits);
        for (int k = 0; k < FAKE_VOCAB; k++) {
            sum += exp(logits[k]);
        }
        if (i < 150) {
            ck_assert_int_eq(ev.token.id, tokens[i]);
        }
        if (i == 0) {
            ck_assert(isnan(ev.token.logprob) && ev.token.n_top == 0);
        } else if (i < 150) {
            ck_assert_double_eq_tol(ev.token.logprob, logits[tokens[i]] - log(sum), 1e-5);
            ck_assert_int_eq(ev.token.n_top, 2);
            ck_assert(ev.token.top[0].logprob >= ev.token.top[1].logprob);
        }
    }
    struct rig_output got;
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.usage.cached_tokens, 0);
    rig_collect(&neighbour, &got);
    ck_assert_int_eq(got.n, 170);
    ck_assert_uint_lt(rig_stats(&r).steps, 200); /* one after the other they take 173 + 76 */
    rig_close(&r);
}
END_TEST

START_TEST(prompts_with_log_probabilities_are_found_again)
{
    int32_t tokens[100];
    struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i == 1});
    rig_prompt(tokens, 100, 5);
    static const int32_t cached[] = {0, 0, 96, 0, 96}; /* they use no pages, but leave them */
    for (int i = 0; i < 5; i++) {
        struct sched_request q = rig_request(tokens, 100, 4);
        q.prompt_logprobs = cached[i] == 0;
        q.sampling.n_top = q.prompt_logprobs ? 2 : -1;
        struct sched_seq *seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        rig_expect(&q, 320, &expected);
        rig_compare(&got, &expected, "prompt");
        ck_assert_int_eq(got.usage.cached_tokens, cached[i]);
    }
    rig_close(&r);
}
END_TEST

START_TEST(limits_of_length_are_kept)
{
    int32_t tokens[320];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){0});
    rig_prompt(tokens, 320, 6);
    static const struct {
        int32_t n_tokens, max_tokens, expected;
    } rows[] = {{100, 0, 0}, {100, 1, 1}, {319, -1, 1}, {319, 50, 1}, {320, 0, 0}, {300, -1, 20}, {64, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sched_request q = rig_request(tokens, rows[i].n_tokens, rows[i].max_tokens);
        struct sched_seq *seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        ck_assert_int_eq(got.err, ERR_OK);
        ck_assert_int_eq(got.n, rows[i].expected);
        ck_assert_int_eq(got.finish, SCHED_FINISH_LENGTH);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_reader_that_stops_is_cut_and_holds_up_nobody)
{
    int32_t tokens[40];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.n_ctx = 1000, .n_pages = 100, .stall_ns = 300000000});
    rig_prompt(tokens, 40, 8);
    struct sched_request q = rig_request(tokens, 40, 900);
    struct sched_seq *stopped = rig_submit(&r, &q);
    for (int i = 0; i < 3; i++) { /* the same prompt: shares pages with the one that stands still */
        struct sched_request other = rig_request(tokens, 40, 400);
        struct sched_seq *seq = rig_submit(&r, &other);
        rig_collect(&seq, &got);
        ck_assert_int_eq(got.err, ERR_OK);
        ck_assert_int_eq(got.n, 400);
    }
    rig_wait_idle(&r); /* cut: its pages come back although nobody read */
    ck_assert_uint_eq(rig_stats(&r).cancelled_decode, 1);
    rig_collect(&stopped, &got);
    ck_assert_int_eq(got.err, ERR_SLOW_READER);
    ck_assert_int_ge(got.n, 100); /* what was in the ring may still be read */
    ck_assert_int_lt(got.n, 300);
    rig_close(&r);
}
END_TEST

/* They hand their places over, the first of all too, and get one again once they read. */
START_TEST(readers_that_stop_hold_no_place)
{
    enum { STOPPED = 3, OTHERS = 4 };
    int32_t tokens[40];
    static struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.n_ctx = 1000, .n_pages = 200, .max_seqs = STOPPED});
    struct sched_request q[STOPPED];
    struct sched_seq *stopped[STOPPED];
    for (int i = 0; i < STOPPED; i++) {
        rig_prompt(tokens, 40, (uint64_t)i);
        q[i] = rig_request(tokens, 40, 900);
        stopped[i] = rig_submit(&r, &q[i]);
    }
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < OTHERS; i++) {
        rig_prompt(tokens, 40, (uint64_t)(10 + i));
        struct sched_request other = rig_request(tokens, 40, 400);
        struct sched_seq *seq = rig_submit(&r, &other);
        rig_collect(&seq, &got);
        rig_expect(&other, 1000, &expected);
        rig_compare(&got, &expected, "beside those that stopped");
    }
    ck_assert_uint_lt(clock_now_ns() - begin, 25000000000u); /* and not when they are cut */
    for (int i = 0; i < STOPPED; i++) {
        rig_prompt(tokens, 40, (uint64_t)i);
        rig_collect(&stopped[i], &got);
        rig_expect(&q[i], 1000, &expected);
        rig_compare(&got, &expected, "read on");
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_slow_reader_gets_everything)
{
    int32_t tokens[40];
    static struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.n_ctx = 1000, .n_pages = 100});
    rig_prompt(tokens, 40, 8);
    struct sched_request q = rig_request(tokens, 40, 900);
    struct sched_seq *seq = rig_submit(&r, &q);
    nanosleep(&(struct timespec){0, 100000000}, NULL); /* long enough to fill the ring */
    rig_collect(&seq, &got);
    rig_expect(&q, 1000, &expected);
    rig_compare(&got, &expected, "slow reader");
    rig_close(&r);
}
END_TEST

START_TEST(an_idle_scheduler_sleeps)
{
    int32_t tokens[] = {1, 2, 3};
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){0});
    struct sched_request q = rig_request(tokens, 3, 3);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    rig_wait_idle(&r);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double ms = (double)(after.tv_sec - before.tv_sec) * 1e3 + (double)(after.tv_nsec - before.tv_nsec) / 1e6;
    ck_assert_double_lt(ms, 30);
    ck_assert_uint_eq(rig_stats(&r).last_step_age_ms, 0);
    rig_close(&r);
}
END_TEST

START_TEST(a_step_that_hangs_can_be_seen)
{
    int32_t tokens[40];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){0});
    rig_prompt(tokens, 40, 3);
    struct sched_request q = rig_request(tokens, 40, 2);
    rig_hold(&r);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_wait_held(&r);
    nanosleep(&(struct timespec){0, 60000000}, NULL);
    struct sched_stats s = rig_stats(&r);
    ck_assert_uint_ge(s.last_step_age_ms, 50);
    ck_assert(s.at == SCHED_AT_BEGIN || s.at == SCHED_AT_BACKEND);
    ck_assert_str_eq(sched_place_name(SCHED_AT_BACKEND), "backend");
    ck_assert_uint_eq(s.usual_step_ms, 0); /* nothing is known yet */
    rig_go_on(&r);
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.n, 2);
    rig_wait_idle(&r);
    s = rig_stats(&r);
    ck_assert_uint_ge(s.usual_step_ms, s.step_ns / s.steps / 1000000u);
    while (s.at != SCHED_AT_REST || s.last_step_age_ms != 0) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        s = rig_stats(&r);
    }
    rig_close(&r);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_loop_test(t, output_does_not_depend_on_batch_or_chunks, 0, 7);
    tcase_add_loop_test(t, prompt_is_found_again_but_its_last_token_is_computed, 0, 2);
    tcase_add_loop_test(t, generated_pages_are_found_by_the_next_turn, 0, 2);
    tcase_add_loop_test(t, salts_share_nothing, 0, 2);
    tcase_add_loop_test(t, sixteen_with_one_cold_prefix_compute_it_once, 0, 3);
    tcase_add_test(t, waiter_takes_over_when_the_owner_leaves);
    tcase_add_loop_test(t, recurrent_sequences_go_on_from_kept_states, 0, 6);
    tcase_add_loop_test(t, preempted_sequences_give_the_same, 0, 4);
    tcase_add_test(t, prompt_log_probabilities_come_in_order);
    tcase_add_loop_test(t, prompts_with_log_probabilities_are_found_again, 0, 2);
    tcase_add_test(t, limits_of_length_are_kept);
    tcase_add_test(t, a_reader_that_stops_is_cut_and_holds_up_nobody);
    tcase_add_test(t, readers_that_stop_hold_no_place);
    tcase_add_test(t, a_slow_reader_gets_everything);
    tcase_add_test(t, an_idle_scheduler_sleeps);
    tcase_add_test(t, a_step_that_hangs_can_be_seen);
    return t;
}

Suite *sched_suite(void)
{
    Suite *s = suite_create("sched");
    TCase *remote = all_tests("sched_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    suite_add_tcase(s, all_tests("sched"));
    suite_add_tcase(s, remote);
    return s;
}
