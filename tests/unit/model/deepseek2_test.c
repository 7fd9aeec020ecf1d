/* DeepSeek-V2 and V3 from a GGUF file to a plan: the steps of latent attention, what its KV cache takes, and clear
 * errors for what its keys and tensors may not be. The files are made here. */
#include "engine/backend/backend.h"
#include "engine/kv/kv_type.h"
#include "engine/model/model.h"

#include "tests/support/model_file.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *deepseek2_suite(void);

/* RANK: latent; ROPE, NOPE: parts of a key; Q_RANK: latent of the queries. */
enum { D = 48, H = 3, F = 64, V = 20, LAYERS = 2, RANK = 32, ROPE = 8, NOPE = 12, VALUE = 20, Q_RANK = 28 };

/* A file; zero is what converters write today. */
struct options {
    bool is_old;     /* attn_kv_b, and keys without _mla */
    bool is_plain;   /* attn_q */
    bool has_yarn;   /* factor 4, log multiplier 0.1 */
    const char *key; /* NULL, or the key that is different: left out when value is NAN */
    double value;
    const char *tensor;   /* NULL, or the tensor that is different: left out when n_in is 0 */
    uint64_t n_in, n_out; /* its shape */
};

static void put_tensor(struct gguf_writer *w, const struct options *o, const char *name, const uint64_t shape[3])
{
    uint64_t dims[3] = {shape[0], shape[1], shape[2]};
    if (o->tensor != NULL && strcmp(o->tensor, name) == 0) {
        dims[0] = o->n_in;
        dims[1] = o->n_out;
    }
    if (dims[0] != 0) {
        gguf_writer_tensor(w, name, DTYPE_F32, dims[2] != 0 ? 3 : dims[1] != 0 ? 2 : 1, dims, NULL);
    }
}

enum { ALWAYS, OLD, NEW, PLAIN, NOT_PLAIN };

static void put_layer(struct gguf_writer *w, const struct options *o, int layer)
{
    static const struct {
        const char *name;
        int when;
        uint64_t shape[3];
    } tensors[] = {
        {"attn_norm", ALWAYS, {D}},
        {"attn_q", PLAIN, {D, H * (NOPE + ROPE)}},
        {"attn_q_a", NOT_PLAIN, {D, Q_RANK}},
        {"attn_q_a_norm", NOT_PLAIN, {Q_RANK}},
        {"attn_q_b", NOT_PLAIN, {Q_RANK, H * (NOPE + ROPE)}},
        {"attn_kv_a_mqa", ALWAYS, {D, RANK + ROPE}},
        {"attn_kv_a_norm", ALWAYS, {RANK}},
        {"attn_kv_b", OLD, {RANK, H * (NOPE + VALUE)}},
        {"attn_k_b", NEW, {NOPE, RANK, H}},
        {"attn_v_b", NEW, {RANK, VALUE, H}},
        {"attn_output", ALWAYS, {H * VALUE, D}},
        {"ffn_norm", ALWAYS, {D}},
        {"ffn_gate", ALWAYS, {D, F}},
        {"ffn_up", ALWAYS, {D, F}},
        {"ffn_down", ALWAYS, {F, D}},
    };
    const bool is_there[] = {
        [ALWAYS] = true, [OLD] = o->is_old, [NEW] = !o->is_old, [PLAIN] = o->is_plain, [NOT_PLAIN] = !o->is_plain};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, tensors[i].name);
        if (is_there[tensors[i].when]) {
            put_tensor(w, o, name, tensors[i].shape);
        }
    }
}

static void put_key(struct gguf_writer *w, const struct options *o, const char *key, double value, bool is_float)
{
    char full[96];
    snprintf(full, sizeof full, "deepseek2.%s", key);
    value = o->key != NULL && strcmp(o->key, key) == 0 ? o->value : value;
    if (!isnan(value) && is_float) {
        gguf_writer_f32(w, full, (float)value);
    } else if (!isnan(value)) {
        gguf_writer_u32(w, full, (uint32_t)value);
    }
}

static void put_keys(struct gguf_writer *w, const struct options *o)
{
    const struct {
        const char *key;
        double value;
    } keys[] = {
        {"embedding_length", D},
        {"block_count", LAYERS},
        {"context_length", 256},
        {"feed_forward_length", F},
        {"attention.head_count", H},
        {"attention.head_count_kv", o->is_old ? H : 1},
        {"attention.kv_lora_rank", RANK},
        {"attention.q_lora_rank", o->is_plain ? NAN : (double)Q_RANK},
        {"attention.key_length", o->is_old ? NOPE + ROPE : RANK + ROPE},
        {"attention.value_length", o->is_old ? VALUE : RANK},
        {"attention.key_length_mla", o->is_old ? NAN : (double)(NOPE + ROPE)},
        {"attention.value_length_mla", o->is_old ? NAN : (double)VALUE},
        {"rope.dimension_count", ROPE},
        {"nextn_predict_layers", NAN},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        put_key(w, o, keys[i].key, keys[i].value, false);
    }
    put_key(w, o, "attention.layer_norm_rms_epsilon", 1e-5, true);
    if (o->has_yarn) {
        gguf_writer_str(w, "deepseek2.rope.scaling.type", "yarn");
    }
    put_key(w, o, "rope.scaling.factor", o->has_yarn ? 4 : NAN, true);
    put_key(w, o, "rope.scaling.yarn_log_multiplier", o->has_yarn ? 0.1 : NAN, true);
}

static struct model_file make_file(const struct options *o)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "deepseek2");
    put_keys(&w, o);
    put_tensor(&w, o, "token_embd.weight", (const uint64_t[3]){D, V});
    for (int i = 0; i < LAYERS; i++) {
        put_layer(&w, o, i);
    }
    put_tensor(&w, o, "output_norm.weight", (const uint64_t[3]){D});
    return model_file_of(&w);
}

/* --- good files ------------------------------------------------------------------------------------------------- */

static const struct options good[] = {{.is_old = false}, {.is_old = true}, {.is_plain = true}, {.has_yarn = true}};

START_TEST(attention_is_over_latents)
{
    const struct options *o = &good[_i];
    struct model_file f = make_file(o);
    struct plan *p = model_file_plan(&f);
    ck_assert_uint_eq(p->n_kv_heads, 1);
    ck_assert_uint_eq(p->head_dim, RANK + ROPE);
    ck_assert_uint_eq(p->latent_dim, RANK);
    ck_assert(p->ropes[0].first == RANK && p->ropes[0].n_rot == ROPE && !p->ropes[0].is_neox &&
              p->ropes[0].mscale == 1);
    const struct plan_step *into = model_file_step(p, PLAN_HEAD_MATMUL, 0), *heads = model_file_step(p, PLAN_HEADS, 0);
    const struct plan_step *att = model_file_step(p, PLAN_ATTENTION, 0), *out = att + 1;
    ck_assert(into + 1 == heads && heads + 1 == att && out->op == PLAN_HEAD_MATMUL && out[1].op == PLAN_MATMUL);
    ck_assert(heads->heads.values == PLAN_NONE && heads->heads.k_norm != PLAN_NONE && heads->eps == 1e-6f);
    ck_assert_uint_eq(p->bufs[into->src].width, H * (NOPE + ROPE));
    ck_assert_uint_eq(p->bufs[att->src].width, H * (RANK + ROPE));
    ck_assert_uint_eq(p->bufs[att->dst].width, H * RANK);
    ck_assert_uint_eq(p->bufs[out->dst].width, H * VALUE);
    const struct plan_weight *k = &p->weights[into->w[0]], *v = &p->weights[out->w[0]];
    ck_assert(k->n_out == H * RANK && k->n_in == NOPE && (k->source->ops->at == NULL) == o->is_old);
    ck_assert(v->n_out == H * VALUE && v->n_in == RANK);
    double mscale = o->has_yarn ? 1 + 0.1 * log(4) : 1;
    ck_assert_double_eq_tol((double)att->scale, mscale * mscale / sqrt(NOPE + ROPE), 1e-6);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* The two halves of each head's rows of the tensor that older files have. */
START_TEST(a_fused_tensor_is_taken_apart)
{
    struct model_file f = make_file(&(struct options){.is_old = true});
    struct plan *p = model_file_plan(&f);
    const struct gguf_tensor *t = gguf_find_tensor(f.g, "blk.0.attn_kv_b.weight");
    const struct plan_step *att = model_file_step(p, PLAN_ATTENTION, 0);
    const struct plan_weight *k = &p->weights[att[-2].w[0]], *v = &p->weights[att[1].w[0]];
    for (uint32_t h = 0; h < H; h++) {
        const float *head = (const float *)t->data + (size_t)h * (NOPE + VALUE) * RANK;
        float key[NOPE];
        uint64_t stride;
        k->source->ops->read(k->source, h * RANK + 5, 0, NOPE, key);
        for (uint32_t i = 0; i < NOPE; i++) {
            ck_assert(key[i] == head[i * RANK + 5]);
        }
        ck_assert_ptr_eq(row_source_rows(v->source, h * VALUE + 3, 1, NULL, &stride), head + (NOPE + 3) * RANK);
    }
    ck_assert_uint_eq(k->n_in, NOPE);
    ck_assert_uint_eq(k->n_out, H * RANK);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* A token takes RANK + ROPE numbers a layer, and no more, whatever the number of heads. */
START_TEST(the_kv_cache_holds_latents_alone)
{
    static const struct {
        const char *asked, *k_type;
    } cases[] = {{"f16", "f16"}, {"bf16", "bf16"}, {NULL, "f16"}};
    struct model_file f = make_file(&good[0]);
    struct plan *p = model_file_plan(&f);
    struct backend_config cfg = {.n_threads = 1, .n_pages = 3, .max_rows = 4, .max_logits = 1};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct backend_measure m;
        struct err_info info = {0};
        cfg.k_type = cases[i].asked;
        ck_assert_msg(backend_cpu.measure(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
        ck_assert_uint_eq(m.bytes[BACKEND_HOST].page,
                          (size_t)LAYERS * KV_PAGE_TOKENS * (RANK + ROPE) * sizeof(uint16_t));
        ck_assert_str_eq(m.k_type, cases[i].k_type);
        ck_assert_str_eq(m.v_type, "none");
    }
    struct backend_measure m;
    struct err_info info = {0};
    ck_assert_msg(backend_ref.measure(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.bytes[BACKEND_HOST].page, (size_t)LAYERS * KV_PAGE_TOKENS * (RANK + ROPE) * sizeof(float));
    struct kv_layout v3 =
        kv_layout_for(KV_TYPE_F16, KV_TYPE_F16, 576, 512, true); /* DeepSeek-V3's: 576 numbers a token */
    ck_assert_uint_eq(v3.bytes, KV_PAGE_TOKENS * 576 * sizeof(uint16_t));
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

START_TEST(types_that_latents_cannot_have_are_refused)
{
    struct model_file f = make_file(&good[0]);
    struct plan *p = model_file_plan(&f);
    for (int i = 0; i < 2; i++) {
        struct backend_config cfg = {.n_threads = 1, .n_pages = 1, .max_rows = 1, .max_logits = 1};
        struct backend_model *m = NULL;
        struct err_info info = {0};
        cfg.k_type = i == 0 ? "q8_0" : "q4_0";
        ck_assert_int_eq(backend_cpu.open(p, &cfg, &m, &info), ERR_CONFIG);
        ck_assert_ptr_null(m);
        ck_assert(strstr(info.text, "cache-type-k") != NULL && strstr(info.text, i == 0 ? "q8_0" : "q4_0") != NULL);
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

START_TEST(layers_that_predict_are_left_out)
{
    struct model_file f = make_file(&(struct options){.key = "nextn_predict_layers", .value = 1});
    struct plan *p = model_file_plan(&f);
    ck_assert_uint_eq(p->n_layers, LAYERS - 1);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* --- bad files -------------------------------------------------------------------------------------------------- */

static void check_bad(const struct options *o, size_t i, enum err expected, const char *word)
{
    struct model_file f = make_file(o);
    model_file_refuse(&f, i, expected, word);
    model_file_fini(&f);
}

START_TEST(a_hyper_parameter_that_cannot_be_is_named)
{
    static const struct options cases[] = {
        {.key = "attention.kv_lora_rank", .value = NAN},
        {.key = "attention.kv_lora_rank", .value = 0},
        {.key = "attention.kv_lora_rank", .value = 30},
        {.key = "attention.kv_lora_rank", .value = 572},
        {.key = "attention.q_lora_rank", .value = NAN},
        {.key = "attention.q_lora_rank", .value = 0},
        {.key = "attention.head_count_kv", .value = 2},
        {.key = "attention.head_count_kv", .value = 0},
        {.key = "attention.key_length", .value = 36},
        {.key = "attention.value_length", .value = 36},
        {.key = "attention.key_length_mla", .value = ROPE},
        {.key = "attention.key_length_mla", .value = 600},
        {.key = "attention.value_length_mla", .value = NAN},
        {.key = "attention.value_length_mla", .value = 0},
        {.is_old = true, .key = "attention.key_length", .value = NAN},
        {.is_old = true, .key = "attention.key_length", .value = ROPE},
        {.is_old = true, .key = "attention.value_length", .value = NAN},
        {.key = "rope.dimension_count", .value = NAN},
        {.key = "rope.dimension_count", .value = 6},
        {.key = "rope.dimension_count", .value = 576},
        {.key = "rope.scaling.factor", .value = 0},
        {.key = "rope.scaling.yarn_log_multiplier", .value = -1},
        {.key = "nextn_predict_layers", .value = LAYERS},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i], i, ERR_BAD_HPARAM, cases[i].key);
    }
}
END_TEST

START_TEST(a_tensor_that_cannot_be_is_named)
{
    static const struct {
        struct options options;
        enum err err;
    } cases[] = {
        {{.tensor = "blk.0.attn_q_a.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.1.attn_q_a_norm.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.attn_q_b.weight", .n_in = Q_RANK, .n_out = H * NOPE}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_kv_a_mqa.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.1.attn_kv_a_mqa.weight", .n_in = D, .n_out = RANK}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_kv_a_norm.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.attn_k_b.weight", .n_in = RANK, .n_out = NOPE}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_v_b.weight"}, ERR_MISSING_TENSOR},
        {{.is_old = true, .tensor = "blk.0.attn_kv_b.weight"}, ERR_MISSING_TENSOR},
        {{.is_old = true, .tensor = "blk.1.attn_kv_b.weight", .n_in = RANK, .n_out = H * NOPE}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.attn_output.weight", .n_in = H * RANK, .n_out = D}, ERR_BAD_TENSOR_SHAPE},
        {{.is_plain = true, .tensor = "blk.1.attn_q.weight"}, ERR_MISSING_TENSOR},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i].options, i, cases[i].err, cases[i].options.tensor);
    }
}
END_TEST

Suite *deepseek2_suite(void)
{
    Suite *s = suite_create("deepseek2");
    TCase *c = tcase_create("deepseek2");
    tcase_add_loop_test(c, attention_is_over_latents, 0, (int)ARRAY_LEN(good));
    tcase_add_test(c, a_fused_tensor_is_taken_apart);
    tcase_add_test(c, the_kv_cache_holds_latents_alone);
    tcase_add_test(c, types_that_latents_cannot_have_are_refused);
    tcase_add_test(c, layers_that_predict_are_left_out);
    tcase_add_test(c, a_hyper_parameter_that_cannot_be_is_named);
    tcase_add_test(c, a_tensor_that_cannot_be_is_named);
    suite_add_tcase(s, c);
    return s;
}
