/* Each reason to wait, brought about: it is the one that is counted, for the sequence and in all, and it shows while it
 * lasts. No duration is judged. */
#include "engine/sched/sched_wait.h"

#include "engine/base/clock.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <string.h>
#include <time.h>

Suite *sched_wait_suite(void);

/* Reads it to its end; it waited for this, SCHED_WAIT_COUNT = for nothing, besides a moment for its place, and, where
 * two have rows to compute, for the other. */
static void expect(struct sched_seq **seq, enum sched_wait why)
{
    struct rig_output got;
    rig_collect(seq, &got);
    ck_assert_int_eq(got.err, ERR_OK);
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        bool may_be = i == (int)why || i == SCHED_WAIT_SEAT || i == SCHED_WAIT_BUDGET;
        ck_assert_msg(may_be || got.usage.waits.ns[i] == 0, "waited for %s", sched_wait_name((enum sched_wait)i));
    }
    ck_assert(why == SCHED_WAIT_COUNT || got.usage.waits.ns[why] > 0);
}

/* After rig_hold: until a sequence waits for that, and for some time; batch by batch, so that it is not over before it is seen. */
static void wait_for(struct rig *r, enum sched_wait why)
{
    rig_wait_held(r);
    for (int i = 0; i < 50; i++) {
        struct sched_stats st = rig_stats(r);
        if (st.n_waiting_for[why] != 0 && st.waits.ns[why] != 0) {
            rig_go_on(r);
            return;
        }
        rig_pass(r, 1);
    }
    ck_abort_msg("nothing waits for %s", sched_wait_name(why));
}

/* The same where no batch begins meanwhile. */
static void wait_for_reader(struct rig *r)
{
    uint64_t until = clock_now_ns() + 20000000000ull;
    struct sched_stats st = rig_stats(r);
    while (st.n_waiting_for[SCHED_WAIT_READER] == 0 || st.waits.ns[SCHED_WAIT_READER] == 0) {
        ck_assert_msg(clock_now_ns() < until, "nothing waits for its reader");
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        st = rig_stats(r);
    }
}

static void expect_none_left(struct rig *r)
{
    rig_wait_idle(r);
    struct sched_stats st = rig_stats(r);
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        ck_assert_msg(st.n_waiting_for[i] == 0, "%s", sched_wait_name((enum sched_wait)i));
    }
}

static struct sched_seq *submit(struct rig *r, int32_t n, int32_t max_tokens, uint64_t which)
{
    static int32_t tokens[1024];
    rig_prompt(tokens, n, which);
    struct sched_request q = rig_request(tokens, n, max_tokens);
    return rig_submit(r, &q);
}

START_TEST(for_a_place)
{
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1});
    rig_hold(&r);
    struct sched_seq *first = submit(&r, 40, 60, 1), *second = submit(&r, 40, 2, 2);
    wait_for(&r, SCHED_WAIT_SEAT);
    expect(&first, SCHED_WAIT_COUNT);
    expect(&second, SCHED_WAIT_SEAT);
    expect_none_left(&r);
    rig_close(&r);
}
END_TEST

/* Two prompts do not fit the pool; or, _i = 1, the second begins with the first's, which is still computed. */
START_TEST(for_pages)
{
    struct rig r = rig_open((struct rig_limits){.n_pages = _i == 0 ? 10 : 64, .max_rows = 16});
    rig_hold(&r);
    struct sched_seq *first = submit(&r, 250, 10, 1), *second = submit(&r, _i == 0 ? 200 : 250, 2, _i == 0 ? 2 : 1);
    wait_for(&r, SCHED_WAIT_PAGES);
    expect(&first, SCHED_WAIT_COUNT);
    expect(&second, SCHED_WAIT_PAGES);
    expect_none_left(&r);
    rig_close(&r);
}
END_TEST

START_TEST(for_a_state)
{
    struct rig r = rig_open((struct rig_limits){.max_rows = 16, .is_recurrent = true});
    rig_hold(&r);
    struct sched_seq *first = submit(&r, 250, 10, 1), *second = submit(&r, 250, 2, 1);
    wait_for(&r, SCHED_WAIT_STATE);
    expect(&first, SCHED_WAIT_COUNT);
    expect(&second, SCHED_WAIT_STATE);
    expect_none_left(&r);
    rig_close(&r);
}
END_TEST

START_TEST(for_the_reader)
{
    struct rig r = rig_open((struct rig_limits){.n_ctx = 1000, .n_pages = 100});
    struct sched_seq *seq = submit(&r, 40, 600, 1);
    wait_for_reader(&r); /* nobody takes what it gives */
    expect(&seq, SCHED_WAIT_READER);
    expect_none_left(&r);
    rig_close(&r);
}
END_TEST

/* A prompt goes whole or not at all, and a step has rows for one of the two. */
START_TEST(for_rows)
{
    int32_t tokens[60];
    struct rig r = rig_open((struct rig_limits){.n_ctx = 64, .max_rows = 64, .is_bidirectional = true});
    enum { N = 4 };
    struct sched_seq *seqs[N];
    struct sched_event ev;
    rig_prompt(tokens, 60, 1);
    struct sched_request q = {.pooling = PLAN_POOL_MEAN, .tokens = tokens, .n_tokens = 60};
    rig_hold(&r);
    for (int i = 0; i < N; i++) {
        seqs[i] = rig_submit(&r, &q);
        rig_wait_held(&r);
    }
    rig_go_on(&r);
    for (int i = 0; i < N; i++) {
        struct sched_usage u;
        ck_assert_int_eq(sched_next(seqs[i], 20000, &ev), ERR_OK);
        ck_assert(ev.kind == SCHED_END && ev.err == ERR_OK);
        sched_seq_usage(seqs[i], &u);
        ck_assert_msg((i != 0 && i != N - 1) || (u.waits.ns[SCHED_WAIT_BUDGET] > 0) == (i != 0), "%d",
                      i); /* others may be in time */
        sched_release(&seqs[i]);
    }
    expect_none_left(&r);
    rig_close(&r);
}
END_TEST

START_TEST(each_reason_has_a_name)
{
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        for (int k = 0; k < i; k++) {
            ck_assert_str_ne(sched_wait_name((enum sched_wait)i), sched_wait_name((enum sched_wait)k));
        }
    }
}
END_TEST

START_TEST(a_line_of_the_log_has_the_longest)
{
    char text[SCHED_WAITS_BYTES];
    struct sched_waits sum = {{0}};
    const struct sched_waits parts[] = {{{[SCHED_WAIT_SEAT] = 7999999, [SCHED_WAIT_READER] = 2000000}},
                                        {{[SCHED_WAIT_SEAT] = 1, [SCHED_WAIT_READER] = 4000000}}};
    ck_assert_str_eq(sched_waits_text(&parts[0], text), "seat:7,reader:2");
    ck_assert_str_eq(sched_waits_text(&sum, text), "none");
    sched_waits_raise(&sum, &parts[0]);
    sched_waits_raise(&sum, &parts[1]);
    ck_assert_str_eq(sched_waits_text(&sum, text), "seat:7,reader:4");
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        sum.ns[i] = UINT64_MAX;
    }
    ck_assert_uint_lt(strlen(sched_waits_text(&sum, text)), sizeof text - 1); /* nothing was cut */
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_test(t, for_a_place);
    tcase_add_loop_test(t, for_pages, 0, 2);
    tcase_add_test(t, for_a_state);
    tcase_add_test(t, for_the_reader);
    tcase_add_test(t, for_rows);
    tcase_add_test(t, each_reason_has_a_name);
    tcase_add_test(t, a_line_of_the_log_has_the_longest);
    return t;
}

Suite *sched_wait_suite(void)
{
    Suite *s = suite_create("sched_wait");
    TCase *remote = all_tests("sched_wait_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    suite_add_tcase(s, all_tests("sched_wait"));
    suite_add_tcase(s, remote);
    return s;
}
