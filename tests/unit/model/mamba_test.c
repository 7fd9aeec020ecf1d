/* Mamba: plans without attention, the norms of dt, B and C, and files that contradict themselves. That the plan computes
 * the right thing is the golden tests' part. */
#include "tests/support/model_file.h"

#include <check.h>
#include <stdio.h>

Suite *mamba_suite(void);

enum { LAYERS = 2, D = 8, V = 20, TAPS = 2, STATE = 3, RANK = 4, INNER = 12 };

struct options {
    bool has_norms;
    float eps;      /* of the norms; 0: no such key */
    uint32_t heads; /* of keys, in the file; 0: no such key */
    bool sees_all;
};

static void put(struct gguf_writer *w, uint32_t layer, const char *name, uint64_t columns, uint64_t rows)
{
    char full[64];
    const uint64_t dims[2] = {columns, rows};
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    gguf_writer_tensor(w, full, DTYPE_F32, rows > 1 ? 2 : 1, dims, NULL);
}

static void put_layer(struct gguf_writer *w, uint32_t i)
{
    put(w, i, "attn_norm.weight", D, 1);
    put(w, i, "ssm_in.weight", D, 2 * INNER);
    put(w, i, "ssm_conv1d.weight", TAPS, INNER);
    put(w, i, "ssm_x.weight", INNER, RANK + 2 * STATE);
    put(w, i, "ssm_dt.weight", RANK, INNER);
    put(w, i, "ssm_dt.bias", INNER, 1);
    put(w, i, "ssm_a", STATE, INNER);
    put(w, i, "ssm_d", INNER, 1);
    put(w, i, "ssm_out.weight", INNER, D);
}

static struct model_file make_file(const struct options *o)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"embedding_length", D},    {"block_count", LAYERS},     {"context_length", 64},
                {"feed_forward_length", 0}, {"attention.head_count", 0}, {"ssm.conv_kernel", TAPS},
                {"ssm.inner_size", INNER},  {"ssm.state_size", STATE},   {"ssm.time_step_rank", RANK}};
    const uint64_t table[2] = {D, V}, vector[1] = {D};
    struct gguf_writer w;
    char full[96];
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "mamba");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(full, sizeof full, "mamba.%s", keys[i].key);
        gguf_writer_u32(&w, full, keys[i].value);
    }
    gguf_writer_f32(&w, "mamba.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_bool(&w, "mamba.ssm.dt_b_c_rms", o->has_norms);
    if (o->eps != 0) {
        gguf_writer_f32(&w, "mamba.ssm.dt_b_c_rms_epsilon", o->eps);
    }
    if (o->heads != 0) {
        gguf_writer_u32(&w, "mamba.attention.head_count_kv", o->heads);
    }
    if (o->sees_all) {
        gguf_writer_bool(&w, "mamba.attention.causal", false);
    }
    gguf_writer_tensor(&w, "token_embd.weight", DTYPE_F32, 2, table, NULL);
    gguf_writer_tensor(&w, "output_norm.weight", DTYPE_F32, 1, vector, NULL);
    for (uint32_t i = 0; i < LAYERS; i++) {
        put_layer(&w, i);
    }
    return model_file_of(&w);
}

/* Nothing of attention is left in a plan without it, and pages have no bytes. */
START_TEST(layers_have_nothing_but_a_scan)
{
    static const enum plan_op ops[] = {PLAN_EMBED,    PLAN_NORM,   PLAN_MATMUL, PLAN_MATMUL, PLAN_SHORT_CONV,
                                       PLAN_MATMUL,   PLAN_MATMUL, PLAN_MATMUL, PLAN_MATMUL, PLAN_SCAN,
                                       PLAN_MULTIPLY, PLAN_MATMUL, PLAN_REDUCE, PLAN_NORM};
    struct model_file f = make_file(&(struct options){.has_norms = false});
    struct plan *p = model_file_plan(&f);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        ck_assert_int_eq(p->steps[i].op, ops[i]);
    }
    ck_assert(p->n_heads == 0 && p->n_kv_heads == 0 && p->head_dim == 0 && p->n_ropes == 0);
    for (int32_t i = 0; i < LAYERS; i++) {
        ck_assert_int_eq(plan_kv_of(p, i).layer, PLAN_NONE);
    }
    ck_assert(plan_window(p) == 0 && plan_local_window(p) == 0 && p->recurrent_floats != 0);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* The norms' epsilon is not the layers'. */
START_TEST(steps_and_what_they_select_are_normed)
{
    const float eps = _i == 0 ? 0 : 0.25f, expected = _i == 0 ? 1e-6f : eps;
    struct model_file f = make_file(&(struct options){.has_norms = true, .eps = eps});
    struct plan *p = model_file_plan(&f);
    ck_assert(model_file_step(p, PLAN_NORM, 0)->eps == 1e-5f);
    for (int i = 1; i <= 3; i++) {
        const struct plan_step *s = model_file_step(p, PLAN_NORM, i);
        const struct plan_weight *w = &p->weights[s->w[0]];
        float ones[RANK] = {0};
        ck_assert(s->eps == expected && s->src == s->dst);
        ck_assert_uint_eq(w->n_in, i == 1 ? RANK : STATE);
        ck_assert_uint_eq(p->bufs[s->dst].width, w->n_in);
        w->source->ops->read(w->source, 0, 0, w->n_in, ones);
        for (uint32_t k = 0; k < w->n_in; k++) {
            ck_assert(ones[k] == 1.0f);
        }
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

static const struct {
    struct options o;
    const char *word;
} bad[] = {
    {{.has_norms = true, .eps = 2}, "ssm.dt_b_c_rms_epsilon: expected 1e-13 to 1, found 2"},
    {{.heads = 1}, "attention.head_count_kv: expected 0 to 0, found 1"},
    {{.sees_all = true}, "attention.causal: expected true with selective scans, found false"},
};

START_TEST(contradictions_are_rejected)
{
    struct model_file f = make_file(&bad[_i].o);
    model_file_refuse(&f, (size_t)_i, ERR_BAD_HPARAM, bad[_i].word);
    model_file_fini(&f);
}
END_TEST

Suite *mamba_suite(void)
{
    Suite *s = suite_create("mamba");
    TCase *c = tcase_create("mamba");
    tcase_add_test(c, layers_have_nothing_but_a_scan);
    tcase_add_loop_test(c, steps_and_what_they_select_are_normed, 0, 2);
    tcase_add_loop_test(c, contradictions_are_rejected, 0, ARRAY_LEN(bad));
    suite_add_tcase(s, c);
    return s;
}
