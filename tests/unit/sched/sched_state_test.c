/* Prefixes of models with recurrent state: which states are kept, who goes on from them, and when they go. On the fake
 * back end, whose slots hold a hash of everything before, and on small real models, to the bit. */
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "tests/support/remote_backend.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

Suite *sched_state_suite(void);

START_TEST(a_prompt_leaves_one_state_and_what_is_generated_another)
{
    int32_t tokens[320];
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true});
    rig_prompt(tokens, 70, 1);
    ck_assert_int_eq(rig_run(&r, tokens, 70, 0, &got), 0);
    ck_assert_uint_eq(rig_stats(&r).states_kept, 1); /* at 64 */
    ck_assert_int_eq(rig_run(&r, tokens, 70, 100, &got), 64);
    ck_assert_int_eq(r.model->n_copies, 1 + 3); /* at 96, 128 and 160, of which the last stays */
    ck_assert_uint_eq(rig_stats(&r).states_kept, 2);
    memcpy(tokens + 70, got.ids, 100 * sizeof *tokens);
    rig_prompt(tokens + 170, 40, 2); /* the next turn */
    ck_assert_int_eq(rig_run(&r, tokens, 210, 8, &got), 160);
    ck_assert_int_eq(r.model->n_rows, 70 + (6 + 99) + (50 + 7));
    ck_assert_int_eq(rig_run(&r, tokens, 70, 3, &got), 64); /* another answer to the first */
    rig_close(&r);
}
END_TEST

/* With drafts, too, a sequence stops at each page boundary, where it leaves its state. */
START_TEST(drafts_pass_no_boundary)
{
    int32_t tokens[320];
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .draft_max = 15, .n_remembered = 1});
    atomic_store(&r.model->delay_us, 200); /* for any number of rows, so drafts pay */
    rig_prompt(tokens, 70, 1);
    rig_run(&r, tokens, 70, 200, &got);
    ck_assert_uint_gt(rig_stats(&r).accepted_tokens, 20);
    ck_assert_int_eq(r.model->n_copies, 1 + 6); /* after 64 tokens, and 96 to 256 */
    memcpy(tokens + 70, got.ids, 200 * sizeof *tokens);
    ck_assert_int_eq(rig_run(&r, tokens, 270, 8, &got), 256);
    rig_close(&r);
}
END_TEST

/* A beginning of 100 tokens, common to prompts with ends of their own. */
START_TEST(where_prompts_part_a_state_is_kept)
{
    int32_t tokens[200];
    static struct rig_output got;
    static const int32_t cached[] = {0, 0, 96, 96};
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .max_rows = _i == 0 ? 512 : 17});
    rig_prompt(tokens, 100, 3);
    for (int i = 0; i < 4; i++) {
        rig_prompt(tokens + 100, 100, 10 + (uint64_t)i);
        ck_assert_int_eq(rig_run(&r, tokens, 200, 5, &got), cached[i]);
    }
    ck_assert_uint_eq(rig_stats(&r).states_kept, 4 + 1);
    rig_prompt(tokens + 100, 100, 11); /* each is still found as a whole */
    ck_assert_int_eq(rig_run(&r, tokens, 200, 5, &got), 192);
    rig_close(&r);
}
END_TEST

START_TEST(the_state_unused_for_the_longest_time_goes)
{
    int32_t tokens[3][70];
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .max_seqs = 1, .n_kept_states = 2});
    for (int i = 0; i < 3; i++) {
        rig_prompt(tokens[i], 70, 20 + (uint64_t)i);
    }
    /* but that of a prompt that came again */
    static const int order[] = {0, 1, 0, 2, 0, 1, 2, 1, 0}, cached[] = {0, 0, 64, 0, 64, 0, 0, 0, 64};
    for (int i = 0; i < 9; i++) {
        ck_assert_msg(rig_run(&r, tokens[order[i]], 70, 3, &got) == cached[i], "request %d: %d found", i,
                      got.usage.cached_tokens);
        ck_assert_uint_le(rig_stats(&r).states_kept, 2);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_page_that_makes_room_takes_its_state_along)
{
    int32_t tokens[300];
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .n_pages = 10});
    for (int i = 0; i < 20; i++) {
        rig_prompt(tokens, 300, 30 + (uint64_t)i);
        ck_assert_int_eq(rig_run(&r, tokens, 300, 3, &got), 0);
        ck_assert_uint_eq(rig_stats(&r).states_kept, 1);
    }
    ck_assert_int_eq(rig_run(&r, tokens, 300, 3, &got), 288);
    rig_close(&r);
}
END_TEST

START_TEST(who_shares_nothing_leaves_nothing)
{
    int32_t tokens[100];
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true});
    rig_prompt(tokens, 100, 1);
    struct sched_request q = rig_request(tokens, 100, 0);
    q.pooling = PLAN_POOL_MEAN;
    struct sched_seq *seq = rig_submit(&r, &q);
    struct sched_event ev = {0};
    while (ev.kind != SCHED_END) {
        ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
    }
    ck_assert_int_eq(ev.err, ERR_OK);
    sched_release(&seq);
    rig_wait_idle(&r);
    ck_assert_uint_eq(rig_stats(&r).states_kept, 0);
    ck_assert_int_eq(r.model->n_copies, 0);
    rig_close(&r);
}
END_TEST

/* All that wait for the one that computes their prompt go on when it leaves, one of them from the start. */
START_TEST(who_waits_for_a_state_takes_over)
{
    enum { N = 4 };
    int32_t tokens[300];
    struct sched_seq *seqs[N];
    static struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .max_rows = 40});
    rig_prompt(tokens, 300, 4);
    struct sched_request q = rig_request(tokens, 300, 5);
    atomic_store(&r.model->delay_us, 15000);
    for (int i = 0; i < N; i++) {
        seqs[i] = rig_submit(&r, &q);
    }
    while (r.model->n_rows < 80) {
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    sched_release(&seqs[0]);
    atomic_store(&r.model->delay_us, 1000);
    rig_expect(&q, 320, &expected);
    for (int i = 1; i < N; i++) {
        rig_collect(&seqs[i], &got);
        rig_compare(&got, &expected, "waiter");
        ck_assert_int_eq(got.usage.cached_tokens, i == 1 ? 0 : 288);
    }
    ck_assert_int_le(r.model->n_rows, 300 + 300 + 2 * 12 + 3 * 4);
    rig_close(&r);
}
END_TEST

START_TEST(a_preempted_sequence_goes_on_from_its_newest_state)
{
    int32_t tokens[2][100];
    struct sched_seq *seqs[2];
    static struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .n_pages = 10, .n_ctx = 320});
    rig_hold(&r); /* until both are there: they grow side by side to five pages each */
    for (int i = 0; i < 2; i++) {
        rig_prompt(tokens[i], 100, 50 + (uint64_t)i);
        struct sched_request q = rig_request(tokens[i], 100, i == 0 ? 80 : 200);
        seqs[i] = rig_submit(&r, &q);
    }
    rig_go_on(&r);
    for (int i = 0; i < 2; i++) {
        struct sched_request q = rig_request(tokens[i], 100, i == 0 ? 80 : 200);
        rig_collect(&seqs[i], &got);
        rig_expect(&q, 320, &expected);
        rig_compare(&got, &expected, "preempted");
        ck_assert_int_eq(got.usage.cached_tokens, 0); /* what it finds of its own was computed for it */
    }
    ck_assert_uint_ge(rig_stats(&r).preempted, 1);
    ck_assert_int_lt(r.model->n_rows, 179 + 299 + 100); /* not all was computed again */
    rig_close(&r);
}
END_TEST

static void collect_and_compare(struct sched_seq **seq, const struct sched_request *q, int32_t cached, const char *what)
{
    static struct rig_output got, expected;
    rig_collect(seq, &got);
    rig_expect(q, 320, &expected);
    rig_compare(&got, &expected, what);
    ck_assert_msg(got.usage.cached_tokens == cached, "%s: %d tokens found, expected %d", what, got.usage.cached_tokens,
                  cached);
}

/* One that writes passes 64 and goes on; who wants to go on from there is held up until that state has lost its page.
 */
START_TEST(a_state_is_kept_for_who_is_about_to_go_on_from_it)
{
    int32_t writes[40], other[220], tokens[74];
    struct sched_event ev;
    static struct rig_output expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .max_seqs = 4, .max_rows = 8});
    rig_prompt(writes, 40, 60);
    rig_prompt(other, 220, 61);
    rig_prompt(tokens, 74, 62);
    struct sched_request writer = rig_request(writes, 40, 150), busy = rig_request(other, 220, 2);
    rig_expect(&writer, 320, &expected);
    memcpy(tokens, writes, sizeof writes);
    memcpy(tokens + 40, expected.ids, 24 * sizeof *tokens);
    struct sched_request q = rig_request(tokens, 74, 3);
    atomic_store(&r.model->delay_us, 5000);
    struct sched_seq *first = rig_submit(&r, &writer);
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(sched_next(first, 20000, &ev), ERR_OK);
    }
    rig_hold(&r);
    struct sched_seq *second = rig_submit(&r, &busy), *third = rig_submit(&r, &q);
    atomic_store(&r.model->delay_us, 0);
    rig_go_on(&r);
    collect_and_compare(&third, &q, 64, "held up");
    collect_and_compare(&second, &busy, 0, "busy");
    sched_release(&first);
    rig_close(&r);
}
END_TEST

/* Three begin at once, each after a kept state, where there is one slot more than sequences. */
START_TEST(who_gets_no_slot_begins_a_step_later)
{
    enum { N = 3 };
    int32_t tokens[N][70], one[] = {9};
    struct sched_request q[N], opener = rig_request(one, 1, 0);
    struct sched_seq *seqs[N];
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .max_seqs = N, .n_kept_states = 1});
    for (int i = 0; i < N; i++) {
        rig_prompt(tokens[i], 70, 70 + (uint64_t)i);
        ck_assert_int_eq(rig_run(&r, tokens[i], 70, 0, &got), 0);
        q[i] = rig_request(tokens[i], 70, 20);
    }
    ck_assert_uint_eq(rig_stats(&r).states_kept, N);
    rig_hold(&r);
    struct sched_seq *first = rig_submit(&r, &opener);
    rig_wait_held(&r);
    for (int i = 0; i < N; i++) {
        seqs[i] = rig_submit(&r, &q[i]);
    }
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < N; i++) {
        collect_and_compare(&seqs[i], &q[i], 64, "one of three");
    }
    rig_close(&r);
}
END_TEST

START_TEST(nobody_waits_for_another_tenant)
{
    int32_t tokens[300];
    struct sched_seq *seqs[2];
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .max_rows = 40});
    rig_prompt(tokens, 300, 80);
    struct sched_request q[2] = {rig_request(tokens, 300, 0), rig_request(tokens, 300, 0)};
    q[1].salt = "tenant";
    rig_hold(&r);
    for (int i = 0; i < 2; i++) {
        seqs[i] = rig_submit(&r, &q[i]);
    }
    rig_go_on(&r);
    for (int i = 0; i < 2; i++) {
        collect_and_compare(&seqs[i], &q[i], 0, "tenant");
    }
    /* The second used what the first left of its last batch; or its own batches went beside the first one's. */
    ck_assert(r.remote == NULL ? r.model->n_wide == 2 : remote_backend_n_beside() > 0);
    rig_close(&r);
}
END_TEST

/* --- real models ------------------------------------------------------------------------------------------------ */

enum { N_CTX = 192, N_PROMPT = 75, N_NEW = 40 };

struct real {
    const struct backend *backend;
    struct gguf *gguf;
    struct plan *plan;
    struct backend_model *model;
    struct sched *sched;
};

static void close_real(struct real *m)
{
    sched_free(&m->sched);
    m->backend->close(&m->model);
    plan_free(&m->plan);
    gguf_close(&m->gguf);
}

static struct real open_real(const char *path, const struct backend *backend, int32_t max_rows)
{
    enum { SEQS = 2, SLOTS = 6, PAGES = 32 };
    struct real m = {.backend = backend};
    struct err_info info = {0};
    struct backend_config bc = {
        .n_threads = 2, .n_pages = PAGES, .n_states = SLOTS, .max_rows = max_rows, .max_logits = SEQS};
    bool ok = model_open(path, &m.gguf, &info) == ERR_OK && model_build(m.gguf, N_CTX, &m.plan, &info) == ERR_OK &&
              backend->open(m.plan, &bc, &m.model, &info) == ERR_OK;
    ck_assert_msg(ok, "%s: %s", path, info.text);
    struct sched_config sc = {.backend = backend,
                              .model = m.model,
                              .n_vocab = (int32_t)m.plan->n_vocab,
                              .n_ctx = N_CTX,
                              .n_pages = PAGES,
                              .max_rows = max_rows,
                              .max_logits = SEQS,
                              .max_seqs = SEQS,
                              .n_states = SLOTS,
                              .queue_max = 8};
    ck_assert_msg(sched_new(&sc, &m.sched, &info) == ERR_OK, "%s: %s", path, info.text);
    return m;
}

/* N_NEW tokens after a prompt, with the bits of their log-probabilities; gives the number of cached tokens. */
static int32_t generate(struct real *m, const int32_t *tokens, int32_t n, struct rig_output *out)
{
    struct sched_request q = rig_request(tokens, n, N_NEW);
    q.sampling.n_top = 0;
    struct rig r = {.sched = m->sched};
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, out);
    ck_assert_int_eq(out->n, N_NEW);
    return out->usage.cached_tokens;
}

static const char *const models[] = {"lfm2-conv", "lfm2moe-conv", "qwen35-delta", "qwen3next-delta"};

START_TEST(a_real_model_gives_the_same_bits_after_a_cached_prefix)
{
    static struct rig_output cold, cached, turn, fresh;
    int32_t tokens[N_CTX];
    char path[128];
    const struct backend *backend = _i % 2 == 0 ? &backend_cpu : &backend_ref;
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", models[_i / 2]);
    struct real m = open_real(path, backend, 64), other = open_real(path, backend, 17);
    for (int32_t i = 0; i < N_PROMPT; i++) {
        tokens[i] = (i * 37 + 11) % (int32_t)m.plan->n_vocab;
    }
    ck_assert_int_eq(generate(&m, tokens, N_PROMPT, &cold), 0);
    ck_assert_int_eq(generate(&m, tokens, N_PROMPT, &cached), 64);
    rig_compare(&cached, &cold, path);
    memcpy(tokens + N_PROMPT, cold.ids, N_NEW * sizeof *tokens);
    int32_t n = N_PROMPT + N_NEW + 20;
    for (int32_t i = N_PROMPT + N_NEW; i < n; i++) {
        tokens[i] = (i * 53 + 7) % (int32_t)m.plan->n_vocab;
    }
    ck_assert_int_eq(generate(&m, tokens, n, &turn), 96);
    ck_assert_int_eq(generate(&other, tokens, n, &fresh), 0);
    rig_compare(&turn, &fresh, path);
    close_real(&m);
    close_real(&other);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_set_tags(t, "states");
    tcase_add_test(t, a_prompt_leaves_one_state_and_what_is_generated_another);
    tcase_add_test(t, drafts_pass_no_boundary);
    tcase_add_loop_test(t, where_prompts_part_a_state_is_kept, 0, 2);
    tcase_add_test(t, the_state_unused_for_the_longest_time_goes);
    tcase_add_test(t, a_page_that_makes_room_takes_its_state_along);
    tcase_add_test(t, who_shares_nothing_leaves_nothing);
    tcase_add_test(t, who_waits_for_a_state_takes_over);
    tcase_add_test(t, a_preempted_sequence_goes_on_from_its_newest_state);
    tcase_add_test(t, a_state_is_kept_for_who_is_about_to_go_on_from_it);
    tcase_add_test(t, who_gets_no_slot_begins_a_step_later);
    tcase_add_test(t, nobody_waits_for_another_tenant);
    tcase_add_loop_test(t, a_real_model_gives_the_same_bits_after_a_cached_prefix, 0, 8);
    return t;
}

Suite *sched_state_suite(void)
{
    Suite *s = suite_create("sched_state");
    TCase *remote = all_tests("sched_state_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    suite_add_tcase(s, all_tests("sched_state"));
    suite_add_tcase(s, remote);
    return s;
}
