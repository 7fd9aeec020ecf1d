/* With a prediction head, one that guesses in place, or a draft model, a sequence gives what it gives without. The fake
 * head guesses most tokens right, checks that its rows have the right inputs, and counts rows with others missing before
 * them. */
#include "engine/base/mem.h"
#include "engine/kv/disk/kv_disk.h"
#include "tests/support/folder.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <stdio.h>
#include <time.h>

Suite *sched_predict_suite(void);

enum { MOST = 20, STEP_US = 300 };

static bool is_draft; /* a draft model predicts */
static bool in_place; /* a head guesses in place */

static enum draft_source guesser(void) { return is_draft ? DRAFT_MODEL : DRAFT_HEAD; }

static struct rig open_predicting(struct rig_limits l)
{
    l.has_head = !is_draft;
    l.has_draft = is_draft;
    l.in_place = in_place;
    l.draft_max = l.draft_max != 0 ? l.draft_max : 7;
    struct rig r = rig_open(l);
    atomic_store(&r.model->delay_us, STEP_US);
    return r;
}

static struct sched_request varied(uint64_t which, int32_t *tokens)
{
    static const int32_t lengths[] = {1, 31, 32, 33, 64, 65, 100, 129}, ends[] = {5, 11};
    int32_t n = lengths[which % 8];
    rig_prompt(tokens, n, which % 5);
    struct sched_request q = rig_request(tokens, n, 20 + (int32_t)(which * 13 % 100));
    q.sampling.temperature = which % 3 == 0 ? 0.3f : 0;
    q.sampling.seed = which;
    q.sampling.n_top = which % 3 - 1;
    if (which % 5 == 1) {
        q.sampling.ends = ends;
        q.sampling.n_ends = 2;
        q.min_tokens = (int32_t)(which % 60);
    }
    q.prompt_logprobs = which % 9 == 4;
    q.sampling.n_top = q.prompt_logprobs ? 3 : q.sampling.n_top;
    return q;
}

static void check_varied(struct rig *r, uint64_t n, bool at_once, const char *what)
{
    static int32_t tokens[MOST][256];
    static struct rig_output got, expected;
    struct sched_seq *seqs[MOST];
    struct sched_request q[MOST];
    for (uint64_t i = 0; i < n; i++) {
        q[i] = varied(i, tokens[i]);
        seqs[i] = at_once ? rig_submit(r, &q[i]) : NULL;
    }
    for (uint64_t i = 0; i < n; i++) {
        seqs[i] = at_once ? seqs[i] : rig_submit(r, &q[i]);
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], 320, &expected);
        rig_compare(&got, &expected, what);
    }
    rig_wait_idle(r);
}

enum { N_LIMITS = 6 };

/* _i from N_LIMITS on: with recurrent states. */
START_TEST(output_is_that_of_plain_decode)
{
    static const struct rig_limits limits[N_LIMITS] = {
        {.max_seqs = 1},
        {.max_seqs = 1, .draft_max = 1},
        {.max_seqs = 1, .draft_max = 15, .n_remembered = 1},
        {.max_seqs = 3, .max_rows = 5},
        {.max_seqs = 6, .max_logits = 8},
        {.max_seqs = 16, .draft_max = 31},
    };
    struct rig_limits l = limits[_i % N_LIMITS];
    l.is_recurrent = _i >= N_LIMITS;
    struct rig r = open_predicting(l);
    check_varied(&r, MOST, l.max_seqs > 1, "cold");
    check_varied(&r, MOST, l.max_seqs > 1, "cached");
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(st.accepted_tokens, 0);
    ck_assert_uint_lt(st.accepted_tokens, st.drafted_tokens);
    ck_assert_uint_gt(st.cached_tokens, 0);
    struct draft_count by_head = draft_counts_of(&st.draft_counts, guesser()),
                       by_text = draft_counts_of(&st.draft_counts, DRAFT_LOOKUP);
    ck_assert_uint_gt(by_head.accepted, 0);
    ck_assert_uint_lt(by_head.accepted, by_head.drafted);
    ck_assert_uint_eq(by_head.drafted + by_text.drafted, st.drafted_tokens);
    ck_assert_uint_eq(by_head.accepted + by_text.accepted, st.accepted_tokens);
    double recent = draft_recent_share(&st.draft_recent, guesser(), 0);
    ck_assert(recent > 0 && recent <= 1);
    rig_close(&r);
}
END_TEST

/* A single sequence whose guesses pay: no row of the head is ever missing, and three of four tokens are guessed. */
START_TEST(the_head_computes_every_row)
{
    static int32_t tokens[400];
    static struct rig_output got, expected;
    struct rig r = open_predicting((struct rig_limits){.max_seqs = 1, .max_rows = 24, .is_recurrent = _i});
    rig_prompt(tokens, 100, 3);
    struct sched_request q = rig_request(tokens, 100, 60);
    for (int turn = 0; turn < 2; turn++) { /* the second continues the first, from its pages */
        struct sched_seq *seq = rig_submit(&r, &q);
        rig_collect(&seq, &got);
        rig_expect(&q, 320, &expected);
        rig_compare(&got, &expected, "a turn");
        ck_assert_int_gt(got.usage.accepted_tokens, 20);
        ck_assert_uint_gt(got.usage.drafts[guesser()].accepted, 20);
        for (int32_t i = 0; i < got.n; i++) {
            tokens[q.n_tokens + i] = got.ids[i];
        }
        q = rig_request(tokens, q.n_tokens + got.n + 1, 60);
    }
    ck_assert_uint_gt(rig_stats(&r).cached_tokens, 60);
    rig_wait_idle(&r);
    ck_assert_int_eq(r.model->n_holes, 0);
    rig_close(&r);
}
END_TEST

START_TEST(small_pools_and_preemption_change_nothing)
{
    enum { SEQS = 6 };
    static int32_t tokens[SEQS][256];
    static struct rig_output got, expected;
    struct sched_seq *seqs[SEQS];
    struct sched_request q[SEQS];
    struct rig r = open_predicting((struct rig_limits){.n_pages = 10, .max_seqs = SEQS, .is_recurrent = _i});
    for (int i = 0; i < SEQS; i++) {
        rig_prompt(tokens[i], 20 + 3 * i, 200 + (uint64_t)i);
        q[i] = rig_request(tokens[i], 20 + 3 * i, 200);
        seqs[i] = rig_submit(&r, &q[i]);
    }
    for (int i = 0; i < SEQS; i++) {
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], 320, &expected);
        rig_compare(&got, &expected, "preempted");
    }
    ck_assert_uint_gt(rig_stats(&r).preempted, 0);
    rig_close(&r);
}
END_TEST

/* Runs one sequence and returns the head's batches that it took. */
static long run_one(struct rig *r, int32_t n_tokens)
{
    static int32_t tokens[50];
    static struct rig_output got, expected;
    long before = r->model->n_head;
    rig_prompt(tokens, 50, 9);
    struct sched_request q = rig_request(tokens, 50, n_tokens);
    struct sched_seq *seq = rig_submit(r, &q);
    rig_collect(&seq, &got);
    rig_expect(&q, 320, &expected);
    rig_compare(&got, &expected, "one");
    rig_wait_idle(r);
    return r->model->n_head - before;
}

START_TEST(guesses_that_do_not_pay_are_not_made)
{
    struct rig r = open_predicting((struct rig_limits){.max_seqs = 1});
    atomic_store(&r.model->head_us, 2 * STEP_US);
    ck_assert_int_gt(run_one(&r, 200), 0);
    ck_assert_int_lt(run_one(&r, 200), 12); /* the prompt's, and a few tries */
    rig_close(&r);
}
END_TEST

/* Rows that a draft model left out while guesses did not pay are made up for, also in pages that a cached prefix gives to
 * another sequence. */
START_TEST(a_draft_model_makes_up_for_rows)
{
    static int32_t tokens[400];
    static struct rig_output got;
    struct rig r = open_predicting((struct rig_limits){.max_seqs = 1, .is_recurrent = _i});
    atomic_store(&r.model->head_us, 2 * STEP_US);
    rig_prompt(tokens, 100, 3);
    struct sched_request q = rig_request(tokens, 100, 120);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    long n_left = r.model->n_head;
    for (int32_t i = 0; i < got.n; i++) {
        tokens[q.n_tokens + i] = got.ids[i];
    }
    rig_wait_idle(&r);
    ck_assert_int_le(run_one(&r, 2) + run_one(&r, 2), 1); /* nor are rows of prompts computed, but in a try */
    atomic_store(&r.model->head_us, 0);
    for (int i = 0; i < 6; i++) {
        (void)run_one(&r, 200); /* until guesses are tried again */
    }
    atomic_store(&r.model->n_holes, 0);
    q = rig_request(tokens, q.n_tokens + got.n, 60);
    seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    rig_wait_idle(&r);
    ck_assert_int_lt(n_left, 30);
    ck_assert_uint_gt(rig_stats(&r).cached_tokens, 160);
    ck_assert_int_gt(got.usage.accepted_tokens, 10);
    ck_assert_int_eq(r.model->n_holes, 0);
    rig_close(&r);
}
END_TEST

START_TEST(windows_change_nothing)
{
    static const struct rig_limits limits[] = {{.window = 40}, {.n_windows = 24, .local_window = 40}};
    struct rig_limits l = limits[_i];
    l.max_seqs = 4;
    l.max_rows = 48;
    struct rig r = open_predicting(l);
    check_varied(&r, MOST, true, "windows");
    check_varied(&r, MOST, false, "windows, cached");
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(draft_counts_of(&st.draft_counts, guesser()).accepted, 0);
    rig_close(&r);
}
END_TEST

/* Only the head's guesses that the least probability allows are drafted. */
START_TEST(improbable_guesses_are_not_drafted)
{
    struct rig r = open_predicting((struct rig_limits){.max_seqs = 1, .guess_p_min = 0.9999f});
    (void)run_one(&r, 60);
    struct sched_stats some = rig_stats(&r);
    rig_close(&r);
    r = open_predicting((struct rig_limits){.max_seqs = 1});
    (void)run_one(&r, 60);
    struct sched_stats all = rig_stats(&r);
    rig_close(&r);
    ck_assert_uint_lt(draft_counts_of(&some.draft_counts, guesser()).drafted,
                      draft_counts_of(&all.draft_counts, guesser()).drafted);
}
END_TEST

START_TEST(a_head_that_fails_is_not_used_again)
{
    struct rig r = open_predicting((struct rig_limits){.max_seqs = 1});
    atomic_store(&r.model->head_fails, true);
    ck_assert_int_eq(run_one(&r, 60), 1);
    ck_assert_int_eq(run_one(&r, 60), 0);
    ck_assert_uint_eq(rig_stats(&r).drafted_tokens, 0);
    rig_close(&r);
}
END_TEST

static struct kv_disk *open_disk(void)
{
    struct kv_disk *d;
    struct err_info info = {0};
    struct kv_disk_config cfg = {
        .path = folder_file("cache"),
        .limit_bytes = 64 << 20,
        .bytes = {FAKE_PAGE_BYTES + (is_draft || in_place ? 0 : FAKE_OUTPUT * sizeof(float)), 0}};
    ck_assert_msg(kv_disk_open(&cfg, &d, &info) == ERR_OK, "%s", info.text);
    return d;
}

/* The outputs that the head needs are in the snapshots. */
START_TEST(a_restored_prefix_has_the_rows_of_the_head)
{
    for (int i = 0; i < 2; i++) {
        struct kv_disk *d = open_disk();
        struct rig r = open_predicting((struct rig_limits){.max_seqs = 1, .disk = d});
        (void)run_one(&r, 60);
        ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, i == 0 ? 0 : 32);
        ck_assert_int_eq(r.model->n_holes, 0);
        rig_close(&r); /* writes what is pending */
        kv_disk_close(&d);
    }
    folder_remove();
}
END_TEST

static void add_tests(Suite *s, const char *name, void (*setup)(void), const char *tags)
{
    TCase *c = tcase_create(name);
    tcase_set_tags(c, tags);
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, NULL);
    tcase_add_loop_test(c, output_is_that_of_plain_decode, 0, 2 * N_LIMITS);
    tcase_add_loop_test(c, the_head_computes_every_row, 0, 2);
    tcase_add_loop_test(c, small_pools_and_preemption_change_nothing, 0, 2);
    tcase_add_test(c, guesses_that_do_not_pay_are_not_made);
    tcase_add_test(c, a_head_that_fails_is_not_used_again);
    tcase_add_test(c, a_restored_prefix_has_the_rows_of_the_head);
    tcase_add_test(c, improbable_guesses_are_not_drafted);
    suite_add_tcase(s, c);
}

static void use_head(void) { is_draft = in_place = false; }

static void use_head_in_place(void)
{
    is_draft = false;
    in_place = true;
}

static void use_draft(void)
{
    is_draft = true;
    in_place = false;
}

static void use_head_remotely(void)
{
    use_head();
    rig_go_remote();
}

static void use_head_in_place_remotely(void)
{
    use_head_in_place();
    rig_go_remote();
}

static void use_draft_remotely(void)
{
    use_draft();
    rig_go_remote();
}

static void add_draft_tests(Suite *s, const char *name, void (*setup)(void))
{
    TCase *c = tcase_create(name);
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, NULL);
    tcase_add_loop_test(c, a_draft_model_makes_up_for_rows, 0, 2);
    tcase_add_loop_test(c, windows_change_nothing, 0, 2);
    suite_add_tcase(s, c);
}

/* Guesses in place read pages of the model, so windows concern them. */
static void add_place_tests(Suite *s, const char *name, void (*setup)(void))
{
    TCase *c = tcase_create(name);
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, NULL);
    tcase_add_loop_test(c, windows_change_nothing, 0, 2);
    suite_add_tcase(s, c);
}

Suite *sched_predict_suite(void)
{
    Suite *s = suite_create("sched_predict");
    add_tests(s, "plain", use_head, "");
    add_tests(s, "remote", use_head_remotely, "");
    add_tests(s, "in_place", use_head_in_place, "");
    add_tests(s, "in_place_remote", use_head_in_place_remotely, "");
    add_place_tests(s, "in_place_windows", use_head_in_place);
    add_tests(s, "draft", use_draft, "model"); /* tests/run.sh; the same threads as with a head */
    add_tests(s, "draft_remote", use_draft_remotely, "model");
    add_draft_tests(s, "draft_rows", use_draft);
    add_draft_tests(s, "draft_rows_remote", use_draft_remotely);
    return s;
}
