/* Nemotron-H: layers of one part each, prediction heads that are left out, and files that contradict themselves. That
 * the plan computes the right thing is the golden tests' part. */
#include "engine/base/mem.h"
#include "tests/support/model_file.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *nemotron_h_suite(void);

enum { LAYERS = 4, D = 16, H = 2, K = 1, HEAD = 8, F = 12, V = 20, TAPS = 2 };
enum { HEADS = 2, WIDTH = 4, STATE = 3, INNER = HEADS * WIDTH, MIXED = INNER + 2 * STATE };

struct options {
    uint32_t n_kv_heads[LAYERS], widths[LAYERS], n_heads; /* n_heads: layers that predict */
    bool has_rms_epsilon;
};

/* A state space, a dense block, attention, and a head. */
static const struct options good = {{0, 0, K, K}, {0, F, 0, F}, 1, false};

static void put(struct gguf_writer *w, uint32_t layer, const char *name, uint64_t columns, uint64_t rows, int n_dims)
{
    char full[64];
    const uint64_t dims[2] = {columns, rows};
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    gguf_writer_tensor(w, full, DTYPE_F32, n_dims, dims, NULL);
}

static void put_layers(struct gguf_writer *w)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        put(w, i, "attn_norm.weight", D, 1, 1);
    }
    put(w, 0, "ssm_in.weight", D, INNER + MIXED + HEADS, 2);
    put(w, 0, "ssm_conv1d.weight", TAPS, MIXED, 2);
    put(w, 0, "ssm_a", 1, HEADS, 2);
    put(w, 0, "ssm_d", 1, HEADS, 2);
    put(w, 0, "ssm_dt.bias", HEADS, 1, 1);
    put(w, 0, "ssm_norm.weight", INNER, 1, 2);
    put(w, 0, "ssm_out.weight", INNER, D, 2);
    put(w, 1, "ffn_up.weight", D, F, 2);
    put(w, 1, "ffn_down.weight", F, D, 2);
    put(w, 2, "attn_q.weight", D, H * HEAD, 2);
    put(w, 2, "attn_k.weight", D, K * HEAD, 2);
    put(w, 2, "attn_v.weight", D, K * HEAD, 2);
    put(w, 2, "attn_output.weight", H * HEAD, D, 2);
    put(w, 3, "nextn.eh_proj.weight", 2 * D, D, 2);
}

static struct model_file make_file(const struct options *o)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"embedding_length", D},     {"block_count", LAYERS},     {"context_length", 64},
                {"attention.head_count", H}, {"rope.dimension_count", 7}, {"ssm.conv_kernel", TAPS},
                {"ssm.state_size", STATE},   {"ssm.group_count", 1},      {"ssm.time_step_rank", HEADS},
                {"ssm.inner_size", INNER}};
    const uint64_t table[2] = {D, V}, vector[1] = {D};
    struct gguf_writer w;
    char full[96];
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "nemotron_h");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(full, sizeof full, "nemotron_h.%s", keys[i].key);
        gguf_writer_u32(&w, full, keys[i].value);
    }
    gguf_writer_u32(&w, "nemotron_h.nextn_predict_layers", o->n_heads);
    gguf_writer_array(&w, "nemotron_h.attention.head_count_kv", GGUF_U32, LAYERS, o->n_kv_heads);
    gguf_writer_array(&w, "nemotron_h.feed_forward_length", GGUF_U32, LAYERS, o->widths);
    gguf_writer_f32(&w, "nemotron_h.attention.layer_norm_epsilon", 1e-5f);
    if (o->has_rms_epsilon) {
        gguf_writer_f32(&w, "nemotron_h.attention.layer_norm_rms_epsilon", 1e-3f);
    }
    gguf_writer_tensor(&w, "token_embd.weight", DTYPE_F32, 2, table, NULL);
    gguf_writer_tensor(&w, "output_norm.weight", DTYPE_F32, 1, vector, NULL);
    put_layers(&w);
    return model_file_of(&w);
}

START_TEST(layers_have_one_part)
{
    static const enum plan_op ops[] = {
        PLAN_EMBED, PLAN_NORM,      PLAN_MATMUL, PLAN_MATMUL, PLAN_MATMUL, PLAN_SHORT_CONV, PLAN_SSM,    PLAN_MULTIPLY,
        PLAN_NORM,  PLAN_MATMUL,    PLAN_REDUCE, PLAN_NORM,   PLAN_GLU,    PLAN_MATMUL,     PLAN_REDUCE, PLAN_NORM,
        PLAN_QKV,   PLAN_ATTENTION, PLAN_MATMUL, PLAN_REDUCE, PLAN_HIDDEN, PLAN_GATHER,     PLAN_NORM,   PLAN_LOGITS};
    struct options o = good;
    o.has_rms_epsilon = _i == 1;
    struct model_file f = make_file(&o);
    struct plan *p = model_file_plan(&f);
    ck_assert_int_eq(p->n_steps, ARRAY_LEN(ops));
    for (int32_t i = 0; i < p->n_steps; i++) {
        ck_assert_int_eq(p->steps[i].op, ops[i]);
    }
    ck_assert_uint_eq(p->n_layers, LAYERS - 1); /* without the head */
    for (int32_t i = 0; i < LAYERS - 1; i++) {
        ck_assert_int_eq(plan_kv_of(p, i).layer, i == 2 ? 2 : PLAN_NONE);
    }
    const struct plan_step *glu = model_file_step(p, PLAN_GLU, 0), *qkv = model_file_step(p, PLAN_QKV, 0);
    ck_assert(glu->act == PLAN_RELU_SQUARED && glu->w[1] == PLAN_NONE);
    ck_assert_uint_eq(p->ropes[qkv->heads.rope].n_rot, 0);
    ck_assert(p->steps[1].eps == (_i == 1 ? 1e-3f : 1e-5f));
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

static const struct {
    struct options o;
    const char *word;
} bad[] = {
    {{{0, K, K, K}, {0, F, 0, F}, 1, false}, "expected 0 in layer 1, which has attention, found 12"},
    {{{0, 0, K, K}, {0, F, 0, F}, 0, false}, "expected 0 in layer 3, which has attention, found 12"},
    {{{0, 0, K, K}, {0, F, 0, F + 1}, 1, false}, "feed_forward_length[3]: expected 12, as in earlier layers, found 13"},
    {{{0, 0, 0, 0}, {0, F, 0, F}, 1, false}, "expected a layer with attention, found none"},
    {{{0, 0, K, K}, {0, F, 0, F}, LAYERS, false}, "nextn_predict_layers: expected 0 to 3, found 4"},
};

START_TEST(contradictions_are_rejected)
{
    struct model_file f = make_file(&bad[_i].o);
    model_file_refuse(&f, (size_t)_i, ERR_BAD_HPARAM, bad[_i].word);
    model_file_fini(&f);
}
END_TEST

START_TEST(a_separate_head_is_rejected)
{
    struct model_file f = make_file(&good), head = make_file(&good);
    struct plan *p = NULL, *draft = NULL;
    struct err_info info = {0};
    ck_assert_int_eq(model_build_drafting(f.g, head.g, 0, &p, &draft, &info), ERR_BAD_HPARAM);
    ck_assert_msg(strstr(info.text, "prediction heads of this family are not supported") != NULL, "%s", info.text);
    ck_assert(p == NULL && draft == NULL);
    model_file_fini(&head);
    model_file_fini(&f);
}
END_TEST

Suite *nemotron_h_suite(void)
{
    Suite *s = suite_create("nemotron_h");
    TCase *c = tcase_create("nemotron_h");
    tcase_add_loop_test(c, layers_have_one_part, 0, 2);
    tcase_add_loop_test(c, contradictions_are_rejected, 0, ARRAY_LEN(bad));
    tcase_add_test(c, a_separate_head_is_rejected);
    suite_add_tcase(s, c);
    return s;
}
