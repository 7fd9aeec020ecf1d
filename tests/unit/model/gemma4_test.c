/* Gemma 4 from a GGUF file to a plan: heads and cache of each layer, the steps it has beyond Gemma 3's, and clear
 * errors for what its keys and tensors may not be. The files are made here. */
#include "engine/backend/backend.h"
#include "engine/kv/kv_type.h"
#include "engine/model/model.h"

#include "tests/support/model_file.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *gemma4_suite(void);

/* Layers are local and global by turns; GLOBAL, LOCAL: widths of their heads; K, GLOBAL_K: their KV heads. */
enum {
    D = 32,
    H = 4,
    F = 48,
    V = 20,
    LAYERS = 4,
    GLOBAL = 16,
    LOCAL = 8,
    K = 2,
    GLOBAL_K = 1,
    PLE = 12,
    E = 3,
    FE = 20
};

/* A file; zero has experts, and keys as values in global layers. */
struct options {
    bool has_ple;    /* per-layer embeddings, no experts; the last two layers share a cache and are twice as wide */
    bool is_fused;   /* gate and up of the experts in one tensor */
    const char *key; /* NULL, or the key that is different: left out when value is NAN */
    double value;
    const char *tensor;   /* NULL, or the tensor that is different: left out when n_in is 0 */
    uint64_t n_in, n_out; /* its shape */
};

static void put_tensor(struct gguf_writer *w, const struct options *o, const char *name, const uint64_t shape[3])
{
    uint64_t dims[3] = {shape[0], shape[1], shape[2]};
    float one = 0.5f;
    if (o->tensor != NULL && strcmp(o->tensor, name) == 0) {
        dims[0] = o->n_in;
        dims[1] = o->n_out;
    }
    if (dims[0] != 0) {
        gguf_writer_tensor(w, name, DTYPE_F32,
                           dims[2] != 0   ? 3
                           : dims[1] != 0 ? 2
                                          : 1,
                           dims, dims[0] == 1 && dims[1] == 0 ? &one : NULL);
    }
}

enum { ALWAYS, STORES, VALUES, WITH_PLE, WITH_EXPERTS, FUSED, APART, N_WHEN };

static void put_layer(struct gguf_writer *w, const struct options *o, int layer)
{
    bool is_local = layer % 2 == 0, is_shared = o->has_ple && layer >= LAYERS / 2;
    uint64_t d = is_local ? LOCAL : GLOBAL, k = d * (is_local || o->has_ple ? K : GLOBAL_K), f = is_shared ? 2 * F : F;
    const struct {
        const char *name;
        int when;
        uint64_t shape[3];
    } tensors[] = {
        {"attn_norm.weight", ALWAYS, {D}},
        {"attn_q.weight", ALWAYS, {D, H * d}},
        {"attn_q_norm.weight", ALWAYS, {d}},
        {"attn_k.weight", STORES, {D, k}},
        {"attn_k_norm.weight", STORES, {d}},
        {"attn_v.weight", VALUES, {D, k}},
        {"attn_output.weight", ALWAYS, {H * d, D}},
        {"post_attention_norm.weight", ALWAYS, {D}},
        {"ffn_norm.weight", ALWAYS, {D}},
        {"ffn_gate.weight", ALWAYS, {D, f}},
        {"ffn_up.weight", ALWAYS, {D, f}},
        {"ffn_down.weight", ALWAYS, {f, D}},
        {"post_ffw_norm.weight", ALWAYS, {D}},
        {"layer_output_scale.weight", ALWAYS, {1}},
        {"inp_gate.weight", WITH_PLE, {D, PLE}},
        {"proj.weight", WITH_PLE, {PLE, D}},
        {"post_norm.weight", WITH_PLE, {D}},
        {"post_ffw_norm_1.weight", WITH_EXPERTS, {D}},
        {"pre_ffw_norm_2.weight", WITH_EXPERTS, {D}},
        {"post_ffw_norm_2.weight", WITH_EXPERTS, {D}},
        {"ffn_gate_inp.weight", WITH_EXPERTS, {D, E}},
        {"ffn_gate_inp.scale", WITH_EXPERTS, {D}},
        {"ffn_gate_up_exps.weight", FUSED, {D, 2 * FE, E}},
        {"ffn_gate_exps.weight", APART, {D, FE, E}},
        {"ffn_up_exps.weight", APART, {D, FE, E}},
        {"ffn_down_exps.weight", WITH_EXPERTS, {FE, D, E}},
        {"ffn_down_exps.scale", WITH_EXPERTS, {E}},
    };
    const bool is_there[N_WHEN] = {[ALWAYS] = true,
                                   [STORES] = !is_shared,
                                   [VALUES] = !is_shared && (is_local || o->has_ple),
                                   [WITH_PLE] = o->has_ple,
                                   [WITH_EXPERTS] = !o->has_ple,
                                   [FUSED] = !o->has_ple && o->is_fused,
                                   [APART] = !o->has_ple && !o->is_fused};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, tensors[i].name);
        if (is_there[tensors[i].when]) {
            put_tensor(w, o, name, tensors[i].shape);
        }
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
        {"attention.head_count", H},
        {"attention.key_length", GLOBAL},
        {"attention.value_length", GLOBAL},
        {"attention.key_length_swa", LOCAL},
        {"attention.value_length_swa", LOCAL},
        {"attention.sliding_window", 7},
        {"attention.shared_kv_layers", o->has_ple ? LAYERS / 2 : 0},
        {"rope.dimension_count", GLOBAL},
        {"rope.dimension_count_swa", LOCAL},
        {"embedding_length_per_layer_input", o->has_ple ? PLE : 0},
        {"expert_count", o->has_ple ? 0 : E},
        {"expert_used_count", o->has_ple ? NAN : 2},
        {"expert_feed_forward_length", o->has_ple ? NAN : FE},
    };
    char full[96];
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        double value = o->key != NULL && strcmp(o->key, keys[i].key) == 0 ? o->value : keys[i].value;
        snprintf(full, sizeof full, "gemma4.%s", keys[i].key);
        if (!isnan(value)) {
            gguf_writer_u32(w, full, (uint32_t)value);
        }
    }
    gguf_writer_f32(w, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    const bool is_local[LAYERS] = {true, false, true, false};
    const int32_t heads[LAYERS] = {K, GLOBAL_K, K, GLOBAL_K}, wide[LAYERS] = {F, F, 2 * F, 2 * F}, few[2] = {K, K};
    gguf_writer_array(w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, LAYERS, is_local);
    const char *key = "attention.head_count_kv";
    bool is_other = o->key != NULL && strcmp(o->key, key) == 0;
    snprintf(full, sizeof full, "gemma4.%s", key);
    if (is_other && isnan(o->value)) {
        gguf_writer_array(w, full, GGUF_I32, ARRAY_LEN(few), few);
    } else if (is_other || o->has_ple) {
        gguf_writer_u32(w, full, is_other ? (uint32_t)o->value : K);
    } else {
        gguf_writer_array(w, full, GGUF_I32, LAYERS, heads);
    }
    is_other = o->key != NULL && strcmp(o->key, "feed_forward_length") == 0;
    if (is_other || !o->has_ple) {
        gguf_writer_u32(w, "gemma4.feed_forward_length", is_other ? (uint32_t)o->value : F);
    } else {
        gguf_writer_array(w, "gemma4.feed_forward_length", GGUF_I32, LAYERS, wide);
    }
}

static struct model_file make_file(const struct options *o)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "gemma4");
    put_keys(&w, o);
    put_tensor(&w, o, "token_embd.weight", (const uint64_t[3]){D, V});
    if (o->has_ple) {
        put_tensor(&w, o, "per_layer_token_embd.weight", (const uint64_t[3]){LAYERS * PLE, V});
        put_tensor(&w, o, "per_layer_model_proj.weight", (const uint64_t[3]){D, LAYERS * PLE});
        put_tensor(&w, o, "per_layer_proj_norm.weight", (const uint64_t[3]){PLE});
    }
    for (int i = 0; i < LAYERS; i++) {
        put_layer(&w, o, i);
    }
    put_tensor(&w, o, "output_norm.weight", (const uint64_t[3]){D});
    return model_file_of(&w);
}

/* --- good files ------------------------------------------------------------------------------------------------- */

static const struct plan_step *qkv_of(const struct plan *p, int layer)
{
    return model_file_step(p, PLAN_ATTENTION, layer) - 1;
}

START_TEST(layers_have_heads_of_their_own)
{
    struct model_file f = make_file(&(struct options){0});
    struct plan *p = model_file_plan(&f);
    for (int i = 0; i < LAYERS; i++) {
        struct plan_kv kv = plan_kv_of(p, i);
        const struct plan_step *qkv = qkv_of(p, i), *att = qkv + 1;
        bool is_local = i % 2 == 0;
        ck_assert_int_eq(kv.layer, i);
        ck_assert_uint_eq(kv.head_dim, is_local ? LOCAL : GLOBAL);
        ck_assert_uint_eq(kv.n_kv_heads, is_local ? K : GLOBAL_K);
        ck_assert_uint_eq(p->bufs[att->src].width, H * kv.head_dim);
        ck_assert_uint_eq(p->ropes[qkv->heads.rope].n_rot, kv.head_dim);
        ck_assert(att->attention.window == (is_local ? 7 : 0) && att->scale == 1.0f && qkv->heads.norms_values);
        ck_assert((qkv->w[2] == qkv->w[1]) == !is_local); /* global layers' values are their keys */
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

START_TEST(the_last_layers_read_the_cache_of_others)
{
    struct model_file f = make_file(&(struct options){.has_ple = true});
    struct plan *p = model_file_plan(&f);
    for (int i = 0; i < LAYERS; i++) {
        const struct plan_step *qkv = qkv_of(p, i);
        ck_assert_int_eq(plan_kv_of(p, i).layer, i % 2);
        ck_assert((qkv->w[1] == PLAN_NONE) == (i >= 2) && (qkv->w[2] == PLAN_NONE) == (i >= 2));
    }
    uint64_t bytes = 0; /* of two layers alone */
    bytes += (uint64_t)kv_layout_of(KV_TYPE_F16, KV_TYPE_F16, LOCAL, LOCAL).bytes * K;
    bytes += (uint64_t)kv_layout_of(KV_TYPE_F16, KV_TYPE_F16, GLOBAL, GLOBAL).bytes * K;
    struct backend_config cfg = {.n_threads = 1, .n_pages = 3, .max_rows = 4, .max_logits = 1};
    for (int i = 0; i < 2; i++) {
        const struct backend *b = i == 0 ? &backend_cpu : &backend_ref;
        struct backend_measure m;
        struct err_info info = {0};
        cfg.k_type = cfg.v_type = i == 0 ? "f16" : NULL;
        ck_assert_msg(b->measure(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
        ck_assert_uint_eq(m.bytes[BACKEND_HOST].page,
                          i == 0 ? bytes : KV_PAGE_TOKENS * 2 * K * (LOCAL + GLOBAL) * sizeof(float));
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

START_TEST(each_layer_takes_its_part_of_the_embeddings)
{
    struct model_file f = make_file(&(struct options){.has_ple = true});
    struct plan *p = model_file_plan(&f);
    const struct plan_step *embed = model_file_step(p, PLAN_EMBED, 1);
    ck_assert_uint_eq(p->bufs[embed->dst].width, LAYERS * PLE);
    ck_assert_float_eq_tol(embed->scale, sqrtf(PLE / 2.0f), 1e-6f);
    ck_assert(embed[2].op == PLAN_NORM && embed[2].adds && embed[2].dst == embed->dst);
    ck_assert_uint_eq(p->weights[embed[2].w[0]].n_in, PLE);
    for (int i = 0; i < LAYERS; i++) { /* two for each layer: the gate, and the factor of the stream */
        const struct plan_step *gate = model_file_step(p, PLAN_MULTIPLY, 2 * i),
                               *scale = model_file_step(p, PLAN_MULTIPLY, 2 * i + 1);
        ck_assert(gate->src == embed->dst && gate->multiply.first == (uint32_t)i * PLE && gate->scale == 1.0f);
        ck_assert(scale->src == PLAN_NONE && scale->scale == 0.5f && scale->dst == p->steps[0].dst);
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* Fused or not, an expert's gate and up are where the file has them. */
START_TEST(experts_stand_beside_the_dense_block)
{
    struct model_file f = make_file(&(struct options){.is_fused = _i == 1});
    struct plan *p = model_file_plan(&f);
    const struct plan_step *route = model_file_step(p, PLAN_ROUTE, 0), *experts = model_file_step(p, PLAN_EXPERTS, 0);
    ck_assert(route->w[1] != PLAN_NONE && !experts->adds && p->moe.norms_weights && p->moe.gating == PLAN_SOFTMAX);
    for (uint32_t k = 0; k < 2; k++) {
        const char *names[2] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"};
        const struct gguf_tensor *t = gguf_find_tensor(f.g, _i == 1 ? "blk.0.ffn_gate_up_exps.weight" : names[k]);
        const struct plan_weight *w = &p->weights[experts->w[k]];
        ck_assert(w->n_out == E * FE && w->n_in == D);
        for (uint32_t e = 0; e < E; e++) {
            size_t row = _i == 1 ? (2 * e + k) * FE : e * FE;
            uint64_t stride;
            ck_assert_ptr_eq(row_source_rows(w->source, e * FE + 3, 1, NULL, &stride),
                             (const char *)t->data + (row + 3) * D * sizeof(float));
        }
    }
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
        {.key = "attention.key_length_swa", .value = 0},
        {.key = "attention.key_length_swa", .value = 580},
        {.key = "attention.value_length_swa", .value = 12},
        {.key = "attention.head_count_kv", .value = NAN},
        {.key = "attention.head_count_kv", .value = 0},
        {.key = "attention.head_count_kv", .value = 3},
        {.has_ple = true, .key = "attention.shared_kv_layers", .value = LAYERS},
        {.has_ple = true, .key = "attention.shared_kv_layers", .value = LAYERS - 1},
        {.has_ple = true, .key = "embedding_length_per_layer_input", .value = 1 << 20},
        {.key = "feed_forward_length", .value = 0},
        {.key = "rope.dimension_count_swa", .value = 7},
        {.key = "rope.dimension_count_swa", .value = 16},
        {.key = "expert_used_count", .value = 4},
        {.key = "expert_feed_forward_length", .value = NAN},
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
        {{.tensor = "blk.0.attn_v.weight"}, ERR_MISSING_TENSOR}, /* local layers have values of their own */
        {{.tensor = "blk.1.attn_k.weight", .n_in = D, .n_out = K * GLOBAL}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.attn_q_norm.weight", .n_in = LOCAL}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.2.ffn_gate_inp.scale"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.ffn_down_exps.scale", .n_in = E + 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.layer_output_scale.weight", .n_in = 2}, ERR_BAD_TENSOR_SHAPE},
        {{.has_ple = true, .tensor = "per_layer_token_embd.weight"}, ERR_MISSING_TENSOR},
        {{.has_ple = true, .tensor = "per_layer_proj_norm.weight", .n_in = LAYERS * PLE}, ERR_BAD_TENSOR_SHAPE},
        {{.has_ple = true, .tensor = "blk.3.inp_gate.weight"}, ERR_MISSING_TENSOR},
        {{.has_ple = true, .tensor = "blk.3.ffn_down.weight", .n_in = F, .n_out = D}, ERR_BAD_TENSOR_SHAPE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i].options, i, cases[i].err, cases[i].options.tensor);
    }
}
END_TEST

Suite *gemma4_suite(void)
{
    Suite *s = suite_create("gemma4");
    TCase *c = tcase_create("gemma4");
    tcase_add_test(c, layers_have_heads_of_their_own);
    tcase_add_test(c, the_last_layers_read_the_cache_of_others);
    tcase_add_test(c, each_layer_takes_its_part_of_the_embeddings);
    tcase_add_loop_test(c, experts_stand_beside_the_dense_block, 0, 2);
    tcase_add_test(c, a_hyper_parameter_that_cannot_be_is_named);
    tcase_add_test(c, a_tensor_that_cannot_be_is_named);
    suite_add_tcase(s, c);
    return s;
}
