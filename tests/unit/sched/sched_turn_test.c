/* Whose turn it is: requests and keys share places and time, and what one has beyond its part never holds up others. */
#include "engine/base/mem.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <string.h>

Suite *sched_turn_suite(void);

enum { MOST = 24, LENGTH = 300 };

/* A request of several sequences with prompts of their own. */
struct many {
    struct sched_group *group;
    int32_t n;
    int32_t tokens[MOST][LENGTH];
    struct sched_request q[MOST];
    struct sched_seq *seqs[MOST];
};

static void make(struct many *m, int32_t n, int32_t n_prompt, int32_t max_tokens, uint64_t which)
{
    m->n = n;
    m->group = NULL;
    for (int32_t i = 0; i < n; i++) {
        rig_prompt(m->tokens[i], n_prompt, which + (uint64_t)i);
        m->q[i] = rig_request(m->tokens[i], n_prompt, max_tokens);
    }
}

static void submit(struct rig *r, struct many *m, uint64_t key)
{
    struct err_info info = {0};
    ck_assert_int_eq(sched_group_new(r->sched, &(struct sched_share){.key = key}, m->n, &m->group), ERR_OK);
    enum err err = sched_submit_all(r->sched, m->group, m->q, m->n, m->seqs, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    sched_group_release(&m->group);
}

/* Reads all to their ends; they gave what they would have given alone. Returns the first's time in the queue. */
static uint64_t collect(struct many *m, int32_t n_ctx)
{
    static struct rig_output got, expected;
    uint64_t first = 0;
    for (int32_t i = 0; i < m->n; i++) {
        rig_collect(&m->seqs[i], &got);
        rig_expect(&m->q[i], n_ctx, &expected);
        rig_compare(&got, &expected, "sequence of a request");
        first = i == 0 ? got.usage.queue_ns : first;
    }
    return first;
}

/* Tokens that the sequences have given so far. */
static int32_t n_given(const struct many *m)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++) {
        struct sched_usage u;
        sched_seq_usage(m->seqs[i], &u);
        n += u.completion_tokens;
    }
    return n;
}

/* Another request, or another key with requests of its own, finds all places taken. */
START_TEST(places_are_handed_over)
{
    static struct many heavy[6], light;
    int32_t n_heavy = _i == 0 ? 1 : 6;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 4, .n_pages = 256, .is_recurrent = _i == 2});
    rig_hold(&r);
    for (int32_t i = 0; i < n_heavy; i++) {
        make(&heavy[i], _i == 0 ? 8 : 1, 70, 200, 10 * (uint64_t)(i + 1));
        submit(&r, &heavy[i], 1);
    }
    rig_pass(&r, 20);
    make(&light, 1, 30, 5, 500);
    submit(&r, &light, _i == 0 ? 1 : 2);
    rig_pass_until(&r, light.seqs[0], 5, 20); /* without: until a place is free, 200 */
    rig_go_on(&r);
    (void)collect(&light, 320);
    ck_assert_uint_ge(rig_stats(&r).preempted, 1);
    for (int32_t i = 0; i < n_heavy; i++) {
        (void)collect(&heavy[i], 320);
    }
    ck_assert_uint_le(rig_stats(&r).preempted, 2);
    rig_close(&r);
}
END_TEST

START_TEST(turns_go_round)
{
    static struct many first, heavy, light[3];
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1});
    make(&first, 1, 3, 2, 1);
    make(&heavy, 2, 3, 2, 100);
    rig_hold(&r);
    submit(&r, &first, 0);
    rig_wait_held(&r);
    submit(&r, &heavy, _i == 0 ? 0 : 7);
    for (int i = 0; i < 3; i++) {
        make(&light[i], 1, 3, 2, 200 + (uint64_t)i);
        submit(&r, &light[i], _i == 0 ? 0 : 8);
    }
    atomic_store(&r.model->delay_us, 5000); /* beside which it does not matter when they were submitted */
    rig_go_on(&r);
    (void)collect(&first, 320);
    uint64_t waited[3], second;
    struct rig_output got;
    rig_collect(&heavy.seqs[0], &got);
    rig_collect(&heavy.seqs[1], &got);
    second = got.usage.queue_ns;
    for (int i = 0; i < 3; i++) {
        waited[i] = collect(&light[i], 320);
    }
    ck_assert_uint_lt(waited[0], second); /* one of each request; by keys, one of each key */
    if (_i == 0) {
        ck_assert_uint_lt(waited[2], second);
    } else {
        ck_assert_uint_gt(waited[1], second);
    }
    rig_close(&r);
}
END_TEST

/* Two requests of many sequences, and light ones coming all the time: what is computed again stays bounded. */
START_TEST(handing_over_does_not_thrash)
{
    static struct many a, b, light;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 8, .n_pages = 512, .max_rows = 128, .max_logits = 128});
    make(&a, 16, 200, 40, 1000);
    make(&b, 16, 200, 40, 2000);
    for (int32_t i = 0; i < 16; i++) { /* nothing of them is found again */
        a.q[i].prompt_logprobs = b.q[i].prompt_logprobs = _i == 1;
        a.q[i].sampling.n_top = b.q[i].sampling.n_top = _i - 1;
    }
    atomic_store(&r.model->delay_us, 100);
    submit(&r, &a, 0);
    submit(&r, &b, 0);
    int n_light = 0;
    while (n_given(&a) + n_given(&b) < 900) {
        make(&light, 1, 20, 3, 3000 + (uint64_t)n_light++);
        submit(&r, &light, 0);
        (void)collect(&light, 320);
    }
    (void)collect(&a, 320);
    (void)collect(&b, 320);
    long needed = 32 * 239 + n_light * 22, rows = r.model->n_rows;
    ck_assert_msg(rows <= (_i == 0 ? 1.3 : 2.5) * (double)needed, "%ld rows for %ld, %d light ones", rows, needed,
                  n_light);
    rig_close(&r);
}
END_TEST

/* With rows that cost time a request of many makes steps long; another does not pay for them more than half. */
START_TEST(time_is_shared)
{
    static struct many heavy, light;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 16, .n_pages = 512});
    make(&heavy, 16, 20, 290, 1);
    make(&light, 1, 20, 60, 500);
    rig_hold(&r);
    submit(&r, &heavy, 0);
    rig_pass(&r, 10);
    atomic_store(&r.model->row_us, 500);
    submit(&r, &light, 0);
    long before = r.model->n_rows;
    rig_pass_until(&r, light.seqs[0], 60, 400);
    long rows = r.model->n_rows - before;
    ck_assert_msg(rows < 550, "%ld rows for 60 tokens", rows); /* 16 a step: 960 and the prompt; shared: 4, about 240 */
    ck_assert_int_ge(n_given(&heavy), 16 * 10 + 60);           /* which does not stand still */
    atomic_store(&r.model->row_us, 0);
    rig_go_on(&r);
    (void)collect(&light, 320);
    (void)collect(&heavy, 320);
    rig_close(&r);
}
END_TEST

/* A prompt's parts fill up a step to what the back end takes at once. _i: a unit that one step has several of, and one that is larger. */
START_TEST(steps_beside_streams_are_even)
{
    static struct many stream, prompt;
    struct rig r =
        rig_open((struct rig_limits){.max_seqs = 2, .n_pages = 64, .max_rows = 128, .even_rows = _i == 0 ? 20 : 100});
    make(&stream, 1, 20, 290, 1);
    make(&prompt, 1, 290, 1, 500);
    atomic_store(&r.model->row_us, 1500); /* 48 rows fit into a step */
    rig_hold(&r);
    submit(&r, &stream, 0);
    rig_pass(&r, 4);
    submit(&r, &prompt, 0);
    rig_go_on(&r);
    (void)collect(&prompt, 320);
    atomic_store(&r.model->row_us, 0);
    int n_beside = atomic_load(&r.model->n_beside), n_uneven = atomic_load(&r.model->n_uneven);
    ck_assert_int_ge(n_beside, 3);
    ck_assert_int_eq(n_uneven, _i == 0 ? 0 : n_beside);
    (void)collect(&stream, 320);
    rig_close(&r);
}
END_TEST

/* Long prompts of a request before a short one. */
START_TEST(short_prompts_pass_long_ones)
{
    static struct many heavy, light;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 8, .n_pages = 256, .max_rows = 64});
    make(&heavy, 7, 300, 2, 1);
    make(&light, 1, 40, 1, 500);
    rig_hold(&r);
    submit(&r, &heavy, 0);
    rig_wait_held(&r);
    submit(&r, &light, 0);
    atomic_store(&r.model->delay_us, 3000);
    rig_pass_until(&r, light.seqs[0], 1, 10); /* after the others: 33 */
    rig_go_on(&r);
    (void)collect(&light, 320);
    (void)collect(&heavy, 320);
    rig_close(&r);
}
END_TEST

START_TEST(a_request_comes_in_whole_or_not_at_all)
{
    static struct many m;
    struct sched_seq *single[8], *extra;
    struct rig_output got;
    struct err_info info = {0};
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1, .queue_max = 8});
    make(&m, 12, 20, 4, 1);
    rig_hold(&r);
    struct sched_seq *first = rig_submit(&r, &m.q[0]);
    rig_wait_held(&r);
    ck_assert_int_eq(sched_group_new(r.sched, NULL, m.n, &m.group), ERR_OK);
    ck_assert_int_eq(sched_group_room(m.group), 2); /* one that runs, one to follow: half of the queue is free */
    ck_assert_int_eq(sched_submit_all(r.sched, m.group, m.q, 5, m.seqs, &info), ERR_OVERLOADED);
    for (int i = 0; i < 5; i++) {
        ck_assert_ptr_null(m.seqs[i]);
    }
    ck_assert_uint_eq(rig_stats(&r).n_waiting, 0);
    ck_assert_int_eq(sched_submit_all(r.sched, m.group, m.q, 2, m.seqs, &info), ERR_OK);
    ck_assert_uint_eq(rig_stats(&r).n_waiting, 2);
    for (int i = 0; i < 6; i++) { /* others fill the queue */
        single[i] = rig_submit(&r, &m.q[0]);
    }
    ck_assert_int_eq(sched_submit_all(r.sched, NULL, &m.q[0], 1, &extra, &info), ERR_OVERLOADED);
    ck_assert_int_eq(sched_group_room(m.group), 0);
    ck_assert_int_eq(sched_submit_all(r.sched, m.group, &m.q[2], 1, &m.seqs[2], &info), ERR_AGAIN);
    sched_cancel(m.seqs[0]); /* what ends may be followed, also when all others are refused */
    rig_go_on(&r);
    rig_collect(&m.seqs[0], &got);
    rig_hold(&r);
    ck_assert_int_ge(sched_group_room(m.group), 1);
    sched_drain(r.sched);
    ck_assert_int_eq(sched_submit_all(r.sched, m.group, &m.q[2], 1, &m.seqs[2], &info), ERR_OK);
    ck_assert_int_eq(sched_submit_all(r.sched, NULL, &m.q[0], 1, &extra, &info), ERR_DRAINING);
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < 6; i++) {
        rig_collect(&single[i], &got);
        ck_assert_int_eq(got.n, 4);
    }
    rig_collect(&m.seqs[1], &got);
    rig_collect(&m.seqs[2], &got);
    ck_assert_int_eq(got.n, 4);
    sched_group_release(&m.group);
    rig_close(&r);
}
END_TEST

/* Requests of many leave room in the queue for those of one. */
START_TEST(many_do_not_fill_the_queue)
{
    static struct many m[8];
    struct sched_seq *seq;
    struct rig_output got;
    struct err_info info = {0};
    struct rig r = rig_open((struct rig_limits){.max_seqs = 2, .queue_max = 16});
    rig_hold(&r);
    static const int32_t one[] = {9};
    struct sched_request q = rig_request(one, 1, 1);
    struct sched_seq *first = rig_submit(&r, &q);
    rig_wait_held(&r);
    int n_in = 0;
    for (int i = 0; i < 8; i++) {
        make(&m[i], 20, 10, 2, 100 * (uint64_t)(i + 1));
        ck_assert_int_eq(sched_group_new(r.sched, NULL, 20, &m[i].group), ERR_OK);
        m[i].n = sched_group_room(m[i].group);
        if (m[i].n > 0) {
            ck_assert_int_eq(sched_submit_all(r.sched, m[i].group, m[i].q, m[i].n, m[i].seqs, &info), ERR_OK);
            n_in++;
        } else {
            ck_assert_int_eq(sched_submit_all(r.sched, m[i].group, m[i].q, 1, m[i].seqs, &info), ERR_OVERLOADED);
        }
        sched_group_release(&m[i].group);
    }
    ck_assert_int_ge(n_in, 2);
    ck_assert_int_lt(n_in, 8);
    ck_assert_int_eq(sched_submit_all(r.sched, NULL, &q, 1, &seq, &info), ERR_OK);
    rig_go_on(&r);
    rig_collect(&first, &got);
    rig_collect(&seq, &got);
    for (int i = 0; i < n_in; i++) {
        (void)collect(&m[i], 320);
    }
    rig_close(&r);
}
END_TEST

/* With _i 1 a short answer came before, which is then forgotten, as that of warming is. */
START_TEST(the_estimate_counts_tokens)
{
    static struct many m;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1, .n_ctx = 320});
    if (_i == 1) {
        make(&m, 1, 10, 2, 1);
        m.seqs[0] = rig_submit(&r, &m.q[0]);
        (void)collect(&m, 320);
        sched_clear_stats(r.sched);
    }
    make(&m, 11, 10, 200, 1);
    for (int32_t i = 0; i < m.n; i++) {
        m.seqs[i] = NULL;
    }
    atomic_store(&r.model->delay_us, 1000); /* at least, for each of 2,200 tokens */
    rig_hold(&r);
    for (int32_t i = 0; i < m.n; i++) {
        m.seqs[i] = rig_submit(&r, &m.q[i]);
    }
    rig_pass(&r, 20);
    uint64_t estimated = rig_stats(&r).estimated_wait_ms;
    ck_assert_msg(estimated >= 1500, "%d ms", (int)estimated);
    atomic_store(&r.model->delay_us, 0);
    rig_go_on(&r);
    (void)collect(&m, 320);
    rig_close(&r);
}
END_TEST

START_TEST(failed_allocations_leave_nothing)
{
    static struct many m;
    struct err_info info = {0};
    struct rig r = rig_open((struct rig_limits){0});
    make(&m, 3, 20, 2, 1);
    for (long n = 0;; n++) {
        mem_fail_at(n);
        enum err err = sched_group_new(r.sched, &(struct sched_share){.key = 3}, 3, &m.group);
        err = err != ERR_OK ? err : sched_submit_all(r.sched, m.group, m.q, 3, m.seqs, &info);
        mem_fail_at(-1);
        if (err == ERR_OK) {
            break;
        }
        ck_assert_int_eq(err, ERR_NOMEM);
        ck_assert(m.group == NULL || (m.seqs[0] == NULL && m.seqs[1] == NULL && m.seqs[2] == NULL));
        sched_group_release(&m.group);
        ck_assert_int_lt(n, 100);
    }
    sched_group_release(&m.group);
    (void)collect(&m, 320);
    rig_close(&r);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_loop_test(t, places_are_handed_over, 0, 3);
    tcase_add_loop_test(t, turns_go_round, 0, 2);
    tcase_add_loop_test(t, handing_over_does_not_thrash, 0, 2);
    tcase_add_test(t, time_is_shared);
    tcase_add_loop_test(t, steps_beside_streams_are_even, 0, 2);
    tcase_add_test(t, short_prompts_pass_long_ones);
    tcase_add_test(t, a_request_comes_in_whole_or_not_at_all);
    tcase_add_test(t, many_do_not_fill_the_queue);
    tcase_add_loop_test(t, the_estimate_counts_tokens, 0, 2);
    tcase_add_test(t, failed_allocations_leave_nothing);
    return t;
}

Suite *sched_turn_suite(void)
{
    Suite *s = suite_create("sched_turn");
    TCase *remote = all_tests("sched_turn_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    suite_add_tcase(s, all_tests("sched_turn"));
    suite_add_tcase(s, remote);
    return s;
}
