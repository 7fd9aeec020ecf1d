/* Gemma 3 from a GGUF file to a plan: post-norms and head norms, layers of two kinds with their windows and RoPE
 * tables, and clear errors for what its own keys and tensors may not be. The files are made here. */
#include "engine/model/model.h"

#include "tests/support/gguf_writer.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *gemma3_suite(void);

enum { D = 32, H = 4, K = 2, HEAD = 12, F = 48, V = 20, LAYERS = 7 };

/* The kinds a sliding_window_pattern key can have here. */
enum pattern { PATTERN_NONE, PATTERN_PERIOD, PATTERN_BOOLS, PATTERN_INTS, PATTERN_TEXT };

/* A file; zero is what converters write for a model of 7 layers without a window. */
struct options {
    uint32_t n_layers; /* 0: LAYERS */
    uint32_t window;   /* 0: no key */
    enum pattern pattern;
    uint32_t period;      /* for PATTERN_PERIOD */
    uint64_t n_pattern;   /* for the arrays; elements alternate, global first */
    float local_base;     /* 0: no key */
    float factor;         /* of linear scaling; 0: none */
    float softcap;        /* 0: no key */
    const char *tensor;   /* NULL, or the tensor that is different: left out when n_in is 0 */
    uint64_t n_in, n_out; /* its shape */
};

static void put_tensor(struct gguf_writer *w, const struct options *o, const char *name, uint64_t n_in, uint64_t n_out)
{
    if (o->tensor != NULL && strcmp(o->tensor, name) == 0) {
        n_in = o->n_in;
        n_out = o->n_out;
    }
    const uint64_t dims[2] = {n_in, n_out};
    if (n_in != 0) {
        gguf_writer_tensor(w, name, DTYPE_F32, n_out == 1 ? 1 : 2, dims, NULL);
    }
}

static void put_layer(struct gguf_writer *w, const struct options *o, uint32_t layer)
{
    static const struct {
        const char *name;
        uint64_t n_in, n_out;
    } tensors[] = {
        {"attn_norm", D, 1},          {"attn_q", D, H * HEAD},       {"attn_k", D, K * HEAD}, {"attn_v", D, K * HEAD},
        {"attn_q_norm", HEAD, 1},     {"attn_k_norm", HEAD, 1},      {"ffn_norm", D, 1},      {"ffn_gate", D, F},
        {"attn_output", H * HEAD, D}, {"post_attention_norm", D, 1}, {"ffn_up", D, F},        {"ffn_down", F, D},
        {"post_ffw_norm", D, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        put_tensor(w, o, name, tensors[i].n_in, tensors[i].n_out);
    }
}

static void put_pattern(struct gguf_writer *w, const struct options *o)
{
    static const char *const key = "gemma3.attention.sliding_window_pattern";
    static const unsigned char bools[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    static const int32_t ints[8] = {0, 1, 0, 1, 0, 2, 0, 1};
    switch (o->pattern) {
    case PATTERN_NONE:
        break;
    case PATTERN_PERIOD:
        gguf_writer_u32(w, key, o->period);
        break;
    case PATTERN_BOOLS:
        gguf_writer_array(w, key, GGUF_BOOL, o->n_pattern, bools);
        break;
    case PATTERN_INTS:
        gguf_writer_array(w, key, GGUF_I32, o->n_pattern, ints);
        break;
    case PATTERN_TEXT:
        gguf_writer_str(w, key, "every sixth");
        break;
    }
}

static void put_optional_keys(struct gguf_writer *w, const struct options *o)
{
    if (o->window != 0) {
        gguf_writer_u32(w, "gemma3.attention.sliding_window", o->window);
    }
    put_pattern(w, o);
    if (o->local_base != 0) {
        gguf_writer_f32(w, "gemma3.rope.freq_base_swa", o->local_base);
    }
    if (o->factor != 0) {
        gguf_writer_str(w, "gemma3.rope.scaling.type", "linear");
        gguf_writer_f32(w, "gemma3.rope.scaling.factor", o->factor);
    }
    if (o->softcap != 0) {
        gguf_writer_f32(w, "gemma3.final_logit_softcapping", o->softcap);
    }
}

/* Builds the plan of the file that `o` describes. */
static enum err build(const struct options *o, struct plan **p, struct err_info *info)
{
    struct gguf_writer w;
    struct buf bytes;
    struct gguf *g = NULL;
    uint32_t n_layers = o->n_layers != 0 ? o->n_layers : LAYERS;
    gguf_writer_init(&w);
    buf_init(&bytes, 0, MEM_GENERAL);
    gguf_writer_str(&w, "general.architecture", "gemma3");
    gguf_writer_u32(&w, "gemma3.embedding_length", D);
    gguf_writer_u32(&w, "gemma3.block_count", n_layers);
    gguf_writer_u32(&w, "gemma3.context_length", 256);
    gguf_writer_u32(&w, "gemma3.feed_forward_length", F);
    gguf_writer_u32(&w, "gemma3.attention.head_count", H);
    gguf_writer_u32(&w, "gemma3.attention.head_count_kv", K);
    gguf_writer_u32(&w, "gemma3.attention.key_length", HEAD);
    gguf_writer_u32(&w, "gemma3.attention.value_length", HEAD);
    gguf_writer_f32(&w, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_writer_f32(&w, "gemma3.rope.freq_base", 1e6f);
    put_optional_keys(&w, o);
    put_tensor(&w, o, "token_embd.weight", D, V);
    for (uint32_t i = 0; i < n_layers; i++) {
        put_layer(&w, o, i);
    }
    put_tensor(&w, o, "output_norm.weight", D, 1);
    gguf_writer_finish(&w, &bytes);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(&bytes), ERR_OK);
    enum err err = gguf_open_memory(bytes.data, bytes.len, &g, info);
    ck_assert_msg(err == ERR_OK, "the file itself: %s", info->text);
    err = model_build(g, 0, p, info);
    gguf_close(&g); /* the plan's weight data is not looked at below */
    buf_fini(&bytes);
    return err;
}

static struct plan *build_good(const struct options *o)
{
    struct plan *p = NULL;
    struct err_info info = {0};
    enum err err = build(o, &p, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return p;
}

/* Step `i` of layer `layer`. */
enum {
    S_NORM,
    S_QKV,
    S_ATTENTION,
    S_OUT,
    S_OUT_REDUCE,
    S_POST_ATTENTION,
    S_FFN_NORM,
    S_GLU,
    S_DOWN,
    S_DOWN_REDUCE,
    S_POST_FFW,
    STEPS
};

static const struct plan_step *step_at(const struct plan *p, uint32_t layer, int i)
{
    return &p->steps[1 + layer * STEPS + (uint32_t)i];
}

static void check_name(const struct plan *p, plan_weight_id id, const char *fmt, uint32_t layer)
{
    char name[64];
    snprintf(name, sizeof name, fmt, layer);
    ck_assert_int_ge(id, 0);
    ck_assert_str_eq(p->weights[id].name, name);
}

START_TEST(a_layer_has_norms_after_its_blocks_and_on_its_heads)
{
    struct options o = {.window = 100, .softcap = 30};
    struct plan *p = build_good(&o);
    ck_assert_int_eq(p->n_steps, 1 + LAYERS * STEPS + 4);
    ck_assert(p->steps[0].op == PLAN_EMBED && p->steps[0].scale == sqrtf(D));
    plan_buf_id stream = p->steps[0].dst;
    for (uint32_t i = 0; i < LAYERS; i++) {
        const struct plan_step *qkv = step_at(p, i, S_QKV), *glu = step_at(p, i, S_GLU);
        ck_assert(qkv->op == PLAN_QKV);
        check_name(p, qkv->heads.q_norm, "blk.%u.attn_q_norm.weight", i);
        check_name(p, qkv->heads.k_norm, "blk.%u.attn_k_norm.weight", i);
        ck_assert(glu->op == PLAN_GLU && glu->act == PLAN_GELU_TANH);
        const int blocks[2][2] = {{S_OUT, S_POST_ATTENTION}, {S_DOWN, S_POST_FFW}};
        for (int b = 0; b < 2; b++) {
            const struct plan_step *m = step_at(p, i, blocks[b][0]), *post = step_at(p, i, blocks[b][1]);
            ck_assert(m->op == PLAN_MATMUL && !m->adds && m->dst != stream);
            ck_assert(post->op == PLAN_NORM && post->adds && post->src == m->dst && post->dst == stream);
            check_name(p, post->w[0], b == 0 ? "blk.%u.post_attention_norm.weight" : "blk.%u.post_ffw_norm.weight", i);
        }
        ck_assert(!step_at(p, i, S_NORM)->adds && !step_at(p, i, S_FFN_NORM)->adds);
        ck_assert(fabsf(step_at(p, i, S_ATTENTION)->scale - 1 / sqrtf(HEAD)) < 1e-7f);
    }
    const struct plan_step *logits = &p->steps[p->n_steps - 1];
    ck_assert(logits->op == PLAN_LOGITS && logits->logits.softcap == 30 && logits->w[0] == p->steps[0].w[0]);
    plan_free(&p);
}
END_TEST

/* Bit i of `locals`: layer i sees a window. */
static void check_kinds(const struct options *o, uint32_t locals)
{
    struct plan *p = build_good(o);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        bool is_local = (locals >> i & 1) != 0;
        ck_assert_int_eq(step_at(p, i, S_ATTENTION)->attention.window, is_local ? (int32_t)o->window : 0);
        const struct plan_rope *r = &p->ropes[step_at(p, i, S_QKV)->heads.rope];
        double base = !is_local ? 1e6 : o->local_base != 0 ? (double)o->local_base : 10000;
        double factor = !is_local && o->factor != 0 ? (double)o->factor : 1;
        ck_assert(r->is_neox && r->n_rot == HEAD);
        for (int k = 0; k < HEAD / 2; k++) {
            ck_assert(fabs(r->inv_freq[k] * factor / pow(base, -2.0 * k / HEAD) - 1) < 1e-6);
        }
    }
    plan_free(&p);
}

START_TEST(every_sixth_layer_is_global_unless_the_file_says_otherwise)
{
    check_kinds(&(struct options){.window = 13}, 0x5F);
    check_kinds(&(struct options){.window = 13, .factor = 8, .local_base = 5000}, 0x5F);
    check_kinds(&(struct options){.window = 13, .pattern = PATTERN_PERIOD, .period = 3}, 0x5B);
    check_kinds(&(struct options){.window = 13, .pattern = PATTERN_PERIOD, .period = 1}, 0);
    check_kinds(&(struct options){.window = 13, .pattern = PATTERN_BOOLS, .n_pattern = LAYERS}, 0x2A);
    check_kinds(&(struct options){.factor = 8}, 0); /* without a window all are global */
    check_kinds(&(struct options){.pattern = PATTERN_PERIOD, .period = 3}, 0);
}
END_TEST

START_TEST(the_largest_size_scales_queries_by_width_over_heads)
{
    struct options o = {.n_layers = 62, .window = 13};
    struct plan *p = build_good(&o);
    ck_assert(fabsf(step_at(p, 61, S_ATTENTION)->scale - 1 / sqrtf((float)D / H)) < 1e-7f);
    plan_free(&p);
}
END_TEST

START_TEST(what_cannot_be_is_named)
{
    static const struct {
        struct options o;
        enum err err;
        const char *word;
    } cases[] = {
        {{.window = 0x80000000}, ERR_BAD_HPARAM, "attention.sliding_window"},
        {{.window = 9, .pattern = PATTERN_PERIOD}, ERR_BAD_HPARAM, "sliding_window_pattern"},
        {{.window = 9, .pattern = PATTERN_PERIOD, .period = 5000}, ERR_BAD_HPARAM, "sliding_window_pattern"},
        {{.window = 9, .pattern = PATTERN_BOOLS, .n_pattern = 6}, ERR_BAD_HPARAM, "expected 7 elements"},
        {{.window = 9, .pattern = PATTERN_BOOLS, .n_pattern = 8}, ERR_BAD_HPARAM, "found 8"},
        {{.window = 9, .pattern = PATTERN_INTS, .n_pattern = 7},
         ERR_BAD_HPARAM,
         "expected 0 or 1 for layer 5, found 2"},
        {{.window = 9, .pattern = PATTERN_TEXT}, ERR_BAD_TYPE, "sliding_window_pattern"},
        {{.window = 9, .local_base = -1}, ERR_BAD_HPARAM, "rope.freq_base_swa"},
        {{.window = 9, .local_base = NAN}, ERR_BAD_HPARAM, "rope.freq_base_swa"},
        {{.window = 9, .factor = -2}, ERR_BAD_HPARAM, "rope.scaling.factor"},
        {{.softcap = -30}, ERR_BAD_HPARAM, "final_logit_softcapping"},
        {{.softcap = INFINITY}, ERR_BAD_HPARAM, "final_logit_softcapping"},
        {{.tensor = "blk.0.attn_q_norm.weight"}, ERR_MISSING_TENSOR, "blk.0.attn_q_norm.weight"},
        {{.tensor = "blk.6.attn_k_norm.weight", .n_in = D, .n_out = 1}, ERR_BAD_TENSOR_SHAPE, "blk.6.attn_k_norm"},
        {{.tensor = "blk.3.post_attention_norm.weight"}, ERR_MISSING_TENSOR, "blk.3.post_attention_norm.weight"},
        {{.tensor = "blk.3.post_ffw_norm.weight", .n_in = F, .n_out = 1}, ERR_BAD_TENSOR_SHAPE, "post_ffw_norm"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan *p = (struct plan *)1;
        struct err_info info = {0};
        enum err err = build(&cases[i].o, &p, &info);
        ck_assert_msg(err == cases[i].err, "case %zu: %s (%s), expected %s", i, err_code(err), info.text,
                      err_code(cases[i].err));
        ck_assert_ptr_null(p);
        ck_assert_msg(strstr(info.text, cases[i].word) != NULL, "case %zu: '%s' does not name '%s'", i, info.text,
                      cases[i].word);
    }
}
END_TEST

Suite *gemma3_suite(void)
{
    Suite *s = suite_create("gemma3");
    TCase *c = tcase_create("gemma3");
    tcase_add_test(c, a_layer_has_norms_after_its_blocks_and_on_its_heads);
    tcase_add_test(c, every_sixth_layer_is_global_unless_the_file_says_otherwise);
    tcase_add_test(c, the_largest_size_scales_queries_by_width_over_heads);
    tcase_add_test(c, what_cannot_be_is_named);
    suite_add_tcase(s, c);
    return s;
}
