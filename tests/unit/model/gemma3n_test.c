/* Gemma 3n from GGUF files, made here, and from the golden model's SafeTensors folder, changed here, to a plan: the
 * stream and its steps, whose cache a layer reads, which gates are sparse, and clear errors for what keys and tensors
 * may not be. That the plan computes the right thing is the golden tests' part. */
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/tensor/row_source.h"

#include "tests/support/folder.h"
#include "tests/support/golden_folder.h"
#include "tests/support/model_file.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *gemma3n_suite(void);

/* Layers are local and global by turns, the last LAYERS - OWN share a cache; F, WIDE: feed-forward widths by turns. */
enum { D = 32, H = 4, K = 2, HEAD = 12, V = 20, LAYERS = 5, OWN = 3, F = 48, WIDE = 64, PLE = 8, N = 4, RANK = 6 };

/* A file. */
struct options {
    const char *key; /* NULL, or the key that is different: left out when value is NAN */
    double value;
    const char *tensor;   /* NULL, or the tensor that is different: left out when n_in is 0 */
    uint64_t n_in, n_out; /* its shape, in its last two dimensions */
    const float *cutoffs; /* NULL: of the first and third layer */
    uint64_t n_cutoffs;
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

static void put_layer(struct gguf_writer *w, const struct options *o, int layer)
{
    uint64_t f = layer % 2 == 0 ? F : WIDE;
    const struct {
        const char *name;
        bool stores;
        uint64_t shape[3];
    } tensors[] = {
        {"attn_norm", false, {D}},
        {"attn_q", false, {D, H * HEAD}},
        {"attn_q_norm", false, {HEAD}},
        {"attn_k", true, {D, K * HEAD}},
        {"attn_k_norm", true, {HEAD}},
        {"attn_v", true, {D, K * HEAD}},
        {"attn_output", false, {H * HEAD, D}},
        {"post_attention_norm", false, {D}},
        {"ffn_norm", false, {D}},
        {"ffn_gate", false, {D, f}},
        {"ffn_up", false, {D, f}},
        {"ffn_down", false, {f, D}},
        {"post_ffw_norm", false, {D}},
        {"inp_gate", false, {D, PLE}},
        {"proj", false, {PLE, D}},
        {"post_norm", false, {D}},
        {"altup_correct_scale", false, {D}},
        {"altup_correct_coef", false, {N, N}},
        {"altup_predict_coef", false, {N, N * N}},
        {"altup_router", false, {D, N}},
        {"altup_router_norm", false, {D}},
        {"laurel_l", false, {D, RANK}},
        {"laurel_r", false, {RANK, D}},
        {"laurel_post_norm", false, {D}},
    };
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, tensors[i].name);
        if (!tensors[i].stores || layer < OWN) {
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
        {"attention.head_count_kv", K},
        {"attention.key_length", HEAD},
        {"attention.value_length", HEAD},
        {"attention.sliding_window", 7},
        {"attention.shared_kv_layers", LAYERS - OWN},
        {"embedding_length_per_layer_input", PLE},
        {"altup.num_inputs", N},
        {"altup.active_idx", 0},
    };
    char full[96];
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        double value = o->key != NULL && strcmp(o->key, keys[i].key) == 0 ? o->value : keys[i].value;
        snprintf(full, sizeof full, "gemma3n.%s", keys[i].key);
        if (!isnan(value)) {
            gguf_writer_u32(w, full, (uint32_t)value);
        }
    }
    gguf_writer_f32(w, "gemma3n.attention.layer_norm_rms_epsilon", 1e-6f);
    const bool is_local[LAYERS] = {true, false, true, false, true};
    const int32_t widths[LAYERS] = {F, WIDE, F, WIDE, F};
    const float cutoffs[LAYERS] = {1.5f, -INFINITY, -0.25f, -INFINITY, -INFINITY};
    gguf_writer_array(w, "gemma3n.attention.sliding_window_pattern", GGUF_BOOL, LAYERS, is_local);
    bool has_widths = o->key == NULL || strcmp(o->key, "feed_forward_length") != 0;
    gguf_writer_array(w, "gemma3n.feed_forward_length", GGUF_I32, has_widths ? LAYERS : 2, widths);
    if (o->cutoffs != NULL || o->n_cutoffs == 0) {
        gguf_writer_array(w, "gemma3n.activation_sparsity_scale", GGUF_F32, o->cutoffs != NULL ? o->n_cutoffs : LAYERS,
                          o->cutoffs != NULL ? o->cutoffs : cutoffs);
    }
}

static struct model_file make_file(const struct options *o)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "gemma3n");
    put_keys(&w, o);
    put_tensor(&w, o, "token_embd.weight", (const uint64_t[3]){D, V});
    put_tensor(&w, o, "altup_proj.weight", (const uint64_t[3]){D, D, N - 1});
    put_tensor(&w, o, "altup_unembd_proj.weight", (const uint64_t[3]){D, D, N - 1});
    put_tensor(&w, o, "per_layer_token_embd.weight", (const uint64_t[3]){LAYERS * PLE, V});
    put_tensor(&w, o, "per_layer_model_proj.weight", (const uint64_t[3]){D, LAYERS * PLE});
    put_tensor(&w, o, "per_layer_proj_norm.weight", (const uint64_t[3]){PLE});
    for (int i = 0; i < LAYERS; i++) {
        put_layer(&w, o, i);
    }
    put_tensor(&w, o, "output_norm.weight", (const uint64_t[3]){D});
    return model_file_of(&w);
}

/* --- good files ------------------------------------------------------------------------------------------------- */

/* Of the active row, a layer's steps; it is the first, or the third. */
START_TEST(a_layer_predicts_and_corrects_the_stream)
{
    struct model_file f = make_file(&(struct options){.key = "altup.active_idx", .value = 2 * _i});
    struct plan *p = model_file_plan(&f);
    for (int i = 0; i < LAYERS; i++) {
        const struct plan_step *predict = model_file_step(p, PLAN_PREDICT, i),
                               *correct = model_file_step(p, PLAN_CORRECT, i);
        plan_buf_id first = p->steps[0].dst, active = first + 2 * _i;
        ck_assert(predict->streams.n == N && correct->streams.n == N);
        ck_assert(predict->dst == first && correct->dst == first && correct->streams.first == 2 * (uint32_t)_i);
        ck_assert(predict[-1].dst == predict->src && predict[-2].op == PLAN_NORM && predict[-2].src == active);
        ck_assert(correct[-1].dst == correct->streams.routes && correct[-2].src == correct->src);
        ck_assert(predict[1].op == PLAN_NORM && predict[1].src == active && predict[1].dst == correct->src);
        ck_assert(correct[1].op == PLAN_SUM && correct[1].src == active && correct[1].w[0] != PLAN_NONE);
        const struct plan_step *part = &correct[3], *joins = &correct[5];
        ck_assert(part->op == PLAN_MULTIPLY && part->multiply.first == (uint32_t)i * PLE);
        for (int k = 0; k < N - 1; k++) { /* all rows but the first, whichever is active */
            ck_assert(joins[k].op == PLAN_NORM && joins[k].adds && joins[k].dst == first + 1 + k);
        }
        const struct plan_step *att = model_file_step(p, PLAN_ATTENTION, i);
        ck_assert(att->attention.window == (i % 2 == 0 ? 7 : 0) && att->scale == 1.0f && att[-1].heads.norms_values);
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* Each matrix of a stack of projections has its own row of the stream. */
START_TEST(the_stream_is_made_and_ends_by_projections)
{
    struct model_file f = make_file(&(struct options){0});
    struct plan *p = model_file_plan(&f);
    const char *const names[2] = {"altup_proj.weight", "altup_unembd_proj.weight"};
    int n_found[2] = {0, 0}, n_levelled = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        n_levelled += s->op == PLAN_SUM && s->sum.level == p->steps[0].dst && s->eps == 1e-5f;
        for (int k = 0; k < 2; k++) {
            const struct gguf_tensor *t = gguf_find_tensor(f.g, names[k]);
            if (s->op != PLAN_MATMUL || strcmp(p->weights[s->w[0]].name, names[k]) != 0) {
                continue;
            }
            ck_assert_int_eq(k == 0 ? s->dst : s->src, p->steps[0].dst + ++n_found[k]);
            uint64_t stride;
            ck_assert_ptr_eq(row_source_rows(p->weights[s->w[0]].source, 0, 1, NULL, &stride),
                             (const char *)t->data + (n_found[k] - 1) * D * D * 4);
            ck_assert_uint_eq(p->weights[s->w[0]].n_out, D);
        }
    }
    ck_assert(n_found[0] == N - 1 && n_found[1] == N - 1 && n_levelled == 2 * (N - 1));
    const struct plan_step *gather = model_file_step(p, PLAN_GATHER, 0), *mean = gather - 2; /* states stand between */
    ck_assert(mean->op == PLAN_SUM && mean->adds && mean->scale == 1.0f / N && mean->dst == gather->src);
    ck_assert(model_file_step(p, PLAN_NORM, 0)->adds &&
              p->steps[p->n_steps - 1].logits.softcap == 30.0f); /* where it says none */
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

START_TEST(the_last_layers_read_the_cache_of_others)
{
    static const int32_t sources[LAYERS] = {0, 1, 2, 1, 2};
    struct model_file f = make_file(&(struct options){0});
    struct plan *p = model_file_plan(&f);
    for (int i = 0; i < LAYERS; i++) {
        const struct plan_step *qkv = model_file_step(p, PLAN_ATTENTION, i) - 1;
        struct plan_kv kv = plan_kv_of(p, i);
        ck_assert(kv.layer == sources[i] && kv.n_kv_heads == K && kv.head_dim == HEAD);
        ck_assert((qkv->w[1] == PLAN_NONE) == (i >= OWN) && (qkv->w[2] == PLAN_NONE) == (i >= OWN));
    }
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

/* Gates of the layers that the file marks; where it marks none and is small, of none. */
START_TEST(gates_of_some_layers_are_sparse)
{
    struct model_file f = make_file(&(struct options){.n_cutoffs = _i});
    struct plan *p = model_file_plan(&f);
    static const double cutoffs[2] = {1.5, -0.25};
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_MULTIPLY && s->multiply.is_sparse) {
            ck_assert(_i == 0 && n < 2 && s->multiply.map == PLAN_MAP_GELU_TANH &&
                      s->multiply.cutoff == (float)cutoffs[n]);
            ck_assert(s[-2].dst == s->src && s[-1].dst == s->dst && s[1].src == s->dst);
            ck_assert(p->bufs[s->dst].width == F);
            n++;
        }
    }
    ck_assert_int_eq(n, _i == 0 ? 2 : 0);
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
        {.key = "attention.head_count_kv", .value = 3},
        {.key = "attention.head_count_kv", .value = 0},
        {.key = "attention.shared_kv_layers", .value = LAYERS},
        {.key = "attention.shared_kv_layers", .value = LAYERS - 1}, /* no global layer before them */
        {.key = "altup.num_inputs", .value = 1},
        {.key = "altup.num_inputs", .value = PLAN_MAX_STREAMS + 1},
        {.key = "altup.active_idx", .value = N},
        {.key = "embedding_length_per_layer_input", .value = 0},
        {.key = "embedding_length_per_layer_input", .value = 1 << 20},
        {.key = "feed_forward_length", .value = 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i], i, ERR_BAD_HPARAM, cases[i].key);
    }
    static const float bad[3][LAYERS] = {{NAN, 0, 0, 0, 0}, {0, 0, INFINITY, 0, 0}, {0, 0, 0, 0, -41}};
    for (size_t i = 0; i < 4; i++) {
        check_bad(&(struct options){.cutoffs = bad[i % 3], .n_cutoffs = i < 3 ? LAYERS : LAYERS - 1}, i, ERR_BAD_HPARAM,
                  "activation_sparsity_scale");
    }
}
END_TEST

START_TEST(a_tensor_that_cannot_be_is_named)
{
    static const struct {
        struct options options;
        enum err err;
    } cases[] = {
        {{.tensor = "altup_proj.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "altup_unembd_proj.weight", .n_in = D, .n_out = D + 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "per_layer_token_embd.weight", .n_in = LAYERS * PLE, .n_out = V - 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "per_layer_proj_norm.weight", .n_in = LAYERS * PLE}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.laurel_l.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.2.laurel_l.weight", .n_in = D, .n_out = RANK + 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.laurel_r.weight", .n_in = RANK, .n_out = D + 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.1.altup_predict_coef.weight", .n_in = N, .n_out = N}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.4.altup_correct_coef.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.0.altup_router.weight", .n_in = D, .n_out = N - 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.0.altup_router_norm.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.3.altup_correct_scale.weight", .n_in = D + 1}, ERR_BAD_TENSOR_SHAPE},
        {{.tensor = "blk.2.attn_k.weight"}, ERR_MISSING_TENSOR},
        {{.tensor = "blk.1.ffn_gate.weight", .n_in = D, .n_out = F}, ERR_BAD_TENSOR_SHAPE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i].options, i, cases[i].err, cases[i].options.tensor);
    }
}
END_TEST

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const char golden[] = "tests/golden/models/gemma3n-streams.hf";

/* The golden folder with a member of config.json that is different, opened. */
static enum err open_changed(const char *key, const char *value, struct gguf **g, struct err_info *info)
{
    enum err err = model_open(golden_folder("gemma3n-streams", key, value), g, info);
    folder_remove();
    return err;
}

START_TEST(ids_without_a_row_of_their_own_take_row_0)
{
    enum { ROWS = 250, ALL = 288, WIDTH = 48 };
    struct gguf *g = NULL;
    struct err_info info = {0};
    ck_assert_msg(model_open(golden, &g, &info) == ERR_OK, "%s", info.text);
    const struct gguf_tensor *t = gguf_find_tensor(g, "per_layer_token_embd.weight");
    ck_assert(t != NULL && t->source != NULL && t->dims[0] == WIDTH && t->dims[1] == ALL && t->type == DTYPE_BF16);
    ck_assert_uint_eq(t->bytes, ALL * WIDTH * 2);
    float first[WIDTH], last[WIDTH], row[WIDTH], part[WIDTH - 32];
    uint16_t bits[3][WIDTH];
    t->source->ops->read(t->source, 0, 0, WIDTH, first);
    t->source->ops->read(t->source, ROWS - 1, 0, WIDTH, last);
    ck_assert_mem_ne(first, last, sizeof first);
    for (uint32_t i = ROWS; i < ALL; i++) {
        t->source->ops->read(t->source, i, 0, WIDTH, row);
        ck_assert_mem_eq(first, row, sizeof first);
    }
    t->source->ops->read(t->source, ROWS - 1, 32, WIDTH - 32, part);
    ck_assert_mem_eq(part, last + 32, sizeof part);
    row_source_encode(t->source, ROWS - 1, 3, bits);
    for (int i = 0; i < WIDTH; i++) {
        ck_assert(dtype_bf16_to_f32(bits[0][i]) == last[i] && dtype_bf16_to_f32(bits[1][i]) == first[i] &&
                  bits[1][i] == bits[2][i]);
    }
    gguf_close(&g);
}
END_TEST

/* What share of a normal distribution lies below becomes how far out it ends. */
START_TEST(shares_become_cutoffs)
{
    static const double wanted[6] = {1.6448536269514722, 0, -1.2815515655446004, 3.090232306167813, 0, -INFINITY};
    struct gguf *g = NULL;
    const struct gguf_kv *kv;
    struct err_info info = {0};
    enum err err = open_changed("activation_sparsity_pattern", "[0.95, 0.5, 0.1, 0.999, 0.5, 0]", &g, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    ck_assert_int_eq(gguf_get_array(g, "gemma3n.activation_sparsity_scale", GGUF_F32, &kv, &info), ERR_OK);
    ck_assert_uint_eq(kv->n, 6);
    for (int i = 0; i < 5; i++) {
        ck_assert_double_eq_tol(gguf_elem_f64(kv, (uint64_t)i), wanted[i], 1e-6);
    }
    ck_assert(gguf_elem_f64(kv, 5) == -INFINITY);
    gguf_close(&g);
}
END_TEST

START_TEST(a_member_of_config_json_that_cannot_be_is_named)
{
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"intermediate_size", "[48, 48]"},
        {"intermediate_size", "[48, 48, 48, 0, 48, 48]"},
        {"intermediate_size", "[48, 48, 48, \"wide\", 48, 48]"},
        {"intermediate_size", "\"wide\""},
        {"activation_sparsity_pattern", "0.95"},
        {"activation_sparsity_pattern", "[0.5, 0.5]"},
        {"activation_sparsity_pattern", "[0.5, 0.5, 0.5, 1.0, 0, 0]"},
        {"activation_sparsity_pattern", "[0.5, 0.5, 0.5, -0.1, 0, 0]"},
        {"activation_sparsity_pattern", "[0.5, null, 0.5, 0, 0, 0]"},
        {"altup_correct_scale", "false"},
        {"attention_bias", "true"},
        {"altup_num_inputs", "-1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gguf *g = NULL;
        struct err_info info = {0};
        enum err err = open_changed(cases[i].key, cases[i].value, &g, &info);
        ck_assert_msg(err == ERR_BAD_CONFIG && strstr(info.text, cases[i].key) != NULL &&
                          strstr(info.text, "expected") != NULL && strstr(info.text, "found") != NULL,
                      "case %zu: %s: %s", i, err_code(err), info.text);
        ck_assert_ptr_null(g);
    }
}
END_TEST

/* One number for all layers, no soft-cap, one base of RoPE for both kinds of layer that is not the family's: as said.
 */
START_TEST(values_in_other_forms_are_read)
{
    static const struct {
        const char *key, *value;
    } cases[] = {
        {"intermediate_size", "48"},
        {"final_logit_softcapping", "null"},
        {"rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 5e4},"
                            " \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 5e4}}"},
    };
    for (int i = 0; i < (int)ARRAY_LEN(cases); i++) {
        struct gguf *g = NULL;
        struct plan *p = NULL;
        struct err_info info = {0};
        enum err err = open_changed(cases[i].key, cases[i].value, &g, &info);
        err = err == ERR_OK ? model_build(g, 0, &p, &info) : err;
        ck_assert_msg(err == ERR_OK, "case %d: %s", i, info.text);
        float cap = p->steps[p->n_steps - 1].logits.softcap;
        ck_assert(i != 1 ? cap == 3.0f : cap == 0);
        ck_assert_int_eq(p->n_ropes, 2);
        bool is_same = memcmp(p->ropes[0].inv_freq, p->ropes[1].inv_freq, p->ropes[0].n_rot / 2 * sizeof(float)) == 0;
        ck_assert(is_same == (i == 2));
        plan_free(&p);
        gguf_close(&g);
    }
}
END_TEST

/* Every allocation of a load may fail. */
START_TEST(out_of_memory_is_an_error_and_no_leak)
{
    size_t live = mem_live();
    int n = 0;
    for (bool is_done = false; !is_done; n++) {
        struct gguf *g = NULL;
        struct plan *p = NULL;
        struct err_info info = {0};
        mem_fail_at(n);
        enum err err = model_open(golden, &g, &info);
        err = err == ERR_OK ? model_build(g, 0, &p, &info) : err;
        mem_fail_at(-1);
        ck_assert_msg(err == ERR_OK || err == ERR_NOMEM, "allocation %d: %s (%s)", n, err_code(err), info.text);
        is_done = err == ERR_OK;
        plan_free(&p);
        gguf_close(&g);
        ck_assert_msg(mem_live() == live, "allocation %d: a leak", n);
        ck_assert_int_lt(n, 10000);
    }
    ck_assert_int_gt(n, 10);
}
END_TEST

Suite *gemma3n_suite(void)
{
    Suite *s = suite_create("gemma3n");
    TCase *c = tcase_create("gemma3n");
    tcase_add_loop_test(c, a_layer_predicts_and_corrects_the_stream, 0, 2);
    tcase_add_test(c, the_stream_is_made_and_ends_by_projections);
    tcase_add_test(c, the_last_layers_read_the_cache_of_others);
    tcase_add_loop_test(c, gates_of_some_layers_are_sparse, 0, 2);
    tcase_add_test(c, a_hyper_parameter_that_cannot_be_is_named);
    tcase_add_test(c, a_tensor_that_cannot_be_is_named);
    tcase_add_test(c, ids_without_a_row_of_their_own_take_row_0);
    tcase_add_test(c, shares_become_cutoffs);
    tcase_add_test(c, a_member_of_config_json_that_cannot_be_is_named);
    tcase_add_test(c, values_in_other_forms_are_read);
    tcase_add_test(c, out_of_memory_is_an_error_and_no_leak);
    suite_add_tcase(s, c);
    return s;
}
