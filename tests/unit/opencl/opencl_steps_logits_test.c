/* What the OpenCL device finds in rows of logits, against the rows themselves: the best in order, ties by the lower id,
 * whatever other rows want; and one read of all that is small. */
#include "engine/backend/backend.h"
#include "engine/quant/row_mapped.h"
#include "tests/support/fake_opencl.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *opencl_steps_logits_suite(void);

enum { MAX_V = 9000, N_IN = 32, N_PATTERNS = 10, MAX_BEST = 128 };

/* Logit v of a row of pattern p is -0.5 times that, twice that of patterns 5 and 9: so zeros have both signs, and what
 * is too large for a float on the way is infinite. */
static float pattern(int p, uint32_t v, uint32_t n_vocab)
{
    switch (p) {
    case 0: /* all differ, in no order */
        return (float)(v * 7919u % 65521u) - 30000.0f;
    case 1:
        return (float)(v % 7);
    case 2:
        return 0.25f;
    case 3:
        return (float)v;
    case 4:
        return -(float)v;
    case 5: /* five that are finite */
        return v * 5 % n_vocab < 5 ? (float)(v % 3) : 3e38f;
    case 6: /* zeros */
        return v % 3 == 0 ? -0x1p-149f : 0x1p-149f;
    case 7: /* neighbours in the last bits */
        return 1.0f + (float)(v * 31u % 257u) * 0x1p-23f;
    case 8: /* tiny ones, and the largest at the end */
        return v + 1 == n_vocab ? -5.0f : (float)(v % 11) * 0x1p-140f;
    default:
        return v % 100 == 7 ? -3e38f : (float)(v % 13);
    }
}

struct rig {
    struct plan *plan;
    struct backend_model *m;
    struct backend_info info;
    uint32_t n_vocab;
    float tokens[MAX_V * N_IN], positions[N_PATTERNS * N_IN], weights[MAX_V * N_IN];
    float logits[N_PATTERNS * MAX_V];
    struct backend_row_stats stats[N_PATTERNS];
    struct candidate best[N_PATTERNS * MAX_BEST];
};
static struct rig r;

/* Tokens have rows of zeros, to which position p adds the one that picks out pattern p. */
static void set_up_for(uint32_t n_vocab, float last)
{
    plan_buf_id x;
    plan_weight_id w[3];
    struct err_info info = {0};
    struct backend_config cfg = {.n_threads = 1, .n_pages = 1, .max_rows = N_PATTERNS, .max_logits = N_PATTERNS};
    r.n_vocab = n_vocab;
    memset(r.positions, 0, sizeof r.positions);
    for (uint32_t p = 0; p < N_PATTERNS; p++) {
        r.positions[p * N_IN + p] = p == 5 ? 2.0f : p == 9 ? last : 1.0f;
        for (uint32_t v = 0; v < n_vocab; v++) {
            r.weights[v * N_IN + p] = pattern((int)p, v, n_vocab);
        }
    }
    ck_assert_int_eq(plan_new(&r.plan), ERR_OK);
    struct plan *p = r.plan;
    p->n_vocab = n_vocab;
    p->n_layers = p->n_kv_heads = p->n_heads = 1;
    p->head_dim = 2;
    p->n_ctx_train = N_PATTERNS;
    p->n_embd = N_IN;
    ck_assert_int_eq(plan_add_buf(p, "x", N_IN, &x), ERR_OK);
    const struct row_source *sources[] = {row_mapped_new(&p->arena, DTYPE_F32, r.tokens, n_vocab, N_IN),
                                          row_mapped_new(&p->arena, DTYPE_F32, r.positions, N_PATTERNS, N_IN),
                                          row_mapped_new(&p->arena, DTYPE_F32, r.weights, n_vocab, N_IN)};
    struct plan_step steps[] = {plan_step_of(PLAN_EMBED, PLAN_NONE, x), plan_step_of(PLAN_LOGITS, x, PLAN_NONE)};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(plan_add_weight(p, "w", sources[i], &w[i]), ERR_OK);
    }
    steps[0].w[0] = w[0];
    steps[0].w[1] = w[1];
    steps[1].w[0] = w[2];
    steps[1].scale = -0.5f;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(plan_add_step(p, &steps[i]), ERR_OK);
    }
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(backend_opencl.open(p, &cfg, &r.m, &info) == ERR_OK, "%s", info.text);
    backend_opencl.info(r.m, &r.info);
    ck_assert_int_eq(r.info.max_best, MAX_BEST);
}

static void tear_down(void)
{
    backend_opencl.close(&r.m);
    plan_free(&r.plan);
}

/* Rows of all patterns, of which row i wants wants[i]. */
static void compute(const int32_t *wants)
{
    static const int32_t page = 0, *const table = &page;
    int32_t rows[N_PATTERNS], zeros[N_PATTERNS] = {0};
    for (int i = 0; i < N_PATTERNS; i++) {
        rows[i] = i;
    }
    memset(r.best, 0x7F, sizeof r.best);
    const struct backend_batch b = {.n_rows = N_PATTERNS,
                                    .tokens = zeros,
                                    .pos = rows,
                                    .seq = zeros,
                                    .n_seqs = 1,
                                    .page_tables = &table,
                                    .n_logits = N_PATTERNS,
                                    .logit_rows = rows,
                                    .wants = wants,
                                    .logits = r.logits,
                                    .stats = r.stats,
                                    .best = r.best};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(&backend_opencl, r.m, &b, &info) == ERR_OK, "%s", info.text);
}

/* Whether the k best of row i are these, to the bit; where k is more than there are, no tokens are after them. */
static void check_best(int i, int32_t k)
{
    const float *x = r.logits + (size_t)i * r.n_vocab;
    const struct candidate *best = r.best + (size_t)i * MAX_BEST;
    int32_t n = MIN_OF(k, (int32_t)r.n_vocab);
    for (int32_t j = 0; j < n; j++) {
        int32_t n_better = 0;
        ck_assert_uint_lt((uint32_t)best[j].id, r.n_vocab);
        ck_assert(memcmp(&x[best[j].id], &best[j].logit, sizeof *x) == 0);
        for (uint32_t v = 0; v < r.n_vocab; v++) {
            n_better += x[v] > best[j].logit || (x[v] == best[j].logit && (int32_t)v < best[j].id);
        }
        ck_assert_msg(n_better == j, "%u tokens, pattern %d: %d is better than %d of %d", r.n_vocab, i, best[j].id,
                      n_better, j);
    }
    for (int32_t j = n; j < k; j++) {
        ck_assert(best[j].logit == -INFINITY);
    }
    struct candidate unwritten;
    memset(&unwritten, 0x7F, sizeof unwritten);
    ck_assert(k == MAX_BEST || memcmp(&best[k], &unwritten, sizeof unwritten) == 0);
}

static const uint32_t vocabs[] = {1, 40, 300, 4097, MAX_V};

START_TEST(the_best_of_each_row)
{
    static const int32_t counts[N_PATTERNS] = {0, 1, 2, 20, 64, 127, MAX_BEST, 40, 3, BACKEND_ALL_LOGITS};
    static struct backend_row_stats stats[N_PATTERNS];
    set_up_for(vocabs[_i], 2.0f);
    compute(NULL);
    memcpy(stats, r.stats, sizeof stats);
    for (uint32_t v = 0; v < r.n_vocab; v++) {
        const float five = -pattern(5, v, r.n_vocab);
        ck_assert(r.logits[v] == -0.5f * pattern(0, v, r.n_vocab));
        ck_assert(r.logits[(size_t)5 * r.n_vocab + v] == (five < -1e38f ? -INFINITY : five));
    }
    for (int turn = 0; turn < N_PATTERNS; turn++) {
        int32_t wants[N_PATTERNS];
        for (int i = 0; i < N_PATTERNS; i++) {
            wants[i] = counts[(i + turn) % N_PATTERNS];
        }
        compute(wants);
        ck_assert(memcmp(stats, r.stats, sizeof stats) == 0);
        for (int i = 0; i < N_PATTERNS; i++) {
            check_best(i, wants[i] == BACKEND_ALL_LOGITS ? 0 : wants[i]);
        }
    }
    tear_down();
}
END_TEST

/* Nobody draws from it, but what is said of it must be tokens. */
START_TEST(a_row_that_holds_no_numbers)
{
    static const int32_t wants[N_PATTERNS] = {[4] = 3, [9] = MAX_BEST};
    bool is_there[MAX_V] = {false};
    set_up_for(4097, NAN);
    compute(NULL);
    compute(wants);
    ck_assert(isnan(r.stats[9].logsumexp));
    for (int i = 0; i < MAX_BEST; i++) {
        int32_t id = r.best[9 * MAX_BEST + i].id;
        ck_assert(id >= 0 && id < 4097 && !is_there[id]);
        is_there[id] = true;
    }
    check_best(4, 3);
    tear_down();
}
END_TEST

START_TEST(what_is_small_is_read_at_once)
{
    int32_t wants[N_PATTERNS] = {0, 1, 20, MAX_BEST, 0, 5};
    set_up_for(300, 2.0f);
    fake_opencl_arm("");
    compute(wants);
    ck_assert_int_eq(fake_opencl_calls("clEnqueueReadBuffer"), 1);
    wants[6] = BACKEND_ALL_LOGITS;
    compute(wants);
    ck_assert_int_eq(fake_opencl_calls("clEnqueueReadBuffer"), 1 + 2);
    tear_down();
}
END_TEST

Suite *opencl_steps_logits_suite(void)
{
    Suite *s = suite_create("opencl_steps_logits");
    TCase *t = tcase_create("best");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, the_best_of_each_row, 0, (int)ARRAY_LEN(vocabs));
    tcase_add_test(t, a_row_that_holds_no_numbers);
    tcase_add_test(t, what_is_small_is_read_at_once);
    suite_add_tcase(s, t);
    return s;
}
