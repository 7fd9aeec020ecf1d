/* Attention to positions that an index chooses: the CPU back end on every instruction set against the reference, in both
 * types of the cache; the same bits row by row and with any number of threads; and from copied pages. Tokens repeat, so that
 * scores are equal or far apart: all back ends choose the same positions. */
#include "engine/backend/backend.h"
#include "engine/backend/choose_positions.h"
#include "engine/kernels/kern.h"
#include "tests/support/plan_rig.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *cpu_index_suite(void);

enum { V = 11, D = 32, H = 32, LATENT = 36, ROPE = 4, INDEX_HEADS = 3, INDEX = 24, CHOSEN = 10, ROWS = 44 };

static float embd[V * D], to_queries[H * (LATENT + ROPE) * D], to_key[(LATENT + ROPE) * D];
static float to_index_queries[INDEX_HEADS * INDEX * D], to_index_key[INDEX * D], to_weights[INDEX_HEADS * D];
static float output[V * H * LATENT];

static uint32_t seed;

static float next(void)
{
    seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
    return (float)(seed >> 8) / (float)(1 << 23) - 1;
}

static void fill(float *x, size_t n, float size)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = size * next();
    }
}

static plan_buf_id product(struct plan *p, plan_buf_id x, const float *data, uint32_t n_out)
{
    plan_buf_id y = plan_rig_buffer(p, n_out);
    plan_rig_step(p, PLAN_MATMUL, x, y, plan_rig_weight(p, data, n_out, D));
    return y;
}

static struct plan *make_plan(void)
{
    static const float inv_freq[ROPE / 2] = {1, 0.1f};
    struct plan *p = NULL;
    int32_t rope, no_rope;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = p->n_kv_heads = 1;
    p->n_heads = H;
    p->head_dim = LATENT + ROPE;
    p->latent_dim = LATENT;
    p->index_dim = INDEX;
    ck_assert_int_eq(plan_add_rope(p, &(struct plan_rope){ROPE, LATENT, false, 1, inv_freq, 0, 0, 0, 0}, &rope),
                     ERR_OK);
    ck_assert_int_eq(plan_add_rope(p, &(struct plan_rope){.mscale = 1}, &no_rope), ERR_OK);
    plan_buf_id x = plan_rig_buffer(p, D), att = plan_rig_buffer(p, H * LATENT), last = plan_rig_buffer(p, H * LATENT),
                chosen = plan_rig_buffer(p, CHOSEN);
    plan_rig_step(p, PLAN_EMBED, PLAN_NONE, x, plan_rig_weight(p, embd, V, D));
    plan_buf_id q = product(p, x, to_queries, H * (LATENT + ROPE)), key = product(p, x, to_key, LATENT + ROPE);
    plan_buf_id index_q = product(p, x, to_index_queries, INDEX_HEADS * INDEX);
    plan_buf_id index_key = product(p, x, to_index_key, INDEX), weights = product(p, x, to_weights, INDEX_HEADS);
    struct plan_step *s = plan_rig_step(p, PLAN_HEADS, q, q, PLAN_NONE);
    s->heads.keys = key;
    s->heads.rope = rope;
    s = plan_rig_step(p, PLAN_INDEX, index_q, index_q, PLAN_NONE);
    s->heads.keys = index_key;
    s->heads.rope = no_rope;
    plan_rig_step(p, PLAN_CHOOSE, index_q, chosen, PLAN_NONE)->choose.weights = weights;
    s = plan_rig_step(p, PLAN_ATTENTION, q, att, PLAN_NONE);
    s->scale = 0.3f;
    s->attention.chosen = chosen;
    plan_rig_step(p, PLAN_GATHER, att, last, PLAN_NONE);
    plan_rig_step(p, PLAN_LOGITS, last, PLAN_NONE, plan_rig_weight(p, output, V, H * LATENT));
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static void compute(const struct backend *backend, struct backend_model *m, int from, int step, float *logits)
{
    int32_t tokens[ROWS];
    for (int32_t i = 0; i < ROWS; i++) {
        tokens[i] = i * i % V;
    }
    plan_rig_compute(backend, m, tokens, from, ROWS, step, V, logits);
}

/* Continues after the first page from a copy of it, in floats. */
static void expect_moved(const struct plan *p, struct backend_model *from, const char *cpu, const char *type,
                         const float *whole)
{
    static float got[ROWS * V];
    struct err_info info = {0};
    float *page = mem_zalloc(backend_page_floats(p) * sizeof *page, MEM_GENERAL);
    ck_assert_ptr_nonnull(page);
    ck_assert_uint_eq(backend_page_floats(p), KV_PAGE_TOKENS * (LATENT + ROPE + INDEX));
    struct backend_model *m = plan_rig_open(&backend_cpu, p, cpu, type, 1, ROWS);
    const struct backend_page at = {.page = 1, .window = BACKEND_NO_PAGE};
    ck_assert_int_eq(backend_cpu.page_copy(from, at, BACKEND_FLOATS, page, false, &info), ERR_OK);
    ck_assert_int_eq(backend_cpu.page_copy(m, at, BACKEND_FLOATS, page, true, &info), ERR_OK);
    compute(&backend_cpu, m, KV_PAGE_TOKENS, 3, got);
    ck_assert_int_eq(
        memcmp(got + KV_PAGE_TOKENS * V, whole + KV_PAGE_TOKENS * V, (ROWS - KV_PAGE_TOKENS) * V * sizeof *got), 0);
    backend_cpu.close(&m);
    mem_free(page);
}

START_TEST(chosen_positions_agree_with_the_reference)
{
    static const char *const types[] = {"f16", "bf16"};
    static const int splits[][2] = {{1, 7}, {2, ROWS}, {2, 1}, {5, 3}}; /* threads, rows at a time */
    static float want[ROWS * V], whole[ROWS * V], got[ROWS * V];
    seed = 1;
    fill(embd, V * D, 1);
    fill(to_queries, H * (LATENT + ROPE) * D, 0.3f);
    fill(to_key, (LATENT + ROPE) * D, 0.3f);
    fill(to_index_queries, INDEX_HEADS * INDEX * D, 0.3f);
    fill(to_index_key, INDEX * D, 0.3f);
    fill(to_weights, INDEX_HEADS * D, 0.3f);
    fill(output, V * H * LATENT, 0.1f);
    struct plan *p = make_plan();
    struct backend_model *m = plan_rig_open(&backend_ref, p, NULL, NULL, 2, ROWS);
    compute(&backend_ref, m, 0, ROWS, want);
    compute(&backend_ref, m, 0, 5, got);
    ck_assert_int_eq(memcmp(got, want, sizeof got), 0);
    backend_ref.close(&m);
    for (int isa = 0; kern_isa_name(isa) != NULL; isa++) {
        const char *name = kern_isa_name(isa);
        if (!kern_isa_is_there(isa)) {
            continue;
        }
        m = plan_rig_open(&backend_cpu, p, name, types[_i], 1, ROWS);
        compute(&backend_cpu, m, 0, ROWS, whole);
        for (int i = 0; i < ROWS * V; i++) {
            ck_assert_msg(fabsf(whole[i] - want[i]) < (_i == 0 ? 2e-3f : 2e-2f), "%s: logit %d: expected %g, found %g",
                          name, i, (double)want[i], (double)whole[i]);
        }
        expect_moved(p, m, name, types[_i], whole);
        backend_cpu.close(&m);
        for (size_t k = 0; k < ARRAY_LEN(splits); k++) {
            m = plan_rig_open(&backend_cpu, p, name, types[_i], splits[k][0], ROWS);
            memset(got, 0, sizeof got);
            compute(&backend_cpu, m, 0, splits[k][1], got);
            ck_assert_msg(memcmp(got, whole, sizeof got) == 0, "%s: other bits with %d threads, %d rows at a time",
                          name, splits[k][0], splits[k][1]);
            backend_cpu.close(&m);
        }
    }
    plan_free(&p);
}
END_TEST

/* Compares with the definition: position t is chosen if fewer than k rank before it. */
START_TEST(the_largest_scores_are_chosen)
{
    enum { N = 700 };
    float scores[N], chosen[N];
    seed = 2;
    for (int round = 0; round < 60; round++) {
        int n = 1 + round * 11, k = 1 + (int)((next() + 1) * (float)n / 2), at = 0;
        for (int i = 0; i < n; i++) {
            float x = next();
            scores[i] = round % 3 == 0 ? x : round % 3 == 1 ? rintf(x * 3) : x * 1e-40f; /* with ties; subnormals */
            scores[i] = round == 7 && i % 50 == 3 ? NAN : round == 8 && i % 9 == 0 ? -INFINITY : scores[i];
        }
        k = MIN_OF(k, N);
        choose_positions(scores, n, k, chosen);
        for (int t = 0; t < n; t++) {
            int before = 0;
            for (int i = 0; i < n; i++) {
                bool is_larger = isnan(scores[i]) ? !isnan(scores[t]) : scores[i] > scores[t];
                bool is_equal = scores[i] == scores[t] || (isnan(scores[i]) && isnan(scores[t]));
                before += is_larger || (is_equal && i < t);
            }
            if (before < k) {
                ck_assert_int_lt(at, k);
                ck_assert_int_eq((int)chosen[at++], t);
            }
        }
        for (; at < k; at++) {
            ck_assert_int_eq((int)chosen[at], -1);
        }
    }
}
END_TEST

Suite *cpu_index_suite(void)
{
    Suite *s = suite_create("cpu_index");
    TCase *c = tcase_create("cpu_index");
    tcase_add_loop_test(c, chosen_positions_agree_with_the_reference, 0, 2);
    tcase_add_test(c, the_largest_scores_are_chosen);
    suite_add_tcase(s, c);
    return s;
}
