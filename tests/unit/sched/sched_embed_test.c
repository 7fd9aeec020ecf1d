/* Embeddings: pooled as asked for, to the bit what a plain loop gives, whatever the pieces, neighbours, cached prefixes
 * and preemptions. */
#include "engine/base/mem.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *sched_embed_suite(void);

enum { LONGEST = 200 };

static struct sched_request embed_request(const int32_t *tokens, int32_t n, enum plan_pooling pooling)
{
    return (struct sched_request){.pooling = pooling, .tokens = tokens, .n_tokens = n};
}

static void expect(const struct sched_request *q, float out[FAKE_EMBD])
{
    double sum[FAKE_EMBD] = {0}, square = 0;
    for (int32_t i = 0; i < q->n_tokens; i++) {
        float state[FAKE_EMBD];
        fake_backend_state(q->tokens, i + 1, state);
        bool counts = q->pooling == PLAN_POOL_MEAN || i == (q->pooling == PLAN_POOL_CLS ? 0 : q->n_tokens - 1);
        for (int k = 0; counts && k < FAKE_EMBD; k++) {
            sum[k] += state[k];
        }
    }
    for (int k = 0; k < FAKE_EMBD; k++) {
        square += sum[k] * sum[k];
    }
    for (int k = 0; k < FAKE_EMBD; k++) {
        out[k] = (float)(sum[k] / sqrt(square));
    }
}

/* Waits for the end, compares, releases. */
static void check_embedding(struct sched_seq **seq, const struct sched_request *q, struct sched_usage *usage)
{
    struct sched_event ev;
    float expected[FAKE_EMBD];
    ck_assert_int_eq(sched_next(*seq, 20000, &ev), ERR_OK);
    ck_assert(ev.kind == SCHED_END && ev.err == ERR_OK);
    expect(q, expected);
    ck_assert_msg(memcmp(sched_embedding(*seq), expected, sizeof expected) == 0, "%d tokens, pooling %s: %g, not %g",
                  q->n_tokens, plan_pooling_name((int)q->pooling - 1), (double)sched_embedding(*seq)[0],
                  (double)expected[0]);
    sched_seq_usage(*seq, usage);
    ck_assert_int_eq(usage->prompt_tokens, q->n_tokens);
    sched_release(seq);
}

START_TEST(embeddings_do_not_depend_on_pieces_and_neighbours)
{
    static const struct rig_limits limits[] = {
        {.max_seqs = 1, .max_rows = 1},   {.max_seqs = 3, .max_rows = 31},
        {.max_seqs = 16, .max_rows = 33}, {.max_seqs = 16, .max_rows = 512},
        {.n_pages = 12, .max_rows = 64}, /* few pages: some are preempted */
        {.is_recurrent = true},
    };
    static const int32_t lengths[] = {1, 7, 31, 32, 33, 64, 65, 100, 129, LONGEST};
    enum { N = 30 };
    static int32_t tokens[N][LONGEST];
    struct sched_request q[N], generate[N];
    struct sched_seq *seqs[N], *others[N];
    struct rig r = rig_open(limits[_i]);
    for (int i = 0; i < N; i++) {
        rig_prompt(tokens[i], LONGEST, (uint64_t)i % 4); /* they share beginnings */
        q[i] = embed_request(tokens[i], lengths[i % 10], (enum plan_pooling)(1 + i % 3));
        generate[i] = rig_request(tokens[i], lengths[(i * 7 + 1) % 10], 5);
        seqs[i] = rig_submit(&r, &q[i]);
        others[i] = rig_submit(&r, &generate[i]);
    }
    for (int i = 0; i < N; i++) {
        static struct rig_output got, expected;
        struct sched_usage usage;
        check_embedding(&seqs[i], &q[i], &usage);
        rig_collect(&others[i], &got);
        rig_expect(&generate[i], 320, &expected);
        rig_compare(&got, &expected, "generation beside embeddings");
    }
    rig_close(&r);
}
END_TEST

START_TEST(each_token_has_its_state_whatever_the_pieces)
{
    static const struct rig_limits limits[] = {
        {.max_seqs = 1, .max_rows = 1},
        {.max_seqs = 3, .max_rows = 31},
        {.n_pages = 12, .max_rows = 64}, /* few pages: some are preempted */
    };
    enum { N = 12 };
    static int32_t tokens[N][LONGEST];
    struct sched_request q[N];
    struct sched_seq *seqs[N];
    struct rig r = rig_open(limits[_i]);
    for (int i = 0; i < N; i++) {
        rig_prompt(tokens[i], LONGEST, (uint64_t)i % 4);
        q[i] = embed_request(tokens[i], 1 + i * 37 % LONGEST, i % 3 == 2 ? PLAN_POOL_LAST : PLAN_POOL_EACH);
        seqs[i] = rig_submit(&r, &q[i]);
    }
    for (int i = 0; i < N; i++) {
        struct sched_usage usage;
        struct sched_event ev;
        if (q[i].pooling != PLAN_POOL_EACH) {
            check_embedding(&seqs[i], &q[i], &usage);
            continue;
        }
        ck_assert_int_eq(sched_next(seqs[i], 20000, &ev), ERR_OK);
        ck_assert(ev.kind == SCHED_END && ev.err == ERR_OK);
        for (int32_t k = 0; k < q[i].n_tokens; k++) {
            float state[FAKE_EMBD];
            fake_backend_state(tokens[i], k + 1, state);
            ck_assert_msg(memcmp(sched_embedding(seqs[i]) + k * FAKE_EMBD, state, sizeof state) == 0,
                          "text %d, token %d", i, k);
        }
        sched_release(&seqs[i]);
    }
    rig_close(&r);
}
END_TEST

START_TEST(only_last_pooling_uses_what_is_kept)
{
    static int32_t tokens[LONGEST];
    struct rig r = rig_open((struct rig_limits){0});
    rig_prompt(tokens, LONGEST, 3);
    for (int pooling = PLAN_POOL_MEAN; pooling <= PLAN_POOL_LAST; pooling++) {
        for (int again = 0; again < 2; again++) {
            struct sched_request q = embed_request(tokens, 100, (enum plan_pooling)pooling);
            struct sched_seq *seq = rig_submit(&r, &q);
            struct sched_usage usage;
            check_embedding(&seq, &q, &usage);
            ck_assert_int_eq(usage.cached_tokens, pooling == PLAN_POOL_LAST && again == 1 ? 96 : 0);
            rig_wait_idle(&r);
        }
    }
    rig_close(&r);
}
END_TEST

START_TEST(bidirectional_texts_are_computed_in_one_piece)
{
    enum { N = 40 };
    static int32_t tokens[N][LONGEST];
    struct sched_request q[N];
    struct sched_seq *seqs[N];
    struct rig r = rig_open((struct rig_limits){.n_ctx = LONGEST, .max_rows = LONGEST, .is_bidirectional = true});
    for (int i = 0; i < N; i++) {
        rig_prompt(tokens[i], LONGEST, (uint64_t)i % 2);
        q[i] = embed_request(tokens[i], 1 + i * 37 % LONGEST, i % 2 == 0 ? PLAN_POOL_LAST : PLAN_POOL_MEAN);
        seqs[i] = rig_submit(&r, &q[i]);
    }
    for (int i = 0; i < N; i++) {
        struct sched_usage usage;
        check_embedding(&seqs[i], &q[i], &usage);
        ck_assert_int_eq(usage.cached_tokens, 0);
    }
    ck_assert(!atomic_load(&r.model->in_pieces));
    ck_assert_int_gt(r.model->n_wide, 1); /* short ones ran together */
    rig_close(&r);
    struct sched_config cfg = {.max_rows = 64, .n_ctx = 65, .n_pages = 9, .is_bidirectional = true};
    struct sched *s;
    ck_assert_int_eq(sched_new(&cfg, &s, NULL), ERR_CONFIG);
}
END_TEST

START_TEST(what_cannot_be_embedded_says_so)
{
    static int32_t tokens[LONGEST];
    struct rig r = rig_open((struct rig_limits){0});
    struct sched_seq *seq;
    struct sched_event ev;
    rig_prompt(tokens, LONGEST, 5);
    struct sched_request q = embed_request(tokens, 50, PLAN_POOL_MEAN);
    atomic_store(&r.model->nan_token, tokens[20]);
    seq = rig_submit(&r, &q);
    ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
    ck_assert(ev.kind == SCHED_END && ev.err == ERR_NUMERICAL);
    sched_release(&seq);
    struct sched_request each = embed_request(tokens, 50, PLAN_POOL_EACH);
    for (int is_bad = 1; is_bad >= 0; is_bad--) { /* the reader looks for it, not the scheduler */
        atomic_store(&r.model->nan_token, is_bad != 0 ? tokens[20] : -1);
        seq = rig_submit(&r, &each);
        ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
        ck_assert(ev.kind == SCHED_END && ev.err == ERR_OK);
        ck_assert_int_eq(sched_check_states(seq), is_bad != 0 ? ERR_NUMERICAL : ERR_OK);
        sched_release(&seq);
    }
    rig_hold(&r);
    seq = rig_submit(&r, &q);
    sched_cancel(seq);
    rig_go_on(&r);
    ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
    ck_assert(ev.kind == SCHED_END && (ev.err == ERR_CANCELLED || ev.err == ERR_OK));
    sched_release(&seq);
    q.max_tokens = 1; /* not both */
    ck_assert_int_eq(sched_submit_all(r.sched, NULL, &q, 1, &seq, NULL), ERR_INTERNAL);
    rig_close(&r);
}
END_TEST

START_TEST(a_submit_that_fails_leaves_nothing)
{
    int32_t tokens[4] = {1, 2, 3, 4};
    struct rig r = rig_open((struct rig_limits){0});
    struct sched_request q = embed_request(tokens, 4, PLAN_POOL_MEAN);
    for (long at = 0;; at++) {
        struct sched_seq *seq;
        size_t live = mem_live_of(MEM_REQUEST);
        mem_fail_at(at);
        enum err err = sched_submit_all(r.sched, NULL, &q, 1, &seq, NULL);
        mem_fail_at(-1);
        if (err == ERR_OK) {
            struct sched_usage usage;
            check_embedding(&seq, &q, &usage);
            ck_assert_int_eq(at, 3); /* the group, its key, and one block for the sequence */
            break;
        }
        ck_assert(err == ERR_NOMEM && seq == NULL && mem_live_of(MEM_REQUEST) == live);
    }
    rig_close(&r);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *c = tcase_create(name);
    tcase_add_loop_test(c, embeddings_do_not_depend_on_pieces_and_neighbours, 0, 6);
    tcase_add_loop_test(c, each_token_has_its_state_whatever_the_pieces, 0, 3);
    tcase_add_test(c, only_last_pooling_uses_what_is_kept);
    tcase_add_test(c, bidirectional_texts_are_computed_in_one_piece);
    tcase_add_test(c, what_cannot_be_embedded_says_so);
    tcase_add_test(c, a_submit_that_fails_leaves_nothing);
    return c;
}

Suite *sched_embed_suite(void)
{
    Suite *s = suite_create("sched_embed");
    TCase *remote = all_tests("sched_embed_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    suite_add_tcase(s, all_tests("sched_embed"));
    suite_add_tcase(s, remote);
    return s;
}
