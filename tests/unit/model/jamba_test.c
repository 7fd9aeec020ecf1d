/* Jamba: layers with a scan, whose rates get the order of the state, layers with attention or experts, and files that
 * contradict themselves. That the plan computes the right thing is the golden tests' part. */
#include "engine/base/mem.h"
#include "tests/support/model_file.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *jamba_suite(void);

enum { LAYERS = 2, D = 16, H = 2, K = 1, F = 12, V = 20, TAPS = 2, STATE = 3, RANK = 4, INNER = 130, EXPERTS = 3 };

struct options {
    uint32_t inner, state, rank, taps, n_experts, n_used;
    bool has_router, has_attention;
};

/* A scan and a dense block, attention and experts. */
static const struct options good = {INNER, STATE, RANK, TAPS, EXPERTS, 2, true, true};

static void put(struct gguf_writer *w, uint32_t layer, const char *name, uint64_t columns, uint64_t rows, uint64_t n,
                const void *data)
{
    char full[64];
    const uint64_t dims[3] = {columns, rows, n};
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    gguf_writer_tensor(w, full, DTYPE_F32, n > 1 ? 3 : rows > 1 ? 2 : 1, dims, data);
}

static void put_scan(struct gguf_writer *w)
{
    static float rates[INNER * STATE];
    for (int i = 0; i < INNER * STATE; i++) {
        rates[i] = (float)-i;
    }
    put(w, 0, "ssm_in.weight", D, 2 * INNER, 1, NULL);
    put(w, 0, "ssm_conv1d.weight", TAPS, INNER, 1, NULL);
    put(w, 0, "ssm_x.weight", INNER, RANK + 2 * STATE, 1, NULL);
    put(w, 0, "ssm_dt_norm.weight", RANK, 1, 1, NULL);
    put(w, 0, "ssm_b_norm.weight", STATE, 1, 1, NULL);
    put(w, 0, "ssm_c_norm.weight", STATE, 1, 1, NULL);
    put(w, 0, "ssm_dt.weight", RANK, INNER, 1, NULL);
    put(w, 0, "ssm_dt.bias", INNER, 1, 1, NULL);
    put(w, 0, "ssm_a", STATE, INNER, 1, rates);
    put(w, 0, "ssm_d", INNER, 1, 1, NULL);
    put(w, 0, "ssm_out.weight", INNER, D, 1, NULL);
}

static void put_layers(struct gguf_writer *w, bool has_router)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        put(w, i, "attn_norm.weight", D, 1, 1, NULL);
        put(w, i, "ffn_norm.weight", D, 1, 1, NULL);
    }
    put_scan(w);
    put(w, 0, "ffn_gate.weight", D, F, 1, NULL);
    put(w, 0, "ffn_up.weight", D, F, 1, NULL);
    put(w, 0, "ffn_down.weight", F, D, 1, NULL);
    put(w, 1, "attn_q.weight", D, D, 1, NULL);
    put(w, 1, "attn_k.weight", D, D / H, 1, NULL);
    put(w, 1, "attn_v.weight", D, D / H, 1, NULL);
    put(w, 1, "attn_output.weight", D, D, 1, NULL);
    if (has_router) {
        put(w, 1, "ffn_gate_inp.weight", D, EXPERTS, 1, NULL);
        put(w, 1, "ffn_gate_exps.weight", D, F, EXPERTS, NULL);
        put(w, 1, "ffn_up_exps.weight", D, F, EXPERTS, NULL);
        put(w, 1, "ffn_down_exps.weight", F, D, EXPERTS, NULL);
    } else {
        put(w, 1, "ffn_gate.weight", D, F, 1, NULL);
        put(w, 1, "ffn_up.weight", D, F, 1, NULL);
        put(w, 1, "ffn_down.weight", F, D, 1, NULL);
    }
}

static struct model_file make_file(const struct options *o)
{
    const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"embedding_length", D},        {"block_count", LAYERS},         {"context_length", 64},
                {"feed_forward_length", F},     {"attention.head_count", H},     {"ssm.conv_kernel", o->taps},
                {"ssm.inner_size", o->inner},   {"ssm.state_size", o->state},    {"ssm.time_step_rank", o->rank},
                {"expert_count", o->n_experts}, {"expert_used_count", o->n_used}};
    const uint64_t table[2] = {D, V}, vector[1] = {D};
    const uint32_t heads[LAYERS] = {0, o->has_attention ? K : 0};
    struct gguf_writer w;
    char full[96];
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "jamba");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(full, sizeof full, "jamba.%s", keys[i].key);
        gguf_writer_u32(&w, full, keys[i].value);
    }
    gguf_writer_array(&w, "jamba.attention.head_count_kv", GGUF_U32, LAYERS, heads);
    gguf_writer_f32(&w, "jamba.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_writer_tensor(&w, "token_embd.weight", DTYPE_F32, 2, table, NULL);
    gguf_writer_tensor(&w, "output_norm.weight", DTYPE_F32, 1, vector, NULL);
    put_layers(&w, o->has_router);
    return model_file_of(&w);
}

/* Element [head][j][column] of the bound rates is that of channel head * p + column in the file. */
static void check_rates(const struct plan *p, const struct plan_step *scan)
{
    static float found[INNER * STATE];
    const struct plan_weight *w = &p->weights[scan->w[0]];
    uint32_t width = p->ssm.head_dim;
    ck_assert_uint_eq(w->n_in, INNER * STATE);
    w->source->ops->read(w->source, 0, 0, w->n_in, found);
    for (uint32_t h = 0; h < p->ssm.n_heads; h++) {
        for (uint32_t i = 0; i < STATE * width; i++) {
            uint32_t j = i / width, channel = h * width + i % width;
            ck_assert(found[h * STATE * width + i] == -(float)(channel * STATE + j));
        }
    }
}

START_TEST(layers_have_a_scan_or_attention)
{
    static const enum plan_op ops[] = {
        PLAN_EMBED,  PLAN_NORM,      PLAN_MATMUL, PLAN_MATMUL, PLAN_SHORT_CONV, PLAN_MATMUL, PLAN_NORM,
        PLAN_MATMUL, PLAN_NORM,      PLAN_MATMUL, PLAN_NORM,   PLAN_MATMUL,     PLAN_SCAN,   PLAN_MULTIPLY,
        PLAN_MATMUL, PLAN_REDUCE,    PLAN_NORM,   PLAN_GLU,    PLAN_MATMUL,     PLAN_REDUCE, PLAN_NORM,
        PLAN_QKV,    PLAN_ATTENTION, PLAN_MATMUL, PLAN_REDUCE, PLAN_NORM};
    struct options o = good;
    o.has_router = _i == 0;
    o.n_experts = _i == 0 ? EXPERTS : 1;
    o.n_used = _i == 0 ? 2 : 1;
    struct model_file f = make_file(&o);
    struct plan *p = model_file_plan(&f);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        ck_assert_int_eq(p->steps[i].op, ops[i]);
    }
    ck_assert(p->ssm.head_dim == 26 && p->ssm.n_heads == 5 && p->ssm.n_groups == 1 && p->ssm.state_dim == STATE);
    check_rates(p, model_file_step(p, PLAN_SCAN, 0));
    const struct plan_step *qkv = model_file_step(p, PLAN_QKV, 0);
    ck_assert_uint_eq(p->ropes[qkv->heads.rope].n_rot, 0);
    ck_assert_int_eq(p->steps[ARRAY_LEN(ops) + (_i == 0 ? 2 : 0)].op, _i == 0 ? PLAN_EXPERTS : PLAN_GLU);
    ck_assert(p->moe.n_experts == (_i == 0 ? EXPERTS : 0) && !p->moe.norms_weights);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

static const struct {
    struct options o;
    const char *word;
} bad[] = {
    {{INNER, STATE, RANK, TAPS, EXPERTS, 2, true, false}, "expected a layer with attention, found none"},
    {{INNER, STATE, RANK, 1, EXPERTS, 2, true, true}, "ssm.conv_kernel: expected 2 to 16, found 1"},
    {{INNER, 0, RANK, TAPS, EXPERTS, 2, true, true}, "ssm.state_size: expected 1 to 1024, found 0"},
    {{INNER, STATE, 0, TAPS, EXPERTS, 2, true, true}, "ssm.time_step_rank: expected 1 to"},
    {{0, STATE, RANK, TAPS, EXPERTS, 2, true, true}, "ssm.inner_size: expected 1 to"},
    {{2 * 1031, STATE, RANK, TAPS, EXPERTS, 2, true, true},
     "ssm.inner_size: expected at most 1024 parts of equal width, of at most 64 channels, found 1031 of 2062 channels"},
    {{INNER, STATE, RANK, TAPS, EXPERTS, 4, true, true}, "expert_used_count: expected 1 to 3, found 4"},
};

START_TEST(contradictions_are_rejected)
{
    struct model_file f = make_file(&bad[_i].o);
    model_file_refuse(&f, (size_t)_i, ERR_BAD_HPARAM, bad[_i].word);
    model_file_fini(&f);
}
END_TEST

Suite *jamba_suite(void)
{
    Suite *s = suite_create("jamba");
    TCase *c = tcase_create("jamba");
    tcase_add_loop_test(c, layers_have_a_scan_or_attention, 0, 2);
    tcase_add_loop_test(c, contradictions_are_rejected, 0, ARRAY_LEN(bad));
    suite_add_tcase(s, c);
    return s;
}
