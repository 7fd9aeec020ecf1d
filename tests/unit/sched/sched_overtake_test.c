/* What goes alone overtakes the batch that is being computed, and has a place of its own; with the same tokens as ever. */
#include "engine/base/rng.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <time.h>

Suite *sched_overtake_suite(void);

enum { N_HEAVY = 6, N_PROMPT = 30, HEAVY_TOKENS = 200, N_EARNED = 16, OVERTAKING = 40, PLACES = 4 };

static void pause_us(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

/* A request of one sequence. */
struct asked {
    int32_t tokens[200];
    struct sched_request q;
    struct sched_seq *seq;
};

/* n sequences of one request, which a[0..n) have. */
static void ask(struct rig *r, struct asked *a, int n, uint64_t key)
{
    struct sched_request q[2];
    struct sched_seq *seqs[2];
    struct sched_group *g;
    struct err_info info = {0};
    for (int i = 0; i < n; i++) {
        q[i] = a[i].q;
    }
    ck_assert_int_eq(sched_group_new(r->sched, &(struct sched_share){.key = key}, n, &g), ERR_OK);
    enum err err = sched_submit_all(r->sched, g, q, n, seqs, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    for (int i = 0; i < n; i++) {
        a[i].seq = seqs[i];
    }
    sched_group_release(&g);
}

static void prepare(struct asked *a, uint64_t which, int32_t n_prompt, int32_t max_tokens)
{
    rig_prompt(a->tokens, n_prompt, which);
    a->q = rig_request(a->tokens, n_prompt, max_tokens);
}

static void submit(struct rig *r, struct asked *a, uint64_t key, uint64_t which, int32_t n_prompt, int32_t max_tokens)
{
    prepare(a, which, n_prompt, max_tokens);
    ask(r, a, 1, key);
}

static void collect(struct rig *r, struct asked *a, const char *what)
{
    static struct rig_output got, expected;
    rig_collect(&a->seq, &got);
    rig_expect(&a->q, r->n_ctx, &expected);
    rig_compare(&got, &expected, what);
}

static struct rig_limits limits(bool is_recurrent)
{
    return (struct rig_limits){.max_seqs = PLACES + 1,
                               .n_express = 1,
                               .n_pages = 200,
                               .max_rows = 64,
                               .overtaking_rows = OVERTAKING,
                               .is_recurrent = is_recurrent};
}

/* All places taken by one key, more of it waiting, and a batch that does not end; after steps that took so long that a part of their
 * time is enough for what is to overtake. */
static void take_all_places(struct rig *r, struct asked *heavy)
{
    int delay = atomic_exchange(&r->model->delay_us, 5000);
    rig_hold(r);
    for (int i = 0; i < N_HEAVY; i++) {
        submit(r, &heavy[i], 1, 100 + (uint64_t)i, N_PROMPT, HEAVY_TOKENS);
    }
    rig_pass(r, PLACES + N_EARNED);
    ck_assert_uint_eq(rig_stats(r).n_running, PLACES);
    atomic_store(&r->model->delay_us, delay);
}

static struct rig open_busy(struct rig_limits l, struct asked *heavy)
{
    struct rig r = rig_open(l);
    take_all_places(&r, heavy);
    return r;
}

static void let_go(struct rig *r, struct asked *heavy)
{
    rig_go_on(r);
    for (int i = 0; i < N_HEAVY; i++) {
        collect(r, &heavy[i], "heavy");
    }
    rig_close(r);
}

/* _i: with recurrent states. Its first token comes while the batch of the others stands still, and no sequence of them is sent back
 * for it; the rest comes with theirs. One with a prompt in two pieces, and a second one when the first has ended. */
START_TEST(a_short_prompt_overtakes)
{
    static struct asked heavy[N_HEAVY], light;
    static const int32_t lengths[] = {OVERTAKING, OVERTAKING + 20, 1};
    struct rig r = open_busy(limits(_i == 1), heavy);
    for (int i = 0; i < 3; i++) {
        submit(&r, &light, 2, 1 + (uint64_t)i, lengths[i], 1);
        collect(&r, &light, "light");
    }
    ck_assert_int_eq(atomic_load(&r.model->n_overtook), 4);
    ck_assert_uint_eq(rig_stats(&r).preempted, 0);
    submit(&r, &light, 2, 9, 20, 20);
    struct sched_event ev;
    ck_assert_int_eq(sched_next(light.seq, 20000, &ev), ERR_OK);
    ck_assert_int_eq(ev.kind, SCHED_TOKEN);
    ck_assert_int_eq(sched_next(light.seq, 20, &ev), ERR_AGAIN);
    ck_assert_uint_eq(rig_stats(&r).n_running, PLACES + 1);
    sched_cancel(light.seq);
    sched_release(&light.seq);
    let_go(&r, heavy);
}
END_TEST

/* A long prompt of which all but the end was computed before is a short one. _i: with recurrent states, which are kept where it was. */
START_TEST(what_is_known_does_not_count)
{
    static struct asked heavy[N_HEAVY], light;
    struct rig_limits l = limits(_i == 1);
    l.max_rows = 200;
    struct rig r = rig_open(l);
    atomic_store(&r.model->row_us, 700); /* 115 rows are more than a step, 57 more than what overtakes */
    submit(&r, &light, 2, 1, 160, 1);
    collect(&r, &light, "first");
    take_all_places(&r, heavy);
    submit(&r, &light, 2, 1, 170, 1);
    collect(&r, &light, "second");
    ck_assert_int_eq(atomic_load(&r.model->n_overtook), _i == 0 ? 1 : 2);
    atomic_store(&r.model->row_us, 0);
    let_go(&r, heavy);
}
END_TEST

/* _i: who is of the key that keeps the engine busy, has several sequences, or wants what the batch that overtakes has no room for,
 * waits for the step's end. */
START_TEST(others_wait_for_the_end)
{
    static struct asked heavy[N_HEAVY], light[2];
    struct rig r = open_busy(limits(false), heavy);
    struct sched_event ev;
    prepare(&light[0], 1, 20, 1);
    prepare(&light[1], 2, 20, 1);
    light[0].q.prompt_logprobs = _i == 2;
    ask(&r, light, _i == 1 ? 2 : 1, _i == 0 ? 1 : 2);
    ck_assert_int_eq(sched_next(light[0].seq, 50, &ev), ERR_AGAIN);
    ck_assert_int_eq(atomic_load(&r.model->n_overtook), 0);
    rig_go_on(&r);
    for (int i = 0; i < (_i == 1 ? 2 : 1); i++) {
        collect(&r, &light[i], "light");
    }
    let_go(&r, heavy);
}
END_TEST

/* What fails while it overtakes ends alone. */
START_TEST(a_failure_is_its_own)
{
    static struct asked heavy[N_HEAVY];
    static struct rig_output got;
    static struct asked light;
    static const int32_t bad[] = {FAKE_VOCAB - 1, 3, 4};
    struct rig r = open_busy(limits(false), heavy);
    atomic_store(&r.model->fail_token, FAKE_VOCAB - 1);
    light.q = rig_request(bad, 3, 5);
    ask(&r, &light, 1, 2);
    rig_collect(&light.seq, &got);
    ck_assert_int_eq(got.err, ERR_INTERNAL);
    ck_assert_int_eq(atomic_load(&r.failures->n), 1);
    ck_assert_int_eq(atomic_load(&r.model->n_overtook), 1);
    atomic_store(&r.model->fail_token, -1);
    let_go(&r, heavy);
}
END_TEST

/* Many keys of one request each, at any moment, beside a key that has much to do: all get what they should, and the time that goes to
 * batches that overtake leaves most of it to the others. _i: with recurrent states; few pages. */
START_TEST(many_overtake_at_any_moment)
{
    enum { N_LIGHT = 120, AT_ONCE = 6 };
    static struct asked heavy[N_HEAVY], light[AT_ONCE];
    struct rig_limits l = limits(_i == 1);
    l.n_pages = _i == 2 ? 24 : l.n_pages;
    struct rig r = rig_open(l);
    atomic_store(&r.model->delay_us, 300);
    rig_hold(&r);
    for (int i = 0; i < N_HEAVY; i++) {
        submit(&r, &heavy[i], 1, 100 + (uint64_t)i, N_PROMPT, 200);
    }
    rig_wait_held(&r);
    submit(&r, &light[0], 2, 500, 10, 1); /* one surely does */
    collect(&r, &light[0], "first");
    ck_assert_int_eq(atomic_load(&r.model->n_overtook), 1);
    rig_go_on(&r);
    for (int i = 0; i < N_LIGHT; i++) {
        int k = i % AT_ONCE;
        if (i >= AT_ONCE) {
            collect(&r, &light[k], "light");
        }
        uint64_t which = (uint64_t)i;
        int32_t n_prompt = 1 + (int32_t)(rng_uniform(which, 3, 0) * 100);
        submit(&r, &light[k], 10 + which, which, n_prompt, 1 + (int32_t)(rng_uniform(which, 3, 1) * 4));
        pause_us((long)(rng_uniform(which, 3, 2) * 800));
    }
    for (int k = 0; k < AT_ONCE; k++) {
        collect(&r, &light[(N_LIGHT + k) % AT_ONCE], "light");
    }
    let_go(&r, heavy);
}
END_TEST

/* A place that is for prompts that go alone is nobody else's. */
START_TEST(the_place_is_kept_for_them)
{
    static struct asked heavy[N_HEAVY];
    struct rig r = open_busy(limits(false), heavy);
    ck_assert_uint_eq(rig_stats(&r).n_running, PLACES);
    rig_go_on(&r);
    for (int i = 0; i < N_HEAVY; i++) {
        collect(&r, &heavy[i], "heavy");
    }
    ck_assert_int_le(atomic_load(&r.model->n_wide), PLACES);
    ck_assert_uint_eq(rig_stats(&r).preempted, 0);
    rig_close(&r);
}
END_TEST

Suite *sched_overtake_suite(void)
{
    Suite *s = suite_create("sched_overtake");
    TCase *t = tcase_create("sched_overtake");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_short_prompt_overtakes, 0, 2);
    tcase_add_loop_test(t, what_is_known_does_not_count, 0, 2);
    tcase_add_loop_test(t, others_wait_for_the_end, 0, 3);
    tcase_add_test(t, a_failure_is_its_own);
    tcase_add_loop_test(t, many_overtake_at_any_moment, 0, 3);
    tcase_add_test(t, the_place_is_kept_for_them);
    suite_add_tcase(s, t);
    return s;
}
