/* Granite: which layers have a state space and what it is built of, RoPE that a file leaves out, folders of Granite 4
 * by what their layers are, and files and folders that contradict themselves. That the plan computes the right thing is
 * the golden tests' part. */
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden_folder.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

Suite *granite_suite(void);

enum { LAYERS = 4, D = 32, H = 4, K = 2, HEAD = D / H, F = 48, V = 40, TAPS = 3 };
enum { HEADS = 6, WIDTH = 8, STATE = 5, INNER = HEADS * WIDTH };

struct options {
    uint32_t taps, state, n_heads, n_groups, inner;
    uint32_t n_kv_heads[LAYERS], n_elements; /* elements of the array */
    uint32_t is_encoder;
    uint32_t groups_of_file; /* by which the tensors are made */
    const char *missing;     /* a tensor, or a key after "granitehybrid.", that is left out */
    bool has_biases, has_rope;
};

static const struct options good = {.taps = TAPS,
                                    .state = STATE,
                                    .n_heads = HEADS,
                                    .n_groups = 2,
                                    .inner = INNER,
                                    .n_kv_heads = {0, K, 0, 0},
                                    .n_elements = LAYERS,
                                    .groups_of_file = 2};

static void put_tensor(struct gguf_writer *w, const struct options *o, const char *name, uint64_t columns,
                       uint64_t rows, int n_dims)
{
    const uint64_t dims[2] = {columns, rows};
    if (o->missing == NULL || strcmp(o->missing, name) != 0) {
        gguf_writer_tensor(w, name, DTYPE_F32, n_dims, dims, NULL);
    }
}

static void put_layer(struct gguf_writer *w, const struct options *o, uint32_t layer)
{
    enum { ALL, ATTENTION, SPACE, BIAS };
    uint64_t mixed = INNER + 2 * o->groups_of_file * STATE, all = INNER + mixed + HEADS;
    const struct {
        const char *name;
        uint64_t columns, rows;
        int n_dims, kind;
    } tensors[] = {
        {"attn_norm.weight", D, 1, 1, ALL},
        {"ffn_norm.weight", D, 1, 1, ALL},
        {"ffn_gate.weight", D, F, 2, ALL},
        {"ffn_up.weight", D, F, 2, ALL},
        {"ffn_down.weight", F, D, 2, ALL},
        {"attn_q.weight", D, D, 2, ATTENTION},
        {"attn_k.weight", D, K * HEAD, 2, ATTENTION},
        {"attn_v.weight", D, K * HEAD, 2, ATTENTION},
        {"attn_output.weight", D, D, 2, ATTENTION},
        {"ssm_in.weight", D, all, 2, SPACE},
        {"ssm_conv1d.weight", TAPS, mixed, 2, SPACE},
        {"ssm_a", 1, HEADS, 2, SPACE},
        {"ssm_d", 1, HEADS, 2, SPACE},
        {"ssm_dt.bias", HEADS, 1, 1, SPACE},
        {"ssm_norm.weight", INNER / o->groups_of_file, o->groups_of_file, 2, SPACE},
        {"ssm_out.weight", INNER, D, 2, SPACE},
        {"ssm_in.bias", all, 1, 1, BIAS},
        {"ssm_conv1d.bias", mixed, 1, 1, BIAS},
        {"ssm_out.bias", D, 1, 1, BIAS},
    };
    bool is_space = good.n_kv_heads[layer] == 0;
    const bool wanted[] = {true, !is_space, is_space, is_space && o->has_biases};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer, tensors[i].name);
        if (wanted[tensors[i].kind]) {
            put_tensor(w, o, name, tensors[i].columns, tensors[i].rows, tensors[i].n_dims);
        }
    }
}

static void put_u32(struct gguf_writer *w, const struct options *o, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "granitehybrid.%s", key);
    if (o->missing == NULL || strcmp(o->missing, key) != 0) {
        gguf_writer_u32(w, full, value);
    }
}

static void put_keys(struct gguf_writer *w, const struct options *o)
{
    gguf_writer_str(w, "general.architecture", "granitehybrid");
    put_u32(w, o, "embedding_length", D);
    put_u32(w, o, "block_count", LAYERS);
    put_u32(w, o, "context_length", 256);
    put_u32(w, o, "feed_forward_length", F);
    put_u32(w, o, "attention.head_count", H);
    gguf_writer_array(w, "granitehybrid.attention.head_count_kv", GGUF_U32, o->n_elements, o->n_kv_heads);
    gguf_writer_f32(w, "granitehybrid.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_f32(w, "granitehybrid.residual_scale", 0.5f);
    put_u32(w, o, "ssm.conv_kernel", o->taps);
    put_u32(w, o, "ssm.state_size", o->state);
    put_u32(w, o, "ssm.time_step_rank", o->n_heads);
    put_u32(w, o, "ssm.group_count", o->n_groups);
    put_u32(w, o, "ssm.inner_size", o->inner);
    gguf_writer_bool(w, "granitehybrid.rope.scaling.finetuned", o->has_rope);
    if (o->is_encoder != 0) {
        gguf_writer_bool(w, "granitehybrid.attention.causal", false);
    }
}

/* The file of the last plan, in which its weights are. */
static struct buf opened_bytes;
static struct gguf *opened;

static void close_file(void)
{
    gguf_close(&opened);
    buf_fini(&opened_bytes);
}

static enum err build(const struct options *o, struct plan **p, struct err_info *info)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    buf_init(&opened_bytes, 0, MEM_GENERAL);
    put_keys(&w, o);
    put_tensor(&w, o, "token_embd.weight", D, V, 2);
    put_tensor(&w, o, "output_norm.weight", D, 1, 1);
    for (uint32_t i = 0; i < LAYERS; i++) {
        put_layer(&w, o, i);
    }
    gguf_writer_finish(&w, &opened_bytes);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(&opened_bytes), ERR_OK);
    enum err err = gguf_open_memory(opened_bytes.data, opened_bytes.len, &opened, info);
    ck_assert_msg(err == ERR_OK, "the file itself: %s", info->text);
    return model_build(opened, 0, p, info);
}

/* --- files ------------------------------------------------------------------------------------------------------- */

/* Where the weight's first row lies. */
static const char *row_at(const struct plan_weight *w)
{
    uint64_t stride;
    return row_source_rows(w->source, 0, 1, NULL, &stride);
}

/* norm, three parts of ssm_in, convolution, state space, gate, norm (times a weight, if there are groups), output. */
static void check_space(const struct plan *p, const struct plan_step *s, const struct options *o)
{
    const struct plan_step *norm = s - 5, *gate = s - 4, *in = s - 3, *dt = s - 2, *conv = s - 1;
    const struct plan_step *multiply = s + 1, *last = s + 2, *out = s + (o->n_groups == 1 ? 3 : 4);
    ck_assert(norm->op == PLAN_NORM && gate->src == norm->dst && in->src == norm->dst && dt->src == norm->dst);
    ck_assert(conv->op == PLAN_SHORT_CONV && conv->conv.taps == TAPS && conv->conv.map == PLAN_MAP_SILU);
    ck_assert(conv->src == in->dst && conv->dst == s->src && s->ssm.dt == dt->dst);
    ck_assert((conv->bias[0] != PLAN_NONE) == o->has_biases && (in->bias[0] != PLAN_NONE) == o->has_biases);
    ck_assert(multiply->op == PLAN_MULTIPLY && multiply->multiply.map == PLAN_MAP_SILU && multiply->src == gate->dst);
    ck_assert(last->op == PLAN_NORM && last->src == s->dst && last->dst == s->dst && multiply->dst == s->dst);
    ck_assert(out->op == PLAN_MATMUL && out->adds && out->src == s->dst && out->scale == 0.5f);
    /* Rows of ssm_in: the gate, x with B and C, the steps. */
    uint64_t mixed = INNER + 2 * o->n_groups * STATE, row = D * sizeof(float);
    const struct plan_weight *z = &p->weights[gate->w[0]], *x = &p->weights[in->w[0]], *t = &p->weights[dt->w[0]];
    ck_assert(z->n_out == INNER && x->n_out == mixed && t->n_out == HEADS);
    ck_assert(row_at(x) == row_at(z) + INNER * row && row_at(t) == row_at(x) + mixed * row);
    if (o->has_biases) {
        ck_assert_ptr_eq(row_at(&p->weights[dt->bias[0]]),
                         row_at(&p->weights[gate->bias[0]]) + (INNER + mixed) * sizeof(float));
    }
    ck_assert_uint_eq(p->weights[last->w[0]].n_in, INNER / o->n_groups);
    if (o->n_groups != 1) {
        ck_assert(s[3].op == PLAN_SUM && s[3].src == s->dst && s[3].dst == s->dst && !s[3].adds);
        ck_assert_str_eq(p->weights[last->w[0]].name, "ssm_ones");
        ck_assert_uint_eq(p->weights[s[3].w[0]].n_in, INNER);
    }
    ck_assert_ptr_nonnull(strstr(p->weights[s->w[0]].name, "ssm_a"));
    ck_assert_ptr_nonnull(strstr(p->weights[s->w[1]].name, "ssm_d"));
}

START_TEST(layers_without_kv_heads_have_a_state_space)
{
    struct options o = good;
    struct plan *p = NULL;
    struct err_info info = {0};
    o.n_groups = o.groups_of_file = _i == 0 ? 1 : 2;
    o.has_biases = o.has_rope = _i == 2;
    ck_assert_msg(build(&o, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert(p->ssm.n_heads == HEADS && p->ssm.n_groups == o.n_groups);
    ck_assert(p->ssm.head_dim == WIDTH && p->ssm.state_dim == STATE);
    uint64_t mixed = INNER + 2 * o.n_groups * STATE;
    ck_assert_uint_eq(p->recurrent_floats, 3 * ((TAPS - 1) * mixed + INNER * STATE));
    int n_spaces = 0, n_attention = 0;
    for (int32_t i = 0; i < LAYERS; i++) {
        ck_assert_int_eq(plan_kv_of(p, i).layer, i == 1 ? 1 : PLAN_NONE);
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_SSM) {
            check_space(p, s, &o);
            n_spaces++;
        } else if (s->op == PLAN_ATTENTION) {
            ck_assert_int_eq(s->layer, 1);
            ck_assert_uint_eq(p->ropes[s[-1].heads.rope].n_rot, o.has_rope ? HEAD : 0);
            n_attention++;
        }
    }
    ck_assert(n_spaces == 3 && n_attention == 1);
    plan_free(&p);
    close_file();
}
END_TEST

/* One value of a good file that does not go with the others. */
static const struct {
    size_t field; /* of struct options, a uint32_t; 0 with `missing` */
    uint32_t value;
    const char *missing, *word;
    enum err err;
} bad_files[] = {
    {0, 0, "ssm.conv_kernel", "granitehybrid.ssm.conv_kernel", ERR_BAD_HPARAM},
    {0, 0, "ssm.state_size", "granitehybrid.ssm.state_size", ERR_BAD_HPARAM},
    {0, 0, "ssm.time_step_rank", "granitehybrid.ssm.time_step_rank", ERR_BAD_HPARAM},
    {0, 0, "ssm.group_count", "granitehybrid.ssm.group_count", ERR_BAD_HPARAM},
    {0, 0, "ssm.inner_size", "granitehybrid.ssm.inner_size", ERR_BAD_HPARAM},
    {offsetof(struct options, taps), 1, NULL, "conv_kernel: expected 2 to 16, found 1", ERR_BAD_HPARAM},
    {offsetof(struct options, taps), 17, NULL, "conv_kernel: expected 2 to 16, found 17", ERR_BAD_HPARAM},
    {offsetof(struct options, taps), TAPS + 1, NULL, "blk.0.ssm_conv1d.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, state), 0, NULL, "state_size: expected 1 to 1024, found 0", ERR_BAD_HPARAM},
    {offsetof(struct options, state), 1025, NULL, "state_size: expected 1 to 1024, found 1025", ERR_BAD_HPARAM},
    {offsetof(struct options, state), STATE + 1, NULL, "blk.0.ssm_in.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, n_heads), 1, NULL, "time_step_rank: expected 2 to 1024, found 1", ERR_BAD_HPARAM},
    {offsetof(struct options, n_heads), 1025, NULL, "time_step_rank: expected 2 to 1024, found 1025", ERR_BAD_HPARAM},
    {offsetof(struct options, n_heads), 10, NULL, "inner_size: expected a multiple of ssm.time_step_rank 10",
     ERR_BAD_HPARAM},
    {offsetof(struct options, n_heads), 8, NULL, "blk.0.ssm_in.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, n_groups), 0, NULL, "group_count: expected 1 to 1024, found 0", ERR_BAD_HPARAM},
    {offsetof(struct options, n_groups), 4, NULL, "a divisor of ssm.time_step_rank 6, found 4", ERR_BAD_HPARAM},
    {offsetof(struct options, n_groups), 3, NULL, "blk.0.ssm_in.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, inner), 0, NULL, "inner_size: expected 1 to", ERR_BAD_HPARAM},
    {offsetof(struct options, inner), HEADS * 577, NULL, "of at most 576 a head, found 3462", ERR_BAD_HPARAM},
    {offsetof(struct options, inner), INNER + HEADS, NULL, "blk.0.ssm_in.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, n_elements), 3, NULL, "head_count_kv: expected 4 elements", ERR_BAD_HPARAM},
    {offsetof(struct options, n_kv_heads) + sizeof(uint32_t), 0, NULL, "expected a layer with attention, found none",
     ERR_BAD_HPARAM},
    {offsetof(struct options, n_kv_heads), 1, NULL, "head_count_kv[1]: expected 1", ERR_BAD_HPARAM},
    {offsetof(struct options, n_kv_heads) + 2 * sizeof(uint32_t), K, NULL, "blk.2.attn_q.weight", ERR_MISSING_TENSOR},
    {offsetof(struct options, is_encoder), 1, NULL, "attention.causal: expected true", ERR_BAD_HPARAM},
    {0, 0, "blk.0.ssm_in.weight", "blk.0.ssm_in.weight", ERR_MISSING_TENSOR},
    {0, 0, "blk.2.ssm_a", "blk.2.ssm_a", ERR_MISSING_TENSOR},
    {0, 0, "blk.2.ssm_d", "blk.2.ssm_d", ERR_MISSING_TENSOR},
    {0, 0, "blk.3.ssm_dt.bias", "blk.3.ssm_dt.bias", ERR_MISSING_TENSOR},
    {0, 0, "blk.3.ssm_norm.weight", "blk.3.ssm_norm.weight", ERR_MISSING_TENSOR},
    {0, 0, "blk.0.ssm_out.weight", "blk.0.ssm_out.weight", ERR_MISSING_TENSOR},
};

START_TEST(files_that_contradict_themselves_are_refused)
{
    struct options o = good;
    struct plan *p = NULL;
    struct err_info info = {0};
    if (bad_files[_i].missing == NULL) {
        memcpy((char *)&o + bad_files[_i].field, &bad_files[_i].value, sizeof bad_files[_i].value);
    }
    o.missing = bad_files[_i].missing;
    enum err err = build(&o, &p, &info);
    ck_assert_msg(err == bad_files[_i].err && strstr(info.text, bad_files[_i].word) != NULL, "row %d: %s: %s", _i,
                  err_code(err), info.text);
    ck_assert_ptr_null(p);
    close_file();
}
END_TEST

/* --- folders ----------------------------------------------------------------------------------------------------- */

#define GOLDEN "tests/golden/models/"

/* What a folder is by its layers and experts, however these are named. */
START_TEST(folders_become_one_of_three_architectures)
{
    static const struct {
        const char *model, *key, *value, *arch;
        uint32_t n_rot;
    } rows[] = {
        {"granite-four", "layer_types", "[\"full_attention\",\"attention\"]", "granite", 12},
        {"granite-four", "position_embedding_type", "\"nope\"", "granite", 0},
        {"granite-nope", "position_embedding_type", "\"rope\"", "granite", 12},
        {"granite-nope", "position_embedding_type", "null", "granite", 0},
        {"granitemoe-shared", "layer_types", "[\"full_attention\",\"attention\"]", "granitemoe", 12},
        {"granitehybrid-experts", "layer_types", "[\"linear_attention\",\"full_attention\",\"mamba\"]", "granitehybrid",
         0},
        {"granitehybrid-dense", "position_embedding_type", "\"rope\"", "granitehybrid", 12},
        {"granitehybrid-dense", "mamba_d_head", "\"auto\"", "granitehybrid", 0},
        {"granitehybrid-dense", "time_step_limit", "[0.0, \"INFINITY\"]", "granitehybrid", 0},
        {"granitehybrid-dense", "time_step_limit", "[0.0, 1e20]", "granitehybrid", 0},
        {"granitehybrid-dense", "time_step_limit", NULL, "granitehybrid", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gguf *g = NULL;
        struct plan *p = NULL;
        struct gguf_str arch;
        struct err_info info = {0};
        const char *folder = golden_folder(rows[i].model, rows[i].key, rows[i].value);
        ck_assert_msg(model_open(folder, &g, &info) == ERR_OK && model_build(g, 0, &p, &info) == ERR_OK, "row %zu: %s",
                      i, info.text);
        ck_assert_int_eq(gguf_get_str_or_null(g, "general.architecture", &arch, &info), ERR_OK);
        ck_assert_msg(arch.len == strlen(rows[i].arch) && memcmp(arch.data, rows[i].arch, arch.len) == 0, "row %zu", i);
        for (int32_t k = 0; k < p->n_steps; k++) {
            if (p->steps[k].op == PLAN_QKV) {
                ck_assert_msg(p->ropes[p->steps[k].heads.rope].n_rot == rows[i].n_rot, "row %zu", i);
            }
        }
        plan_free(&p);
        gguf_close(&g);
        folder_remove();
    }
}
END_TEST

static const struct {
    const char *model, *key, *value, *word;
    enum err err;
} bad_folders[] = {
    {"granitehybrid-dense", "layer_types", NULL, "layer_types: expected 4 elements, one a layer, found 0",
     ERR_BAD_CONFIG},
    {"granitehybrid-dense", "layer_types", "[\"mamba\",\"attention\",\"mamba\"]", "layer_types: expected 4",
     ERR_BAD_CONFIG},
    {"granitehybrid-dense", "layer_types", "[\"mamba\",\"attention\",\"rnn\",\"mamba\"]",
     "layer_types[2]: expected mamba or attention, found 'rnn'", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "layer_types", "[\"mamba\",1,\"mamba\",\"mamba\"]", "layer_types[1]", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "layer_types", "[\"mamba\",\"mamba\",\"mamba\",\"mamba\"]",
     "expected a layer with attention, found none", ERR_BAD_HPARAM},
    {"granitehybrid-dense", "layer_types", "[\"attention\",\"attention\",\"mamba\",\"mamba\"]",
     "model.layers.0.self_attn.q_proj.weight", ERR_MISSING_TENSOR},
    {"granitehybrid-dense", "position_embedding_type", "\"alibi\"", "expected rope, nope or null, found 'alibi'",
     ERR_BAD_CONFIG},
    {"granitehybrid-dense", "position_embedding_type", "7", "position_embedding_type", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "num_local_experts", NULL, "num_local_experts: expected an integer", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "num_local_experts", "5", "num_experts_per_tok: expected 1 to 5, found 0", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "shared_intermediate_size", NULL, "shared_intermediate_size", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "shared_intermediate_size", "48", "model.layers.0.shared_mlp.input_linear.weight",
     ERR_BAD_TENSOR_SHAPE},
    {"granitehybrid-experts", "num_experts_per_tok", "6", "num_experts_per_tok: expected 1 to 5, found 6",
     ERR_BAD_CONFIG},
    {"granitehybrid-experts", "intermediate_size", "16", "model.layers.0.block_sparse_moe.input_linear.weight",
     ERR_BAD_TENSOR_SHAPE},
    {"granitehybrid-experts", "num_local_experts", "4",
     "num_local_experts: expected 5, the rows of the router, found 4", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_n_heads", NULL, "mamba_n_heads", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_n_heads", "4", "mamba_d_head: expected mamba_expand * hidden_size / mamba_n_heads",
     ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_d_head", "15", "= 96 / 6, found 15", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_expand", "3", "= 144 / 6, found 16", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_expand", "99999999", "mamba_expand", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_n_groups", "0", "mamba_n_groups: expected 1 to 6, found 0", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "mamba_n_groups", "4",
     "config.json: mamba_n_groups: expected a divisor of mamba_n_heads 6, found 4", ERR_BAD_HPARAM},
    {"granitehybrid-dense", "mamba_n_groups", "3", "model.layers.0.mamba.in_proj.weight", ERR_BAD_TENSOR_SHAPE},
    {"granitehybrid-dense", "mamba_d_state", "21", "model.layers.0.mamba.in_proj.weight", ERR_BAD_TENSOR_SHAPE},
    {"granitehybrid-dense", "mamba_d_conv", "3", "model.layers.0.mamba.conv1d.weight", ERR_BAD_TENSOR_SHAPE},
    {"granitehybrid-dense", "time_step_limit", "[0.0, 0.1]", "expected [0, Infinity], found [0, 0.1]", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "time_step_limit", "[0.001, \"INFINITY\"]", "time_step_limit", ERR_BAD_CONFIG},
    {"granitehybrid-dense", "time_step_limit", "3", "time_step_limit", ERR_BAD_CONFIG},
};

START_TEST(folders_that_contradict_themselves_are_refused)
{
    struct gguf *g = NULL;
    struct plan *p = NULL;
    struct err_info info = {0};
    const char *folder = golden_folder(bad_folders[_i].model, bad_folders[_i].key, bad_folders[_i].value);
    enum err err = model_open(folder, &g, &info);
    err = err != ERR_OK ? err : model_build(g, 0, &p, &info);
    ck_assert_msg(err == bad_folders[_i].err && strstr(info.text, bad_folders[_i].word) != NULL, "row %d: %s: %s", _i,
                  err_code(err), info.text);
    ck_assert_ptr_null(p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

START_TEST(memory_that_runs_out_is_said_and_given_back)
{
    static const char *const models[] = {GOLDEN "granitehybrid-dense.hf", GOLDEN "granitehybrid-experts.gguf",
                                         GOLDEN "granitemoe-shared.hf", GOLDEN "quant-fp8-mamba.hf"};
    golden_memory_runs_out(models[_i]);
}
END_TEST

Suite *granite_suite(void)
{
    Suite *s = suite_create("granite");
    TCase *c = tcase_create("granite");
    tcase_add_loop_test(c, layers_without_kv_heads_have_a_state_space, 0, 3);
    tcase_add_loop_test(c, files_that_contradict_themselves_are_refused, 0, (int)ARRAY_LEN(bad_files));
    tcase_add_test(c, folders_become_one_of_three_architectures);
    tcase_add_loop_test(c, folders_that_contradict_themselves_are_refused, 0, (int)ARRAY_LEN(bad_folders));
    tcase_add_loop_test(c, memory_that_runs_out_is_said_and_given_back, 0, 4);
    suite_add_tcase(s, c);
    return s;
}
