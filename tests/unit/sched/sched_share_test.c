/* Shares: rows that keys get by their weights and classes, whatever their requests are like, and how long one waits. */
#include "engine/base/mem.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <math.h>

Suite *sched_share_suite(void);

enum { SEQS = 240, LENGTH = 300, CTX = 320, TENANTS = 4 };

/* A tenant that always has work: requests of one sequence each. */
struct flood {
    struct sched_share share;
    int32_t n, n_prompt, max_tokens;
    int32_t tokens[SEQS][LENGTH];
    struct sched_seq *seqs[SEQS];
};

static struct sched_seq *submit(struct rig *r, const struct sched_share *share, const int32_t *tokens, int32_t n_prompt,
                                int32_t max_tokens)
{
    struct sched_request q = rig_request(tokens, n_prompt, max_tokens);
    struct sched_group *g;
    struct sched_seq *seq;
    struct err_info info = {0};
    ck_assert_int_eq(sched_group_new(r->sched, share, 1, &g), ERR_OK);
    enum err err = sched_submit_all(r->sched, g, &q, 1, &seq, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    sched_group_release(&g);
    return seq;
}

static void begin(struct rig *r, struct flood *f, int32_t n, int32_t n_prompt, int32_t max_tokens)
{
    f->n = n;
    f->n_prompt = n_prompt;
    f->max_tokens = max_tokens;
    for (int32_t i = 0; i < n; i++) {
        rig_prompt(f->tokens[i], n_prompt, f->share.key * 1000 + (uint64_t)i);
        f->seqs[i] = submit(r, &f->share, f->tokens[i], n_prompt, max_tokens);
    }
}

/* Rows it had computed so far: prompt tokens and, but for the last of each, generated ones. */
static int64_t n_rows(const struct flood *f)
{
    int64_t n = 0;
    for (int32_t i = 0; i < f->n; i++) {
        struct sched_usage u;
        sched_seq_usage(f->seqs[i], &u);
        n += u.processed_tokens + MAX_OF(u.completion_tokens - 1, 0);
    }
    return n;
}

static bool is_flooding(const struct flood *f)
{
    struct sched_usage u;
    sched_seq_usage(f->seqs[f->n - 1], &u);
    return u.queue_ns == 0;
}

/* From a batch that stands still on: what each had when all together had `total` rows, and another batch stands still; all had work until
 * then. */
static void measure(struct rig *r, struct flood *floods, int n, int64_t total, int64_t *rows)
{
    for (int64_t sum = 0; sum < total;) {
        rig_pass(r, 20);
        sum = 0;
        for (int i = 0; i < n; i++) {
            rows[i] = n_rows(&floods[i]);
            sum += rows[i];
        }
    }
    for (int i = 0; i < n; i++) {
        ck_assert_msg(is_flooding(&floods[i]), "tenant %d had no more work", i);
    }
}

static void end(struct rig *r, struct flood *floods, int n)
{
    atomic_store(&r->model->delay_us, 0);
    rig_go_on(r);
    for (int i = 0; i < n; i++) {
        for (int32_t k = 0; k < floods[i].n; k++) {
            sched_release(&floods[i].seqs[k]);
        }
    }
}

static double jain(const int64_t *x, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    return sum * sum / (n * squares);
}

static struct rig_limits limits(int32_t max_seqs)
{
    return (struct rig_limits){.max_seqs = max_seqs, .n_pages = 512, .queue_max = 2000};
}

/* So that all are there when the first step that counts begins. */
static struct sched_seq *hold_with_one(struct rig *r)
{
    static const int32_t one[] = {9};
    rig_hold(r);
    return submit(r, NULL, one, 1, 1);
}

/* Long prompts and short answers, short prompts and long answers, and between. */
START_TEST(equals_get_equal_rows)
{
    static const int32_t shapes[TENANTS][2] = {{290, 4}, {10, 60}, {100, 20}, {30, 90}};
    static struct flood floods[TENANTS];
    int64_t rows[TENANTS];
    struct rig r = rig_open(limits(8));
    struct sched_seq *first = hold_with_one(&r);
    for (int i = 0; i < TENANTS; i++) {
        floods[i].share = (struct sched_share){.key = (uint64_t)i + 1};
        begin(&r, &floods[i], SEQS, shapes[i][0], shapes[i][1]);
    }
    measure(&r, floods, TENANTS, 24000, rows);
    double index = jain(rows, TENANTS);
    ck_assert_msg(index >= 0.95, "%.3f of %d, %d, %d and %d rows", index, (int)rows[0], (int)rows[1], (int)rows[2],
                  (int)rows[3]);
    end(&r, floods, TENANTS);
    sched_release(&first);
    rig_close(&r);
}
END_TEST

/* _i: requests alike, and not. */
START_TEST(weights_divide_rows)
{
    static struct flood floods[2];
    int64_t rows[2];
    struct rig r = rig_open(limits(6));
    struct sched_seq *first = hold_with_one(&r);
    floods[0].share = (struct sched_share){.key = 1, .weight = 2};
    floods[1].share = (struct sched_share){.key = 2, .weight = 1};
    begin(&r, &floods[0], SEQS, 40, 40);
    begin(&r, &floods[1], SEQS, _i == 0 ? 40 : 110, _i == 0 ? 40 : 5);
    measure(&r, floods, 2, 20000, rows);
    double ratio = (double)rows[0] / (double)rows[1];
    ck_assert_msg(fabs(ratio / 2 - 1) <= 0.05, "%.3f: %d and %d rows", ratio, (int)rows[0], (int)rows[1]);
    end(&r, floods, 2);
    sched_release(&first);
    rig_close(&r);
}
END_TEST

/* A request now and then, of less than its part, beside two that flood; what it answers is the same. */
START_TEST(a_light_one_waits_for_a_step_or_two)
{
    static struct flood floods[2];
    static struct rig_output got, expected;
    struct rig r = rig_open(limits(4));
    struct sched_share light = {.key = 9};
    rig_hold(&r);
    for (int i = 0; i < 2; i++) {
        floods[i].share = (struct sched_share){.key = (uint64_t)i + 1};
        begin(&r, &floods[i], SEQS, 200, 100);
    }
    for (int i = 0; i < 5; i++) { /* meanwhile the others have at least twice its rows each */
        int32_t tokens[30];
        rig_prompt(tokens, 30, 5000 + (uint64_t)i);
        rig_hold(&r);
        rig_pass(&r, 40);
        struct sched_seq *q = submit(&r, &light, tokens, 30, 1);
        rig_pass_until(&r, q, 1, 8); /* one in progress, one for its prompt, and what goes alone */
        rig_go_on(&r);
        rig_collect(&q, &got);
        struct sched_request asked = rig_request(tokens, 30, 1);
        rig_expect(&asked, CTX, &expected);
        rig_compare(&got, &expected, "light");
    }
    end(&r, floods, 2);
    rig_close(&r);
}
END_TEST

/* A sequence that lost its slot within its prompt, and repeats nothing because its pages were kept, loses it again after
 * a quantum: light requests do not wait until it has generated as many tokens as its prompt had left. */
START_TEST(a_long_prompt_gives_its_slot_twice)
{
    static struct flood flood;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 2, .n_pages = 512, .queue_max = 2000, .max_rows = 32});
    struct sched_share light = {.key = 9};
    flood.share = (struct sched_share){.key = 1};
    rig_hold(&r);
    begin(&r, &flood, 2, 256, 60);
    rig_pass(&r, 6);
    for (int i = 0; i < 2; i++) {
        int32_t tokens[30];
        rig_prompt(tokens, 30, 5000 + (uint64_t)i);
        struct sched_seq *q = submit(&r, &light, tokens, 30, 1);
        rig_pass_until(&r, q, 1, 8);
        sched_release(&q);
        struct sched_usage u;
        sched_seq_usage(flood.seqs[1], &u);
        ck_assert_msg(u.processed_tokens < 256, "%d: the prompt is complete", i);
        rig_pass(&r, 5);
    }
    end(&r, &flood, 1);
    rig_close(&r);
}
END_TEST

/* The prompt of a key's only request is computed alone, also while others decode; and when many such requests come at once a
 * fifth of the time's, so that the others do not stand still. */
START_TEST(a_short_prompt_goes_alone)
{
    enum { N_LIGHT = 20 };
    static struct flood flood;
    static struct rig_output got;
    static int32_t tokens[N_LIGHT][30];
    struct sched_seq *light[N_LIGHT];
    struct rig r = rig_open((struct rig_limits){.max_seqs = 8, .n_pages = 512, .queue_max = 2000, .max_rows = 30});
    flood.share = (struct sched_share){.key = 1};
    atomic_store(&r.model->delay_us, 20000); /* time for four express steps is saved up at most */
    rig_hold(&r);
    begin(&r, &flood, SEQS, 20, 280);
    rig_pass(&r, 16);
    int before = atomic_load(&r.model->n_alone);
    int64_t rows = n_rows(&flood);
    for (int i = 0; i < N_LIGHT; i++) {
        rig_prompt(tokens[i], 30, 5000 + (uint64_t)i);
        light[i] = submit(&r, &(struct sched_share){.key = 10 + (uint64_t)i}, tokens[i], 30, 1);
    }
    rig_go_on(&r);
    for (int i = 0; i < N_LIGHT; i++) {
        rig_collect(&light[i], &got);
    }
    int n_alone = atomic_load(&r.model->n_alone) - before;
    rows = n_rows(&flood) - rows;
    ck_assert_msg(n_alone >= 1 && n_alone <= N_LIGHT / 2, "%d of %d alone", n_alone, N_LIGHT);
    ck_assert_msg(rows >= N_LIGHT, "%d rows beside", (int)rows);
    end(&r, &flood, 1);
    rig_close(&r);
}
END_TEST

/* _i: places in the batch. A lower class has its eighth of the rows, not more. */
START_TEST(a_lower_class_gets_its_eighth)
{
    static struct flood floods[2];
    int64_t rows[2];
    struct rig r = rig_open(limits(_i));
    struct sched_seq *first = hold_with_one(&r);
    floods[0].share = (struct sched_share){.key = 1, .priority = 10};
    floods[1].share = (struct sched_share){.key = 2, .priority = -10};
    begin(&r, &floods[1], 40, 60, 30);
    begin(&r, &floods[0], SEQS, 60, 30);
    measure(&r, floods, 2, 8000, rows);
    double part = (double)rows[1] / (double)(rows[0] + rows[1]);
    ck_assert_msg(part >= 0.10 && part <= 0.16, "%.3f: %d of %d rows", part, (int)rows[1], (int)(rows[0] + rows[1]));
    end(&r, floods, 2);
    sched_release(&first);
    rig_close(&r);
}
END_TEST

/* All places are a lower class's, with long sequences; the higher one has one at once, also where each key has one only. */
START_TEST(a_higher_class_goes_first)
{
    static struct flood floods[TENANTS];
    static struct rig_output got;
    struct rig r = rig_open(limits(TENANTS));
    struct sched_share high = {.key = 9, .priority = 1};
    int32_t tokens[30];
    rig_hold(&r);
    for (int i = 0; i < TENANTS; i++) {
        floods[i].share = (struct sched_share){.key = _i == 0 ? 1 : (uint64_t)i + 1};
        begin(&r, &floods[i], 10, 20, 290);
    }
    rig_prompt(tokens, 30, 5000);
    rig_pass(&r, 20);
    struct sched_seq *q = submit(&r, &high, tokens, 30, 3);
    rig_pass_until(&r, q, 3, 12);
    rig_go_on(&r);
    rig_collect(&q, &got);
    end(&r, floods, TENANTS);
    rig_close(&r);
}
END_TEST

/* What was had before counts for a key that comes again, and idle time saves nothing up. */
START_TEST(nobody_saves_up)
{
    static struct flood floods[2];
    int64_t rows[2], at_first;
    struct rig r = rig_open(limits(4));
    struct sched_seq *first = hold_with_one(&r);
    for (int i = 0; i < 2; i++) {
        floods[i].share = (struct sched_share){.key = (uint64_t)i + 1};
    }
    begin(&r, &floods[0], SEQS, 40, 40);
    measure(&r, floods, 1, 3000, rows);
    begin(&r, &floods[1], SEQS, 40, 40);
    at_first = n_rows(&floods[0]);
    measure(&r, floods, 2, at_first + 4000, rows);
    double part = (double)rows[1] / (double)(rows[0] + rows[1] - at_first);
    ck_assert_msg(part > 0.4 && part < 0.6, "%.3f", part);
    end(&r, floods, 2);
    sched_release(&first);
    rig_close(&r);
}
END_TEST

START_TEST(keys_are_counted_and_forgotten)
{
    static const int32_t one[] = {9};
    static struct rig_output got;
    uint64_t running, waiting;
    struct rig r = rig_open(limits(1));
    size_t before = mem_live_of(MEM_GENERAL);
    for (uint64_t key = 1; key <= 500; key++) {
        struct sched_seq *q = submit(&r, &(struct sched_share){.key = key}, one, 1, 1);
        rig_collect(&q, &got);
        ck_assert_int_eq(got.n, 1);
    }
    ck_assert_uint_le(mem_live_of(MEM_GENERAL) - before, 32 << 10);
    rig_hold(&r);
    struct sched_seq *a = submit(&r, &(struct sched_share){.key = 7}, one, 1, 1);
    rig_wait_held(&r);
    struct sched_seq *b = submit(&r, &(struct sched_share){.key = 7}, one, 1, 1);
    sched_get_share(r.sched, 7, &running, &waiting);
    ck_assert_uint_eq(running, 1);
    sched_get_share(r.sched, 8, &running, &waiting);
    ck_assert_uint_eq(running + waiting, 0);
    rig_go_on(&r);
    rig_collect(&a, &got);
    rig_collect(&b, &got);
    rig_close(&r);
}
END_TEST

/* Submits requests of one token until one is refused. Returns how many were not. */
static int fill(struct rig *r, const struct sched_share *share, struct sched_seq **seqs, int most)
{
    static const int32_t one[] = {9};
    struct sched_request q = rig_request(one, 1, 1);
    struct err_info info = {0};
    enum err err = ERR_OK;
    int n = 0;
    while (n < most && err == ERR_OK) {
        struct sched_group *g;
        bool is_full = sched_is_full(r->sched, share->key);
        ck_assert_int_eq(sched_group_new(r->sched, share, 1, &g), ERR_OK);
        err = sched_submit_all(r->sched, g, &q, 1, &seqs[n], &info);
        ck_assert(!is_full || err == ERR_OVERLOADED);
        n += err == ERR_OK;
        sched_group_release(&g);
    }
    ck_assert(err == ERR_OK || err == ERR_OVERLOADED);
    return n;
}

/* A flood fills the queue. A quarter more wait of keys that have no more than their part. _i: keys that were there
 * before. */
START_TEST(a_flood_refuses_nobody_else)
{
    enum { QUEUE = 32, RESERVE = 8, MOST = 64 };
    static struct sched_seq *seqs[MOST];
    static const int32_t one[] = {9};
    struct sched_share flood = {.key = 1}, light = {.key = 2}, third = {.key = 3};
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1, .queue_max = QUEUE});
    if (_i == 1) {
        seqs[0] = submit(&r, &light, one, 1, 1);
        rig_collect(&seqs[0], &got);
    }
    rig_hold(&r);
    seqs[0] = submit(&r, &flood, one, 1, 1);
    rig_wait_held(&r);
    int n = 1 + fill(&r, &flood, &seqs[1], MOST - 1);
    ck_assert_int_eq(n, 1 + QUEUE);
    ck_assert(!sched_is_full(r.sched, light.key) && sched_is_full(r.sched, flood.key));
    n += fill(&r, &light, &seqs[n], 2);
    n += fill(&r, &third, &seqs[n], 3);
    ck_assert_int_eq(n, 1 + QUEUE + 5);
    ck_assert_int_eq(fill(&r, &flood, &seqs[n], 1), 0);
    n += fill(&r, &light, &seqs[n], MOST - n);
    ck_assert_int_eq(n, 1 + QUEUE + RESERVE); /* as full as can be */
    ck_assert(sched_is_full(r.sched, light.key) && sched_is_full(r.sched, 4));
    rig_go_on(&r);
    for (int i = 0; i < n; i++) {
        rig_collect(&seqs[i], &got);
        ck_assert_int_eq(got.n, 1);
    }
    rig_close(&r);
}
END_TEST

/* More clients than the part of one has room for: each may wait with one request, none with two. */
START_TEST(one_request_is_within_the_part_of_anyone)
{
    enum { QUEUE = 8, ALL = 1 + QUEUE + QUEUE / 4 };
    struct sched_seq *seqs[ALL];
    static const int32_t one[] = {9};
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1, .queue_max = QUEUE});
    rig_hold(&r);
    seqs[0] = submit(&r, &(struct sched_share){.key = 1}, one, 1, 1);
    rig_wait_held(&r);
    for (uint64_t i = 1; i <= QUEUE; i++) {
        ck_assert_int_eq(fill(&r, &(struct sched_share){.key = 1 + i}, &seqs[i], 1), 1);
    }
    ck_assert_int_eq(fill(&r, &(struct sched_share){.key = 2}, &seqs[QUEUE + 1], 1), 0);
    for (uint64_t i = QUEUE + 1; i < ALL; i++) {
        ck_assert_int_eq(fill(&r, &(struct sched_share){.key = 1 + i}, &seqs[i], 1), 1);
    }
    rig_go_on(&r);
    for (int i = 0; i < ALL; i++) {
        rig_collect(&seqs[i], &got);
        ck_assert_int_eq(got.n, 1);
    }
    rig_close(&r);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, equals_get_equal_rows);
    tcase_add_loop_test(t, weights_divide_rows, 0, 2);
    tcase_add_test(t, a_light_one_waits_for_a_step_or_two);
    tcase_add_test(t, a_long_prompt_gives_its_slot_twice);
    tcase_add_test(t, a_short_prompt_goes_alone);
    tcase_add_test(t, nobody_saves_up);
    tcase_add_loop_test(t, a_lower_class_gets_its_eighth, 1, 2);
    tcase_add_loop_test(t, a_lower_class_gets_its_eighth, 8, 9);
    tcase_add_loop_test(t, a_higher_class_goes_first, 0, 2);
    tcase_add_test(t, keys_are_counted_and_forgotten);
    tcase_add_loop_test(t, a_flood_refuses_nobody_else, 0, 2);
    tcase_add_test(t, one_request_is_within_the_part_of_anyone);
    return t;
}

Suite *sched_share_suite(void)
{
    Suite *s = suite_create("sched_share");
    TCase *remote = all_tests("sched_share_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    suite_add_tcase(s, all_tests("sched_share"));
    suite_add_tcase(s, remote);
    return s;
}
