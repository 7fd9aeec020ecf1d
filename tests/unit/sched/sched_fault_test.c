/* Cancels, deadlines, full queues, failing back ends and failing allocations: they end the sequences they concern, and
 * every page comes back. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/support/remote_backend.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <math.h>

Suite *sched_fault_suite(void);

START_TEST(cancelled_in_queue)
{
    int32_t tokens[100];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1});
    rig_prompt(tokens, 100, 1);
    struct sched_request q = rig_request(tokens, 100, 10);
    rig_hold(&r);
    struct sched_seq *first = rig_submit(&r, &q), *second = rig_submit(&r, &q);
    rig_wait_held(&r);
    sched_cancel(second);
    rig_go_on(&r);
    rig_collect(&second, &got);
    ck_assert_int_eq(got.err, ERR_CANCELLED);
    ck_assert_int_eq(got.n, 0);
    rig_collect(&first, &got);
    ck_assert_int_eq(got.n, 10);
    ck_assert_uint_eq(rig_stats(&r).cancelled_queue, 1);
    rig_close(&r);
}
END_TEST

START_TEST(cancelled_in_prefill_after_one_step)
{
    int32_t tokens[300];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_rows = 16});
    rig_prompt(tokens, 300, 1);
    struct sched_request q = rig_request(tokens, 300, 10);
    rig_hold(&r);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_wait_held(&r);
    sched_cancel(seq);
    rig_go_on(&r);
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.err, ERR_CANCELLED);
    rig_wait_idle(&r);
    ck_assert_int_eq(r.model->n_steps, 1); /* none after the one that ran */
    ck_assert_uint_eq(rig_stats(&r).cancelled_prefill, 1);
    rig_close(&r);
}
END_TEST

START_TEST(cancelled_in_decode_after_one_step)
{
    int32_t tokens[50];
    struct rig_output got;
    struct sched_event ev;
    struct rig r = rig_open((struct rig_limits){0});
    rig_prompt(tokens, 50, 1);
    atomic_store(&r.model->delay_us, 1000);
    struct sched_request q = rig_request(tokens, 50, 200);
    struct sched_seq *seq = rig_submit(&r, &q);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(sched_next(seq, 20000, &ev), ERR_OK);
    }
    rig_hold(&r);
    rig_wait_held(&r);
    long steps = r.model->n_steps;
    sched_cancel(seq);
    rig_go_on(&r);
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.err, ERR_CANCELLED);
    rig_wait_idle(&r);
    ck_assert_int_le(r.model->n_steps, steps + 1);
    ck_assert_uint_eq(rig_stats(&r).cancelled_decode, 1);
    rig_close(&r);
}
END_TEST

START_TEST(cancelling_one_of_two_leaves_the_other)
{
    int32_t tokens[200];
    struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.max_rows = 40});
    rig_prompt(tokens, 200, 1);
    struct sched_request q = rig_request(tokens, 200, 100);
    atomic_store(&r.model->delay_us, 300);
    struct sched_seq *a = rig_submit(&r, &q), *b = rig_submit(&r, &q);
    struct sched_event ev;
    ck_assert_int_eq(sched_next(a, 20000, &ev), ERR_OK);
    sched_release(&a);
    rig_collect(&b, &got);
    rig_expect(&q, 320, &expected);
    rig_compare(&got, &expected, "survivor");
    rig_close(&r);
}
END_TEST

START_TEST(deadlines_end_in_queue_and_in_the_middle)
{
    int32_t tokens[50];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1});
    rig_prompt(tokens, 50, 1);
    atomic_store(&r.model->delay_us, 20000);
    struct sched_request q = rig_request(tokens, 50, 250);
    q.deadline_ns = clock_now_ns() + 1000000000;
    struct sched_seq *running = rig_submit(&r, &q);
    q.deadline_ns = clock_now_ns() + 50000000;
    struct sched_seq *queued = rig_submit(&r, &q);
    rig_collect(&queued, &got);
    ck_assert_int_eq(got.err, ERR_DEADLINE);
    ck_assert_int_eq(got.n, 0);
    rig_collect(&running, &got);
    ck_assert_int_eq(got.err, ERR_DEADLINE);
    ck_assert_int_gt(got.n, 0);
    ck_assert_int_lt(got.n, 250);
    rig_close(&r);
}
END_TEST

static enum err try_submit(struct rig *r, const struct sched_request *q)
{
    struct sched_seq *seq = (struct sched_seq *)1;
    struct err_info info = {0};
    enum err err = sched_submit_all(r->sched, NULL, q, 1, &seq, &info);
    if (err == ERR_OK) {
        sched_release(&seq);
    } else {
        ck_assert_ptr_null(seq);
        ck_assert_int_eq(info.code, err);
    }
    return err;
}

/* The first sequence is inside the held back end and off the queue. */
static struct sched_seq *occupy(struct rig *r, const struct sched_request *q)
{
    rig_hold(r);
    struct sched_seq *seq = rig_submit(r, q);
    rig_wait_held(r);
    return seq;
}

START_TEST(a_full_queue_refuses)
{
    int32_t tokens[100];
    struct sched_seq *seqs[4];
    struct rig_output got;
    struct rig r = rig_open(
        (struct rig_limits){.max_seqs = 1, .queue_max = _i == 0 ? 4 : 64, .queue_max_tokens = _i == 0 ? 0 : 400});
    rig_prompt(tokens, 100, 1);
    struct sched_request q = rig_request(tokens, 100, 3), small = rig_request(tokens, 1, 1);
    struct sched_seq *first = occupy(&r, &q);
    for (int i = 0; i < 4; i++) {
        ck_assert(!sched_is_full(r.sched, 0));
        seqs[i] = rig_submit(&r, &q);
    }
    ck_assert(sched_is_full(r.sched, 0));
    ck_assert_int_eq(sched_is_full(r.sched, 77),
                     _i == 1); /* a newcomer: there is a reserve of places, none of tokens */
    ck_assert_int_eq(try_submit(&r, &small), ERR_OVERLOADED);
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < 4; i++) {
        rig_collect(&seqs[i], &got);
        ck_assert_int_eq(got.n, 3);
    }
    rig_wait_idle(&r);
    ck_assert(!sched_is_full(r.sched, 0));
    for (int i = 0; i < 20; i++) { /* and takes again, also after cancels in the queue */
        ck_assert_int_eq(try_submit(&r, &small), ERR_OK);
        rig_wait_idle(&r);
    }
    rig_close(&r);
}
END_TEST

START_TEST(what_can_never_fit_is_refused)
{
    int32_t tokens[400];
    struct rig r = rig_open((struct rig_limits){0});
    rig_prompt(tokens, 400, 1);
    struct sched_request q = rig_request(tokens, 321, 1);
    ck_assert_int_eq(try_submit(&r, &q), ERR_CONTEXT_LENGTH);
    q.n_tokens = 0;
    ck_assert_int_eq(try_submit(&r, &q), ERR_INVALID_VALUE);
    rig_close(&r);
    struct err_info info = {0};
    struct sched *s;
    struct sched_config cfg = {
        .n_ctx = 321, .n_pages = 10, .max_rows = 16, .max_seqs = 16, .max_logits = 16, .n_vocab = FAKE_VOCAB};
    ck_assert_int_eq(sched_new(&cfg, &s, &info), ERR_CONFIG);
    ck_assert_ptr_null(s);
    cfg.n_ctx = 320;
    cfg.n_states = 16; /* none to go on from */
    ck_assert_int_eq(sched_new(&cfg, &s, &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "more than 16 sequences, found 16") != NULL, "%s", info.text);
}
END_TEST

START_TEST(draining_finishes_what_it_took)
{
    int32_t tokens[50];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 1});
    rig_prompt(tokens, 50, 1);
    struct sched_request q = rig_request(tokens, 50, 20);
    struct sched_seq *running = occupy(&r, &q), *queued = rig_submit(&r, &q);
    sched_drain(r.sched);
    ck_assert_int_eq(try_submit(&r, &q), ERR_DRAINING);
    rig_go_on(&r);
    rig_collect(&running, &got);
    ck_assert_int_eq(got.n, 20);
    rig_collect(&queued, &got);
    ck_assert_int_eq(got.n, 20);
    rig_close(&r);
}
END_TEST

START_TEST(stopping_in_the_middle_frees_all)
{
    int32_t tokens[200];
    size_t live = mem_live();
    struct rig r = rig_open((struct rig_limits){.max_seqs = 2});
    rig_prompt(tokens, 200, 1);
    atomic_store(&r.model->delay_us, 2000);
    for (int i = 0; i < 6; i++) {
        struct sched_request q = rig_request(tokens, 200, 100);
        struct sched_seq *seq = rig_submit(&r, &q);
        sched_release(&seq);
    }
    sched_free(&r.sched);
    fake_backend_free(&r.model);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

START_TEST(a_failing_back_end_ends_its_batch_only)
{
    int32_t good[40], bad[40];
    struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i == 1});
    rig_prompt(good, 40, 1);
    rig_prompt(bad, 40, 2);
    for (int i = 0; i < 40; i++) {
        good[i] = good[i] == 60 ? 0 : good[i];
    }
    bad[35] = 60;
    atomic_store(&r.model->fail_token, 60);
    struct sched_request q = rig_request(bad, 40, 5);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.err, ERR_INTERNAL);
    ck_assert_str_eq(got.why, "told to fail");
    ck_assert_int_eq(got.n, 0);
    static const struct sampler_bias no_60 = {60, -100};
    q = rig_request(good, 40, 50);
    q.sampling.bias = &no_60;
    q.sampling.n_bias = 1;
    seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    rig_expect(&q, 320, &expected);
    rig_compare(&got, &expected, "after the failure");
    atomic_store(&r.model->fail_token, -1);
    q = rig_request(bad, 40, 5); /* nothing of the failed batch may be found */
    seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    rig_expect(&q, 320, &expected);
    rig_compare(&got, &expected, "again");
    ck_assert_int_eq(got.usage.cached_tokens, 0);
    ck_assert_int_eq(r.failures->n, 1);
    ck_assert(!sched_is_lost(r.sched, NULL));
    rig_close(&r);
}
END_TEST

/* Two sequences run, of which one's token does it, and one waits: all end with the cause, and nobody comes in. */
START_TEST(a_lost_back_end_ends_all)
{
    int32_t tokens[3][40];
    struct sched_seq *seqs[3];
    struct rig_output got;
    struct err_info info = {0};
    struct rig r = rig_open((struct rig_limits){.max_seqs = 2, .max_rows = 16, .is_recurrent = _i == 1});
    for (int i = 0; i < 3; i++) {
        rig_prompt(tokens[i], 40, 20 + (uint64_t)i);
        for (int k = 0; k < 40; k++) {
            tokens[i][k] = tokens[i][k] == 60 ? 0 : tokens[i][k];
        }
    }
    tokens[1][39] = 60;
    atomic_store(&r.model->fail_token, 60);
    atomic_store(&r.model->fail_code, ERR_LOST);
    rig_hold(&r);
    for (int i = 0; i < 3; i++) {
        struct sched_request q = rig_request(tokens[i], 40, 200);
        seqs[i] = rig_submit(&r, &q);
    }
    rig_go_on(&r);
    for (int i = 0; i < 3; i++) {
        rig_collect(&seqs[i], &got);
        ck_assert_int_eq(got.err, ERR_LOST);
        ck_assert_str_eq(got.why, "told to fail");
    }
    ck_assert(sched_is_lost(r.sched, &info));
    ck_assert_str_eq(info.text, "told to fail");
    long steps = r.model->n_steps;
    struct sched_request q = rig_request(tokens[0], 40, 5);
    ck_assert_int_eq(sched_submit_all(r.sched, NULL, &q, 1, &seqs[0], &info), ERR_LOST);
    ck_assert_str_eq(info.text, "told to fail");
    rig_wait_idle(&r); /* the pages came back */
    ck_assert_int_eq(r.model->n_steps, steps);
    ck_assert_int_eq(r.failures->n, 1);
    ck_assert_int_eq(r.failures->n_lost, 1);
    rig_close(&r);
}
END_TEST

/* Chunks of two prompts are computed beside each other, of which the first, or both, are lost; others wait. Both are
 * waited for, none is begun after them, and all end with the cause. */
START_TEST(what_was_begun_beside_a_lost_batch_is_waited_for)
{
    int32_t tokens[5][40];
    struct sched_seq *seqs[5];
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.max_seqs = 5, .max_rows = 16});
    for (int i = 0; i < 5; i++) {
        rig_prompt(tokens[i], 40, 30 + (uint64_t)i);
        for (int k = 0; k < 40; k++) {
            tokens[i][k] = i > 0 && k == 3 && i <= 1 + _i ? 60 : tokens[i][k] == 60 ? 0 : tokens[i][k];
        }
    }
    atomic_store(&r.model->fail_token, 60);
    atomic_store(&r.model->fail_code, ERR_LOST);
    rig_hold(&r); /* until all the others are there */
    struct sched_request q = rig_request(tokens[0], 10, 1);
    seqs[0] = rig_submit(&r, &q);
    rig_wait_held(&r);
    for (int i = 1; i < 5; i++) {
        q = rig_request(tokens[i], 40, 200);
        seqs[i] = rig_submit(&r, &q);
    }
    long n_beside = remote_backend_n_beside();
    rig_go_on(&r);
    rig_collect(&seqs[0], &got);
    ck_assert_int_eq(got.err, ERR_OK);
    for (int i = 1; i < 5; i++) {
        rig_collect(&seqs[i], &got);
        ck_assert_int_eq(got.err, ERR_LOST);
        ck_assert_str_eq(got.why, "told to fail");
        ck_assert_int_eq(got.n, 0);
    }
    rig_wait_idle(&r);
    ck_assert_int_ge(remote_backend_n_beside() - n_beside, 1); /* 2 when one began beside the first, too */
    ck_assert_int_eq(remote_backend_n_begun(r.remote), 0);
    ck_assert_int_eq(r.model->n_steps, 3);
    ck_assert_int_eq(r.failures->n, 1);
    rig_close(&r);
}
END_TEST

/* A row with NaN in a prompt whose log-probabilities are wanted, or in the row that is sampled; neighbours in the same
 * batch. */
START_TEST(nan_ends_its_own_sequence_only)
{
    int32_t tokens[3][40];
    static const struct sampler_bias no_60 = {60, -100};
    struct sched_request q[3];
    struct sched_seq *seqs[3];
    struct rig_output got, expected;
    struct rig r = rig_open((struct rig_limits){.max_rows = 200, .max_logits = 64, .is_recurrent = _i >= 2});
    atomic_store(&r.model->nan_token, 60);
    for (int i = 0; i < 3; i++) {
        rig_prompt(tokens[i], 40, 10 + (uint64_t)i);
        for (int k = 0; k < 40; k++) {
            tokens[i][k] = tokens[i][k] == 60 ? 0 : tokens[i][k];
        }
        q[i] = rig_request(tokens[i], 40, 30);
        q[i].sampling.bias = &no_60;
        q[i].sampling.n_bias = 1;
    }
    tokens[1][_i % 2 == 0 ? 20 : 39] = 60;
    q[1].prompt_logprobs = _i % 2 == 0;
    static const int32_t one[] = {9};
    struct sched_request opener = rig_request(one, 1, 1);
    struct sched_seq *first = occupy(&r, &opener);
    struct err_info info = {0}; /* at once: a back end that queues batches would begin one with the first of them */
    ck_assert_int_eq(sched_submit_all(r.sched, NULL, q, 3, seqs, &info), ERR_OK);
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < 3; i++) {
        rig_collect(&seqs[i], &got);
        if (i == 1) {
            ck_assert_int_eq(got.err, ERR_NUMERICAL);
            ck_assert_int_eq(got.n, 0);
        } else {
            rig_expect(&q[i], 320, &expected);
            rig_compare(&got, &expected, "neighbour of NaN");
        }
    }
    ck_assert_int_ge(r.model->n_wide, 3);
    atomic_store(&r.model->nan_token, -1);
    struct sched_seq *again = rig_submit(&r, &q[1]);
    rig_collect(&again, &got);
    ck_assert_int_eq(got.err, ERR_OK);
    ck_assert_int_eq(got.usage.cached_tokens, 0); /* pages of a sequence that went wrong are not trusted */
    rig_close(&r);
}
END_TEST

START_TEST(all_tokens_banned_is_an_error)
{
    int32_t tokens[] = {1, 2, 3};
    struct sampler_bias bias[FAKE_VOCAB];
    for (int i = 0; i < FAKE_VOCAB; i++) {
        bias[i] = (struct sampler_bias){i, -100};
    }
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){0});
    struct sched_request q = rig_request(tokens, 3, 3);
    q.sampling.bias = bias;
    q.sampling.n_bias = FAKE_VOCAB;
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.err, ERR_INVALID_VALUE);
    rig_close(&r);
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    int32_t tokens[100];
    static const int32_t ends[] = {1, 2};
    static const struct sampler_bias bias = {1, 2};
    size_t live = mem_live();
    rig_prompt(tokens, 100, 1);
    struct backend_model *m = fake_backend_new(16, 64, 16);
    m->n_states = _i == 1 ? 20 : 0;
    struct sched_config cfg = {.backend = &fake_backend,
                               .model = m,
                               .n_vocab = FAKE_VOCAB,
                               .n_ctx = 320,
                               .n_pages = 16,
                               .max_rows = 64,
                               .max_logits = 16,
                               .max_seqs = 16,
                               .n_states = _i == 1 ? 20 : 0,
                               .queue_max = 8};
    struct sched *s = NULL;
    struct err_info info;
    int n_failed = 0;
    for (long n = 0; s == NULL; n++, n_failed++) {
        mem_fail_at(n);
        enum err err = sched_new(&cfg, &s, &info);
        ck_assert_int_eq(err, s == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert_int_lt(n, 100);
    }
    mem_fail_at(-1);
    ck_assert_int_ge(n_failed, 10);
    struct rig r = {.model = m, .sched = s};
    struct sched_seq *seq = NULL;
    struct sched_request q = rig_request(tokens, 100, 10);
    q.sampling.ends = ends;
    q.sampling.n_ends = 2;
    q.sampling.bias = &bias;
    q.sampling.n_bias = 1;
    n_failed = 0;
    for (long n = 0; seq == NULL; n++, n_failed++) {
        mem_fail_at(n);
        enum err err = sched_submit_all(s, NULL, &q, 1, &seq, &info);
        ck_assert_int_eq(err, seq == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert_int_lt(n, 100);
    }
    mem_fail_at(-1);
    ck_assert_int_eq(n_failed, 1 + 3); /* it, and before: the request's group and key, and one block for the sequence */
    struct rig_output got, expected;
    rig_collect(&seq, &got);
    rig_expect(&q, 320, &expected);
    rig_compare(&got, &expected, "after failures");
    rig_close(&r);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

START_TEST(steps_allocate_nothing)
{
    int32_t tokens[2][100];
    struct sched_event ev;
    struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.n_pages = 10, .is_recurrent = _i == 1});
    struct sched_seq *seqs[2];
    rig_hold(&r);
    for (int i = 0; i < 2; i++) {
        rig_prompt(tokens[i], 100, (uint64_t)i);
        struct sched_request q = rig_request(tokens[i], 100, 200);
        q.sampling = (struct sampler_params){
            .temperature = 1, .top_p = 0.9f, .typical_p = 1, .repeat_penalty = 1.1f, .repeat_last_n = -1, .n_top = 5};
        seqs[i] = rig_submit(&r, &q);
    }
    mem_fail_at(0); /* prefill, decode, growth and preemption: the first allocation of any kind would fire */
    rig_go_on(&r);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 2 && i < 150; k++) {
            ck_assert_int_eq(sched_next(seqs[k], 20000, &ev), ERR_OK);
            ck_assert_int_eq(ev.kind, SCHED_TOKEN);
        }
    }
    ck_assert(!mem_fault_fired());
    mem_fail_at(-1);
    ck_assert_uint_ge(rig_stats(&r).preempted, 1);
    for (int k = 0; k < 2; k++) {
        rig_collect(&seqs[k], &got);
        ck_assert_int_eq(got.err, ERR_OK);
        ck_assert_int_eq(got.n, 50);
    }
    rig_close(&r);
}
END_TEST

/* --- a thousand at random --------------------------------------------------------------------------------------- */

enum { N_RANDOM = 1000, N_OPEN = 24 };

struct open_request {
    struct sched_seq *seq;
    struct sched_request q;
    int32_t tokens[320];
    bool is_cut;
};

static uint32_t pick(uint64_t *state, uint32_t n) { return (uint32_t)(rng_uniform(4711, 0, (*state)++) * n); }

static void open_random(struct rig *r, struct open_request *o, uint64_t *state)
{
    int32_t n = 1 + (int32_t)pick(state, 150);
    rig_prompt(o->tokens, n, pick(state, 6));
    o->q = rig_request(o->tokens, n, (int32_t)pick(state, 120));
    o->q.sampling.temperature = (float)pick(state, 2);
    o->q.sampling.seed = pick(state, 1000);
    o->q.prompt_logprobs = pick(state, 12) == 0;
    o->q.salt = pick(state, 3) == 0 ? "x" : NULL;
    o->is_cut = pick(state, 3) == 0;
    o->seq = rig_submit(r, &o->q);
    if (o->is_cut && pick(state, 3) == 0) {
        sched_release(&o->seq); /* at once: in the queue as a rule */
    }
}

static void close_random(struct rig *r, struct open_request *o, uint64_t *state)
{
    static struct rig_output got, expected;
    struct sched_event ev;
    if (o->is_cut) {
        for (uint32_t n = pick(state, 20); n > 0 && sched_next(o->seq, (int)pick(state, 2), &ev) == ERR_OK; n--) {
        }
        if (pick(state, 2) == 0) {
            sched_cancel(o->seq);
        }
        sched_release(&o->seq);
        return;
    }
    rig_collect(&o->seq, &got);
    rig_expect(&o->q, 320, &expected);
    rig_compare(&got, &expected, "random request");
    ck_assert_int_le(got.usage.cached_tokens, o->q.n_tokens - 1);
    (void)r;
}

START_TEST(a_thousand_random_requests_leak_nothing)
{
    static struct open_request open[N_OPEN];
    uint64_t state = 0;
    size_t live = mem_live();
    struct rig r = rig_open((struct rig_limits){.n_pages = 24,
                                                .max_rows = 48,
                                                .max_seqs = 8,
                                                .max_logits = 10,
                                                .is_recurrent = _i > 0,
                                                .n_kept_states = _i == 1 ? 1 : 12});
    atomic_store(&r.model->delay_us, 100);
    for (int i = 0; i < N_RANDOM; i++) {
        struct open_request *o = &open[pick(&state, N_OPEN)];
        if (o->seq != NULL) {
            close_random(&r, o, &state);
        }
        open_random(&r, o, &state);
    }
    for (int i = 0; i < N_OPEN; i++) {
        if (open[i].seq != NULL) {
            close_random(&r, &open[i], &state);
        }
    }
    rig_wait_idle(&r);
    struct sched_stats st = rig_stats(&r);
    ck_assert_uint_gt(st.preempted, 0);
    ck_assert_uint_gt(st.cached_tokens, 0);
    ck_assert_uint_gt(st.cancelled_queue + st.cancelled_prefill + st.cancelled_decode, 30);
    rig_close(&r);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

static TCase *all_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_add_test(t, cancelled_in_queue);
    tcase_add_test(t, cancelled_in_prefill_after_one_step);
    tcase_add_test(t, cancelled_in_decode_after_one_step);
    tcase_add_test(t, cancelling_one_of_two_leaves_the_other);
    tcase_add_test(t, deadlines_end_in_queue_and_in_the_middle);
    tcase_add_loop_test(t, a_full_queue_refuses, 0, 2);
    tcase_add_test(t, what_can_never_fit_is_refused);
    tcase_add_test(t, draining_finishes_what_it_took);
    tcase_add_test(t, stopping_in_the_middle_frees_all);
    tcase_add_loop_test(t, a_failing_back_end_ends_its_batch_only, 0, 2);
    tcase_add_loop_test(t, a_lost_back_end_ends_all, 0, 2);
    tcase_add_loop_test(t, nan_ends_its_own_sequence_only, 0, 4);
    tcase_add_test(t, all_tokens_banned_is_an_error);
    tcase_add_loop_test(t, every_failed_allocation_is_reported, 0, 2);
    tcase_add_loop_test(t, steps_allocate_nothing, 0, 2);
    tcase_add_test(t, a_thousand_random_requests_leak_nothing);
    return t;
}

/* With recurrent states. */
static TCase *state_tests(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_set_tags(t, "states");
    tcase_add_loop_test(t, a_thousand_random_requests_leak_nothing, 1, 3);
    return t;
}

Suite *sched_fault_suite(void)
{
    Suite *s = suite_create("sched_fault");
    TCase *remote = all_tests("sched_fault_remote"), *states = state_tests("sched_fault_states_remote");
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    tcase_add_checked_fixture(states, rig_go_remote, NULL);
    tcase_add_loop_test(remote, what_was_begun_beside_a_lost_batch_is_waited_for, 0, 2);
    suite_add_tcase(s, all_tests("sched_fault"));
    suite_add_tcase(s, state_tests("sched_fault_states"));
    suite_add_tcase(s, remote);
    suite_add_tcase(s, states);
    return s;
}
