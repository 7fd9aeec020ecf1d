/* From a GGUF file to a plan: the steps that the builders of Llama and Qwen2 list, and one clear error for every
 * hyper-parameter or tensor that cannot be. The files are made here, byte by byte. */
#include "engine/model/model.h"

#include "tests/support/model_file.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *model_families_suite(void);

enum { D = 32, L = 2, H = 4, K = 2, HEAD = 8, F = 48, V = 20, CTX = 256 };

/* What a case changes of the good file. */
struct change {
    const char *key; /* hyper-parameter without its prefix: NULL, or left out when `type` is GGUF_TYPE_COUNT */
    enum gguf_type type;
    double value;
    const char *text;   /* for GGUF_STRING; GGUF_ARRAY: `value` times false */
    const char *tensor; /* NULL, or the tensor that is different: left out when cols is 0 */
    uint64_t cols, rows;
    enum dtype dtype;
    const char *as; /* NULL, or its other name */
};

static void put_number(struct gguf_writer *w, const char *key, enum gguf_type type, double v)
{
    uint32_t u32 = (uint32_t)v;
    uint64_t u64 = (uint64_t)v;
    float f32 = (float)v;
    int32_t i32 = (int32_t)v;
    const void *p = type == GGUF_U64   ? (const void *)&u64
                    : type == GGUF_F32 ? (const void *)&f32
                    : type == GGUF_I32 ? (const void *)&i32
                                       : (const void *)&u32;
    gguf_writer_scalar(w, key, type, p);
}

/* A hyper-parameter, or what the change makes of it. */
static void put_hparam(struct gguf_writer *w, const char *arch, const char *key, enum gguf_type type, double v,
                       const struct change *c)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    bool is_changed = c != NULL && c->key != NULL && strcmp(c->key, key) == 0;
    if (!is_changed) {
        if (type != GGUF_TYPE_COUNT) {
            put_number(w, full, type, v);
        }
    } else if (c->type == GGUF_STRING) {
        gguf_writer_str(w, full, c->text);
    } else if (c->type == GGUF_ARRAY) {
        static const unsigned char bools[16];
        gguf_writer_array(w, full, GGUF_BOOL, (uint64_t)c->value, bools);
    } else if (c->type != GGUF_TYPE_COUNT) {
        put_number(w, full, c->type, c->value);
    }
}

static void put_tensor(struct gguf_writer *w, const char *name, uint64_t cols, uint64_t rows, enum dtype type,
                       const struct change *c)
{
    if (c != NULL && c->tensor != NULL && strcmp(c->tensor, name) == 0) {
        cols = c->cols;
        rows = c->rows;
        type = c->dtype;
        name = c->as != NULL ? c->as : name;
    }
    const uint64_t dims[2] = {cols, rows};
    if (cols != 0) {
        gguf_writer_tensor(w, name, type, rows == 1 ? 1 : 2, dims, NULL);
    }
}

static void put_layer(struct gguf_writer *w, int layer, bool has_bias, const struct change *c)
{
    static const struct {
        const char *name;
        uint64_t cols, rows;
        bool is_bias;
    } tensors[] = {
        {"attn_norm.weight", D, 1, false},     {"attn_q.weight", D, H * HEAD, false},
        {"attn_k.weight", D, K * HEAD, false}, {"attn_v.weight", D, K * HEAD, false},
        {"attn_q.bias", H * HEAD, 1, true},    {"attn_k.bias", K * HEAD, 1, true},
        {"attn_v.bias", K * HEAD, 1, true},    {"attn_output.weight", H * HEAD, D, false},
        {"ffn_norm.weight", D, 1, false},      {"ffn_gate.weight", D, F, false},
        {"ffn_up.weight", D, F, false},        {"ffn_down.weight", F, D, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, tensors[i].name);
        if (!tensors[i].is_bias || has_bias) {
            put_tensor(w, name, tensors[i].cols, tensors[i].rows, DTYPE_F32, c);
        }
    }
}

/* A model of architecture `arch` with one change (OPTIONAL). */
static struct model_file make_file(const char *arch, bool has_bias, bool has_output, const struct change *c)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    if (arch != NULL) {
        gguf_writer_str(&w, "general.architecture", arch);
    }
    const char *prefix = arch != NULL ? arch : "llama";
    put_hparam(&w, prefix, "embedding_length", GGUF_U32, D, c);
    put_hparam(&w, prefix, "block_count", GGUF_U32, L, c);
    put_hparam(&w, prefix, "context_length", GGUF_U32, CTX, c);
    put_hparam(&w, prefix, "feed_forward_length", GGUF_U32, F, c);
    put_hparam(&w, prefix, "attention.head_count", GGUF_U32, H, c);
    put_hparam(&w, prefix, "attention.head_count_kv", GGUF_U32, K, c);
    put_hparam(&w, prefix, "attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5, c);
    put_hparam(&w, prefix, "rope.freq_base", GGUF_F32, 500, c);
    static const char *const optional[] = {
        "attention.key_length",     "attention.value_length", "rope.dimension_count", "rope.scaling.type",
        "rope.scaling.factor",      "expert_count",           "vocab_size",           "rope.scale_linear",
        "attention.sliding_window", "attention.rope_pattern"};
    for (size_t i = 0; i < ARRAY_LEN(optional); i++) {
        put_hparam(&w, prefix, optional[i], GGUF_TYPE_COUNT, 0, c);
    }
    put_tensor(&w, "token_embd.weight", D, V, DTYPE_F32, c);
    for (int i = 0; i < L; i++) {
        put_layer(&w, i, has_bias, c);
    }
    put_tensor(&w, "output_norm.weight", D, 1, DTYPE_F32, c);
    if (has_output) {
        put_tensor(&w, "output.weight", D, V, DTYPE_F32, c);
    }
    put_tensor(&w, "rope_freqs.weight", 0, 0, DTYPE_F32, c);
    return model_file_of(&w);
}

/* --- good files ------------------------------------------------------------------------------------------------- */

static const char *weight_name(const struct plan *p, plan_weight_id id)
{
    return id == PLAN_NONE ? "" : p->weights[id].name;
}

static void check_weight(const struct plan *p, plan_weight_id id, const char *fmt, int layer)
{
    char name[64];
    snprintf(name, sizeof name, fmt, layer);
    ck_assert_str_eq(weight_name(p, id), name);
}

static const char *buf_name(const struct plan *p, plan_buf_id id) { return id == PLAN_NONE ? "-" : p->bufs[id].name; }

/* One row for each step: operation, whether it adds, from, to. */
static void check_rows(const struct plan *p, bool has_bias)
{
    static const struct {
        enum plan_op op;
        bool adds;
        const char *src, *dst;
    } layer_rows[] = {
        {PLAN_NORM, false, "x", "norm"}, {PLAN_QKV, false, "norm", "q"}, {PLAN_ATTENTION, false, "q", "att"},
        {PLAN_MATMUL, true, "att", "x"}, {PLAN_REDUCE, true, "-", "x"},  {PLAN_NORM, false, "x", "norm"},
        {PLAN_GLU, false, "norm", "ff"}, {PLAN_MATMUL, true, "ff", "x"}, {PLAN_REDUCE, true, "-", "x"},
    };
    const struct plan_step *s = p->steps;
    ck_assert_int_eq(p->n_steps, 1 + L * (int)ARRAY_LEN(layer_rows) + 4);
    ck_assert(s->op == PLAN_EMBED && s->scale == 1);
    check_weight(p, s->w[0], "token_embd.weight", 0);
    s++;
    for (int layer = 0; layer < L; layer++) {
        for (size_t i = 0; i < ARRAY_LEN(layer_rows); i++, s++) {
            ck_assert_int_eq(s->op, layer_rows[i].op);
            ck_assert(s->adds == layer_rows[i].adds);
            ck_assert_str_eq(buf_name(p, s->src), layer_rows[i].src);
            ck_assert_str_eq(buf_name(p, s->dst), layer_rows[i].dst);
        }
        const struct plan_step *row = s - ARRAY_LEN(layer_rows);
        check_weight(p, row[0].w[0], "blk.%d.attn_norm.weight", layer);
        check_weight(p, row[1].w[0], "blk.%d.attn_q.weight", layer);
        check_weight(p, row[1].w[1], "blk.%d.attn_k.weight", layer);
        check_weight(p, row[1].w[2], "blk.%d.attn_v.weight", layer);
        check_weight(p, row[1].bias[0], has_bias ? "blk.%d.attn_q.bias" : "", layer);
        check_weight(p, row[1].bias[1], has_bias ? "blk.%d.attn_k.bias" : "", layer);
        check_weight(p, row[1].bias[2], has_bias ? "blk.%d.attn_v.bias" : "", layer);
        ck_assert(row[1].layer == layer && row[2].layer == layer && row[1].heads.q_norm == PLAN_NONE);
        ck_assert(fabsf(row[2].scale - 1 / sqrtf(HEAD)) < 1e-7f && row[2].attention.window == 0 &&
                  row[2].attention.softcap == 0);
        check_weight(p, row[3].w[0], "blk.%d.attn_output.weight", layer);
        check_weight(p, row[5].w[0], "blk.%d.ffn_norm.weight", layer);
        check_weight(p, row[6].w[0], "blk.%d.ffn_gate.weight", layer);
        check_weight(p, row[6].w[1], "blk.%d.ffn_up.weight", layer);
        ck_assert_int_eq(row[6].act, PLAN_SILU);
        check_weight(p, row[7].w[0], "blk.%d.ffn_down.weight", layer);
        ck_assert(row[0].eps == 1e-5f && row[5].eps == 1e-5f);
    }
    ck_assert(s->op == PLAN_HIDDEN && s->eps == 1e-5f && !s->norm.centers);
    check_weight(p, s->w[0], "output_norm.weight", 0);
    s++;
    ck_assert(s[0].op == PLAN_GATHER && s[1].op == PLAN_NORM && s[2].op == PLAN_LOGITS);
    check_weight(p, s[1].w[0], "output_norm.weight", 0);
    ck_assert(s[2].scale == 1 && s[2].logits.softcap == 0);
}

START_TEST(the_builders_list_the_steps_of_their_family)
{
    bool is_qwen = _i % 2 == 1, has_output = _i / 2 == 1;
    struct model_file f = make_file(is_qwen ? "qwen2" : "llama", is_qwen, has_output, NULL);
    struct plan *p = model_file_plan(&f);
    ck_assert_uint_eq(p->n_vocab, V);
    ck_assert_uint_eq(p->n_embd, D);
    ck_assert_uint_eq(p->n_layers, L);
    ck_assert_uint_eq(p->n_heads, H);
    ck_assert_uint_eq(p->n_kv_heads, K);
    ck_assert_uint_eq(p->head_dim, HEAD);
    ck_assert_uint_eq(p->n_ctx_train, CTX);
    check_rows(p, is_qwen);
    const struct plan_step *logits = &p->steps[p->n_steps - 1];
    ck_assert_str_eq(weight_name(p, logits->w[0]), has_output ? "output.weight" : "token_embd.weight");
    ck_assert(has_output || logits->w[0] == p->steps[0].w[0]); /* tied: one weight */
    ck_assert_int_eq(p->n_ropes, 1);
    ck_assert(p->ropes[0].is_neox == is_qwen && p->ropes[0].n_rot == HEAD && p->ropes[0].mscale == 1);
    for (int i = 0; i < HEAD / 2; i++) {
        ck_assert(fabs(p->ropes[0].inv_freq[i] - pow(500, -2.0 * i / HEAD)) < 1e-7);
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

START_TEST(rope_follows_the_file)
{
    struct change linear = {.key = "rope.scaling.type", .type = GGUF_STRING, .text = "linear"};
    struct model_file f = make_file("llama", false, true, &linear);
    struct plan *p = model_file_plan(&f); /* without a factor: 1 */
    ck_assert(p->ropes[0].inv_freq[0] == 1);
    plan_free(&p);
    model_file_fini(&f);
    struct change none = {.key = "rope.scaling.type", .type = GGUF_STRING, .text = "none"};
    f = make_file("llama", false, true, &none);
    p = model_file_plan(&f);
    plan_free(&p);
    model_file_fini(&f);
    struct change partial = {.key = "rope.dimension_count", .type = GGUF_U32, .value = 4};
    f = make_file("llama", false, true, &partial);
    p = model_file_plan(&f);
    ck_assert(p->ropes[0].n_rot == 4 && fabs(p->ropes[0].inv_freq[1] - pow(500, -0.5)) < 1e-7);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* A factor alone is linear's, under its name or the old one; 0 is none. */
START_TEST(a_factor_needs_no_type)
{
    static const struct {
        struct change change;
        float first;
    } rows[] = {{{.key = "rope.scaling.factor", .type = GGUF_F32, .value = 4}, 0.25f},
                {{.key = "rope.scaling.factor", .type = GGUF_F32, .value = 0}, 1},
                {{.key = "rope.scale_linear", .type = GGUF_F32, .value = 8}, 0.125f}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model_file f = make_file("llama", false, true, &rows[i].change);
        struct plan *p = model_file_plan(&f);
        ck_assert_msg(p->ropes[0].inv_freq[0] == rows[i].first, "row %zu: %g", i, (double)p->ropes[0].inv_freq[0]);
        plan_free(&p);
        model_file_fini(&f);
    }
}
END_TEST

START_TEST(a_pattern_says_which_layers_of_smollm3_have_rope)
{
    struct change change = {.key = "attention.rope_pattern", .type = GGUF_ARRAY, .value = L};
    struct model_file f = make_file("smollm3", false, true, &change);
    struct plan *p = model_file_plan(&f);
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        ck_assert(s->op != PLAN_QKV || p->ropes[s->heads.rope].n_rot == 0);
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* --- bad files -------------------------------------------------------------------------------------------------- */

START_TEST(a_hyper_parameter_that_cannot_be_is_named)
{
    static const struct {
        struct change change;
        enum err err;
    } cases[] = {
        {{.key = "block_count", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {{.key = "block_count", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "block_count", .type = GGUF_U32, .value = 1025}, ERR_BAD_HPARAM},
        {{.key = "block_count", .type = GGUF_U32, .value = 1}, ERR_BAD_HPARAM}, /* half a model */
        {{.key = "block_count", .type = GGUF_U32, .value = 4294967295.0}, ERR_BAD_HPARAM},
        {{.key = "block_count", .type = GGUF_I32, .value = -1}, ERR_BAD_HPARAM},
        {{.key = "block_count", .type = GGUF_F32, .value = 2}, ERR_BAD_TYPE},
        {{.key = "block_count", .type = GGUF_STRING, .text = "2"}, ERR_BAD_TYPE},
        {{.key = "embedding_length", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {{.key = "embedding_length", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "embedding_length", .type = GGUF_U64, .value = 0x1p40}, ERR_BAD_HPARAM},
        {{.key = "feed_forward_length", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {{.key = "feed_forward_length", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "context_length", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {{.key = "context_length", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "context_length", .type = GGUF_U64, .value = 0x1p32}, ERR_BAD_HPARAM},
        {{.key = "attention.head_count", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {{.key = "attention.head_count", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "attention.head_count", .type = GGUF_U32, .value = 100000}, ERR_BAD_HPARAM},
        {{.key = "attention.head_count_kv", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "attention.head_count_kv", .type = GGUF_U32, .value = 5}, ERR_BAD_HPARAM},
        {{.key = "attention.head_count_kv", .type = GGUF_U32, .value = 3}, ERR_BAD_HPARAM}, /* 4 % 3 != 0 */
        {{.key = "attention.key_length", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "attention.key_length", .type = GGUF_U32, .value = 6}, ERR_BAD_HPARAM},
        {{.key = "attention.key_length", .type = GGUF_U32, .value = 580}, ERR_BAD_HPARAM},
        {{.key = "attention.value_length", .type = GGUF_U32, .value = 16}, ERR_BAD_HPARAM},
        {{.key = "rope.dimension_count", .type = GGUF_U32, .value = 7}, ERR_BAD_HPARAM},
        {{.key = "rope.dimension_count", .type = GGUF_U32, .value = 10}, ERR_BAD_HPARAM},
        {{.key = "attention.layer_norm_rms_epsilon", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {{.key = "attention.layer_norm_rms_epsilon", .type = GGUF_F32, .value = NAN}, ERR_BAD_HPARAM},
        {{.key = "attention.layer_norm_rms_epsilon", .type = GGUF_F32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "attention.layer_norm_rms_epsilon", .type = GGUF_F32, .value = -1e-5}, ERR_BAD_HPARAM},
        {{.key = "attention.layer_norm_rms_epsilon", .type = GGUF_U32, .value = 1}, ERR_BAD_TYPE},
        {{.key = "rope.freq_base", .type = GGUF_F32, .value = 0}, ERR_BAD_HPARAM},
        {{.key = "rope.freq_base", .type = GGUF_F32, .value = NAN}, ERR_BAD_HPARAM},
        {{.key = "rope.freq_base", .type = GGUF_F32, .value = INFINITY}, ERR_BAD_HPARAM},
        {{.key = "rope.scaling.type", .type = GGUF_STRING, .text = "ntk"}, ERR_BAD_HPARAM},
        {{.key = "rope.scaling.factor", .type = GGUF_F32, .value = -1}, ERR_BAD_HPARAM},
        {{.key = "rope.scale_linear", .type = GGUF_F32, .value = NAN}, ERR_BAD_HPARAM},
        {{.key = "rope.scaling.type", .type = GGUF_U32, .value = 1}, ERR_BAD_TYPE},
        {{.key = "expert_count", .type = GGUF_U32, .value = 1025}, ERR_BAD_HPARAM},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_file f = make_file("llama", false, true, &cases[i].change);
        model_file_refuse(&f, i, cases[i].err, cases[i].change.key);
        model_file_fini(&f);
    }
}
END_TEST

/* Of families that have such keys. */
START_TEST(a_familys_hyper_parameter_that_cannot_be_is_named)
{
    static const struct {
        const char *arch;
        struct change change;
        enum err err;
    } cases[] = {
        {"gemma2", {.key = "attention.sliding_window", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {"gemma3", {.key = "attention.sliding_window", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {"olmo2", {.key = "attention.sliding_window", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {"gpt-oss", {.key = "attention.sliding_window", .type = GGUF_U32, .value = 0}, ERR_BAD_HPARAM},
        {"gpt-oss", {.key = "attention.sliding_window", .type = GGUF_TYPE_COUNT}, ERR_BAD_HPARAM},
        {"smollm3", {.key = "attention.rope_pattern", .type = GGUF_ARRAY, .value = 1}, ERR_BAD_HPARAM},
        {"smollm3", {.key = "attention.rope_pattern", .type = GGUF_ARRAY, .value = 3}, ERR_BAD_HPARAM},
        {"smollm3", {.key = "attention.rope_pattern", .type = GGUF_U32, .value = 1}, ERR_BAD_TYPE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_file f = make_file(cases[i].arch, false, true, &cases[i].change);
        model_file_refuse(&f, i, cases[i].err, cases[i].change.key);
        model_file_fini(&f);
    }
}
END_TEST

START_TEST(a_hyper_parameter_that_asks_for_another_names_that_one)
{
    static const struct {
        struct change change;
        enum err err;
        const char *names;
    } cases[] = {
        {{.key = "attention.head_count", .type = GGUF_U32, .value = 6},
         ERR_BAD_HPARAM,
         "llama.attention.head_count: expected a divisor of embedding_length 32"},
        {{.key = "expert_count", .type = GGUF_U32, .value = 8}, ERR_BAD_HPARAM, "expert_used_count"},
        {{.key = "vocab_size", .type = GGUF_U32, .value = V + 1},
         ERR_BAD_HPARAM,
         "llama.vocab_size: expected 1 to 20, found 21"},
        {{.key = "vocab_size", .type = GGUF_F32, .value = V}, ERR_BAD_TYPE, "llama.vocab_size: expected"},
        {{.key = "block_count", .type = GGUF_U32, .value = 3}, ERR_MISSING_TENSOR, "blk.2.attn_norm.weight"},
        {{.key = "block_count", .type = GGUF_U32, .value = 513}, ERR_MISSING_TENSOR, "blk.2.attn_norm.weight"},
        {{.key = "embedding_length", .type = GGUF_U32, .value = 64}, ERR_BAD_TENSOR_SHAPE, "token_embd.weight"},
        {{.key = "feed_forward_length", .type = GGUF_U32, .value = 47}, ERR_BAD_TENSOR_SHAPE, "blk.0.ffn_gate.weight"},
        {{.key = "attention.head_count", .type = GGUF_U32, .value = 8}, ERR_BAD_TENSOR_SHAPE, "blk.0.attn_k.weight"},
        {{.key = "attention.head_count_kv", .type = GGUF_U32, .value = 4}, ERR_BAD_TENSOR_SHAPE, "blk.0.attn_k.weight"},
        {{.key = "attention.key_length", .type = GGUF_U32, .value = 12}, ERR_BAD_TENSOR_SHAPE, "blk.0.attn_q.weight"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_file f = make_file("llama", false, true, &cases[i].change);
        model_file_refuse(&f, i, cases[i].err, cases[i].names);
        model_file_fini(&f);
    }
}
END_TEST

START_TEST(a_tensor_that_cannot_be_is_named)
{
    static const struct {
        struct change change;
        enum err err;
    } cases[] = {
        {{.tensor = "token_embd.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "token_embd.weight", .cols = D, .rows = 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "token_embd.weight", .cols = D + 1, .rows = V}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "output_norm.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "output_norm.weight", .cols = D - 1, .rows = 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "output_norm.weight", .cols = D, .rows = 1, .dtype = DTYPE_F16}, ERR_UNSUPPORTED_TYPE},
        {{.tensor = "output.weight", .cols = D, .rows = V + 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_norm.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.1.attn_q.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.attn_q.weight", .cols = H * HEAD, .rows = D / 2}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.attn_k.weight", .cols = D, .rows = H * HEAD}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.attn_v.weight", .cols = D, .rows = 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_q.bias", .cols = D + 4, .rows = 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_k.bias", .cols = K * HEAD, .rows = 1, .dtype = DTYPE_F16}, ERR_UNSUPPORTED_TYPE},
        {{.tensor = "blk.0.attn_output.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.ffn_norm.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.ffn_gate.weight", .cols = D, .rows = F - 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.ffn_up.weight", .cols = D, .rows = 2 * F}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.ffn_down.weight", .cols = D, .rows = F}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "rope_freqs.weight", .cols = HEAD, .rows = 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "rope_freqs.weight", .cols = HEAD / 2, .rows = 1, .dtype = DTYPE_F16}, ERR_UNSUPPORTED_TYPE},
        {{.tensor = "rope_freqs.weight", .cols = HEAD / 2, .rows = 1}, ERR_BAD_HPARAM}, /* factors of zero */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_file f = make_file("qwen2", true, true, &cases[i].change);
        model_file_refuse(&f, i, cases[i].err, cases[i].change.tensor);
        model_file_fini(&f);
    }
}
END_TEST

/* Row G24 of the catalogue of bad inputs. */
START_TEST(an_unknown_architecture_lists_the_known_ones)
{
    static const char *const archs[] = {"rwkv7", "llama5", "LLAMA", "", NULL};
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        struct model_file f = make_file(archs[i], false, true, NULL);
        for (int k = 0; model_family_at(k) != NULL; k++) {
            model_file_refuse(&f, i, ERR_UNSUPPORTED_ARCH, model_family_at(k)->arch);
        }
        model_file_fini(&f);
    }
    ck_assert_ptr_null(model_family_at(-1));
}
END_TEST

/* Builds the plan of an unknown family's file, and expects a message with `nearest` as its end. */
static void check_nearest(const struct change *c, const char *nearest)
{
    struct model_file f = make_file("xllama", false, true, c);
    struct plan *p;
    struct err_info info = {0};
    ck_assert_int_eq(model_build(f.g, 0, &p, &info), ERR_UNSUPPORTED_ARCH);
    const char *said = strstr(info.text, "found 'xllama'");
    ck_assert_msg(said != NULL && strcmp(said + strlen("found 'xllama'"), nearest) == 0, "%s", info.text);
    model_file_fini(&f);
}

START_TEST(an_unknown_architecture_is_told_the_nearest)
{
    check_nearest(NULL, ". The nearest is 'llama'");
    check_nearest(&(struct change){.key = "attention.rope_pattern", .type = GGUF_U32, .value = 3},
                  ". The nearest is 'llama'; it ignores xllama.attention.rope_pattern");
    check_nearest(&(struct change){.tensor = "blk.1.attn_q.weight", .cols = D, .rows = D, .as = "blk.1.attn_x.weight"},
                  ". The nearest is 'llama'; it does not read blk.*.attn_x.weight; the file lacks blk.*.attn_q.weight");
    check_nearest(&(struct change){.tensor = "blk.0.ffn_up.weight", .cols = D, .rows = F + 1},
                  ". The nearest is 'llama'; the file lacks blk.*.ffn_up.weight");
    check_nearest(&(struct change){.key = "block_count", .type = GGUF_TYPE_COUNT}, ""); /* none can be built */
}
END_TEST

/* More names than a probe notes, and than a message shows. */
START_TEST(an_architecture_far_from_all_ends_in_one_line)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "far");
    for (uint32_t i = 0; i < 400; i++) {
        char name[64];
        const uint64_t dims[1] = {32};
        snprintf(name, sizeof name, "far.key_%u", i);
        gguf_writer_scalar(&w, name, GGUF_U32, &i);
        snprintf(name, sizeof name, "part_%u.weight", i);
        gguf_writer_tensor(&w, name, DTYPE_F32, 1, dims, NULL);
    }
    struct model_file f = model_file_of(&w);
    char nearest[MODEL_NEAREST_BYTES];
    model_nearest(f.g, nearest);
    ck_assert_str_eq(nearest, "");
    model_file_fini(&f);
}
END_TEST

START_TEST(the_nearest_needs_no_memory_to_fail)
{
    struct model_file f = make_file("xllama", false, true, NULL);
    size_t live = mem_live();
    char nearest[MODEL_NEAREST_BYTES] = "";
    for (long n = 0; nearest[0] == '\0'; n++) {
        mem_fail_at(n);
        model_nearest(f.g, nearest);
        mem_fail_at(-1);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_int_lt(n, 2000);
    }
    ck_assert_str_eq(nearest, "'llama'");
    model_file_fini(&f);
}
END_TEST

START_TEST(failed_allocations_are_reported_and_leave_nothing)
{
    struct model_file f = make_file("qwen2", true, true, NULL);
    size_t live = mem_live();
    struct plan *p = NULL;
    long n = 0;
    for (; p == NULL; n++) {
        struct err_info info = {0};
        mem_fail_at(n);
        enum err err = model_build(f.g, 0, &p, &info);
        mem_fail_at(-1);
        ck_assert_int_eq(err, p == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert(p != NULL || (info.code == ERR_NOMEM && mem_live() == live));
        ck_assert_int_lt(n, 200);
    }
    ck_assert_int_gt(n, 3);
    plan_free(&p);
    ck_assert_uint_eq(mem_live(), live);
    model_file_fini(&f);
}
END_TEST

Suite *model_families_suite(void)
{
    Suite *s = suite_create("model_families");
    TCase *c = tcase_create("model_families");
    tcase_add_loop_test(c, the_builders_list_the_steps_of_their_family, 0, 4);
    tcase_add_test(c, rope_follows_the_file);
    tcase_add_test(c, a_factor_needs_no_type);
    tcase_add_test(c, a_pattern_says_which_layers_of_smollm3_have_rope);
    tcase_add_test(c, a_familys_hyper_parameter_that_cannot_be_is_named);
    tcase_add_test(c, a_hyper_parameter_that_cannot_be_is_named);
    tcase_add_test(c, a_hyper_parameter_that_asks_for_another_names_that_one);
    tcase_add_test(c, a_tensor_that_cannot_be_is_named);
    tcase_add_test(c, an_unknown_architecture_lists_the_known_ones);
    tcase_add_test(c, an_unknown_architecture_is_told_the_nearest);
    tcase_add_test(c, an_architecture_far_from_all_ends_in_one_line);
    tcase_add_test(c, the_nearest_needs_no_memory_to_fail);
    tcase_add_test(c, failed_allocations_are_reported_and_leave_nothing);
    suite_add_tcase(s, c);
    return s;
}
