/* Qwen3-Next and Qwen3.5: which layers are linear, what they are built of, rows that tensors keep in turns, folders in
 * the order of GGUF files, and files that contradict themselves. That the plan computes the right thing is the golden
 * tests' part. */
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden_folder.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

Suite *qwen3next_suite(void);

enum { LAYERS = 4, D = 32, H = 4, K = 2, HEAD = 12, F = 48, V = 40, TAPS = 3, HK = 2, HV = 4, DK = 6, DV = 10 };
enum { EACH = HV / HK, MIXED = 2 * HK * DK + HV * DV };

struct options {
    const char *arch;
    unsigned char kinds[LAYERS];
    uint32_t n_kinds; /* elements of the array; 0: an interval instead */
    uint32_t interval, taps, state_size, n_k, n_v, inner, n_predicting, has_only_linear, is_encoder;
    const char *missing; /* a tensor, or a key after "<arch>.", that is left out */
    bool is_old;         /* ssm_in and ssm_ba in place of four tensors */
    bool has_bias;
};

static const struct options good = {.arch = "qwen3next",
                                    .kinds = {1, 1, 0, 1},
                                    .n_kinds = LAYERS,
                                    .taps = TAPS,
                                    .state_size = DK,
                                    .n_k = HK,
                                    .n_v = HV,
                                    .inner = HV * DV};

/* Every element of row r is r: of matrices, where rows come from can be seen. */
static void put_tensor(struct gguf_writer *w, const struct options *o, const char *name, uint64_t columns,
                       uint64_t rows)
{
    static float data[160 * 64];
    const uint64_t dims[2] = {columns, rows};
    ck_assert_uint_le(columns * rows, ARRAY_LEN(data));
    for (uint64_t i = 0; i < columns * rows; i++) {
        data[i] = (float)(rows == 1 ? i : i / columns);
    }
    if (o->missing == NULL || strcmp(o->missing, name) != 0) {
        gguf_writer_tensor(w, name, DTYPE_F32, rows == 1 ? 1 : 2, dims, data);
    }
}

static bool is_linear(const struct options *o, uint32_t layer)
{
    return o->n_kinds != 0 ? o->kinds[layer] != 0 : (layer + 1) % o->interval != 0;
}

static void put_layer(struct gguf_writer *w, const struct options *o, uint32_t layer)
{
    enum { ALL, ATTENTION, LINEAR, OLD, NEW, BIAS };
    static const struct {
        const char *name;
        uint64_t columns, rows;
        int kind;
    } tensors[] = {
        {"attn_norm.weight", D, 1, ALL},
        {"post_attention_norm.weight", D, 1, ALL},
        {"ffn_gate.weight", D, F, ALL},
        {"ffn_up.weight", D, F, ALL},
        {"ffn_down.weight", F, D, ALL},
        {"attn_q.weight", D, 2 * H * HEAD, ATTENTION},
        {"attn_k.weight", D, K * HEAD, ATTENTION},
        {"attn_v.weight", D, K * HEAD, ATTENTION},
        {"attn_output.weight", H * HEAD, D, ATTENTION},
        {"attn_q_norm.weight", HEAD, 1, ATTENTION},
        {"attn_k_norm.weight", HEAD, 1, ATTENTION},
        {"attn_q.bias", 2 * H * HEAD, 1, BIAS},
        {"ssm_conv1d.weight", TAPS, MIXED, LINEAR},
        {"ssm_a", HV, 1, LINEAR},
        {"ssm_dt.bias", HV, 1, LINEAR},
        {"ssm_norm.weight", DV, 1, LINEAR},
        {"ssm_out.weight", HV * DV, D, LINEAR},
        {"ssm_in.weight", D, MIXED + HV * DV, OLD},
        {"ssm_ba.weight", D, 2 * HV, OLD},
        {"attn_qkv.weight", D, MIXED, NEW},
        {"attn_gate.weight", D, HV * DV, NEW},
        {"ssm_beta.weight", D, HV, NEW},
        {"ssm_alpha.weight", D, HV, NEW},
    };
    bool linear = is_linear(o, layer);
    const bool wanted[] = {true, !linear, linear, linear && o->is_old, linear && !o->is_old, !linear && o->has_bias};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer, tensors[i].name);
        if (wanted[tensors[i].kind]) {
            put_tensor(w, o, name, tensors[i].columns, tensors[i].rows);
        }
    }
}

static void put_u32(struct gguf_writer *w, const struct options *o, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", o->arch, key);
    if (o->missing == NULL || strcmp(o->missing, key) != 0) {
        gguf_writer_u32(w, full, value);
    }
}

static void put_keys(struct gguf_writer *w, const struct options *o)
{
    char key[96];
    gguf_writer_str(w, "general.architecture", o->arch);
    put_u32(w, o, "embedding_length", D);
    put_u32(w, o, "block_count", LAYERS);
    put_u32(w, o, "context_length", 256);
    put_u32(w, o, "feed_forward_length", F);
    put_u32(w, o, "attention.head_count", H);
    put_u32(w, o, "attention.head_count_kv", K);
    put_u32(w, o, "attention.key_length", HEAD);
    put_u32(w, o, "rope.dimension_count", 4);
    put_u32(w, o, "ssm.conv_kernel", o->taps);
    put_u32(w, o, "ssm.state_size", o->state_size);
    put_u32(w, o, "ssm.group_count", o->n_k);
    put_u32(w, o, "ssm.time_step_rank", o->n_v);
    put_u32(w, o, "ssm.inner_size", o->inner);
    put_u32(w, o, "nextn_predict_layers", o->n_predicting);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", o->arch);
    gguf_writer_f32(w, key, 1e-6f);
    if (o->n_kinds != 0) {
        snprintf(key, sizeof key, "%s.attention.recurrent_layers", o->arch);
        gguf_writer_array(w, key, GGUF_BOOL, o->n_kinds, o->kinds);
    } else {
        put_u32(w, o, "full_attention_interval", o->interval);
    }
    if (o->is_encoder != 0) {
        snprintf(key, sizeof key, "%s.attention.causal", o->arch);
        gguf_writer_bool(w, key, false);
    }
}

/* The plan borrows its data from *g and *bytes. */
static enum err build(const struct options *o, struct gguf **g, struct buf *bytes, struct plan **p,
                      struct err_info *info)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    buf_init(bytes, 0, MEM_GENERAL);
    put_keys(&w, o);
    put_tensor(&w, o, "token_embd.weight", D, V);
    put_tensor(&w, o, "output_norm.weight", D, 1);
    for (uint32_t i = 0; i < LAYERS; i++) {
        put_layer(&w, o, i);
    }
    gguf_writer_finish(&w, bytes);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(bytes), ERR_OK);
    enum err err = gguf_open_memory(bytes->data, bytes->len, g, info);
    ck_assert_msg(err == ERR_OK, "the file itself: %s", info->text);
    return model_build(*g, 0, p, info);
}

/* Row r of a weight is row want(r) of its tensor. */
static void check_rows(const struct plan *p, plan_weight_id id, uint32_t n, uint32_t (*want)(uint32_t r))
{
    const struct plan_weight *w = &p->weights[id];
    ck_assert_uint_eq(w->n_out, n);
    for (uint32_t r = 0; r < n; r++) {
        uint64_t stride;
        const float *row = row_source_rows(w->source, r, 1, NULL, &stride); /* they lie in the file */
        ck_assert_msg(row[0] == (float)want(r) && row[w->n_in - 1] == (float)want(r),
                      "%s: row %u: expected %u, found %g", w->name, r, want(r), (double)row[0]);
    }
}

enum { V_EACH = EACH * DV, GROUP = 2 * (DK + V_EACH) }; /* rows of a key head in ssm_in */

static uint32_t same(uint32_t r) { return r; }
static uint32_t query_row(uint32_t r) { return r / HEAD * 2 * HEAD + r % HEAD; }
static uint32_t gate_row(uint32_t r) { return query_row(r) + HEAD; }
static uint32_t beta_row(uint32_t r) { return r / EACH * 2 * EACH + r % EACH; }
static uint32_t alpha_row(uint32_t r) { return beta_row(r) + EACH; }
static uint32_t z_row(uint32_t r) { return r / V_EACH * GROUP + 2 * DK + V_EACH + r % V_EACH; }
static uint32_t mixed_row(uint32_t r)
{
    if (r >= 2 * HK * DK) {
        return z_row(r - 2 * HK * DK) - V_EACH;
    }
    return r % (HK * DK) / DK * GROUP + r / (HK * DK) * DK + r % DK;
}

static void check_linear(const struct plan *p, const struct plan_step *delta, const struct options *o)
{
    static const enum plan_op block[] = {PLAN_NORM,       PLAN_MATMUL, PLAN_MATMUL,   PLAN_MATMUL, PLAN_MATMUL,
                                         PLAN_SHORT_CONV, PLAN_DELTA,  PLAN_MULTIPLY, PLAN_MATMUL};
    for (int k = 0; k < (int)ARRAY_LEN(block); k++) {
        ck_assert_int_eq(delta[k - 6].op, block[k]);
    }
    const struct plan_step *conv = delta - 1, *qkv = delta - 5, *z = delta - 4, *beta = delta - 3, *alpha = delta - 2;
    ck_assert(conv->conv.taps == TAPS && conv->conv.map == PLAN_MAP_SILU && conv->src == qkv->dst &&
              conv->dst == delta->src);
    ck_assert(beta->dst == delta->delta.beta && alpha->dst == delta->delta.alpha);
    ck_assert(delta[1].dst == delta->dst && delta[1].src == z->dst && delta[1].multiply.map == PLAN_MAP_SILU);
    ck_assert(delta[2].src == delta->dst && delta[2].op == PLAN_MATMUL && delta[2].adds);
    check_rows(p, qkv->w[0], MIXED, o->is_old ? mixed_row : same);
    check_rows(p, z->w[0], HV * DV, o->is_old ? z_row : same);
    check_rows(p, beta->w[0], HV, o->is_old ? beta_row : same);
    check_rows(p, alpha->w[0], HV, o->is_old ? alpha_row : same);
}

static void check_attention(const struct plan *p, const struct plan_step *att, const struct options *o)
{
    const struct plan_step *qkv = att - 1, *gate = att + 1, *multiply = att + 2;
    ck_assert(qkv->op == PLAN_QKV && qkv->heads.q_norm != PLAN_NONE && qkv->heads.k_norm != PLAN_NONE);
    ck_assert(p->ropes[qkv->heads.rope].n_rot == 4 && p->ropes[qkv->heads.rope].is_neox);
    ck_assert(gate->op == PLAN_MATMUL && multiply->op == PLAN_MULTIPLY && multiply->multiply.map == PLAN_MAP_SIGMOID);
    ck_assert(gate->src == qkv->src && multiply->src == gate->dst && multiply->dst == att->dst);
    ck_assert(att[3].op == PLAN_MATMUL && att[3].adds && att[3].src == att->dst);
    check_rows(p, qkv->w[0], H * HEAD, query_row);
    check_rows(p, gate->w[0], H * HEAD, gate_row);
    ck_assert((qkv->bias[0] != PLAN_NONE) == o->has_bias && (gate->bias[0] != PLAN_NONE) == o->has_bias);
    float q[H * HEAD], g[H * HEAD];
    for (uint32_t i = 0; o->has_bias && i < H * HEAD; i++) {
        row_source_encode(p->weights[qkv->bias[0]].source, 0, 1, q);
        row_source_encode(p->weights[gate->bias[0]].source, 0, 1, g);
        ck_assert(q[i] == (float)query_row(i) && g[i] == (float)gate_row(i));
    }
}

START_TEST(three_of_four_layers_are_linear)
{
    static const struct {
        const char *arch;
        unsigned char kinds[LAYERS];
        bool has_array, is_old, has_bias;
        uint32_t n_predicting;
    } cases[] = {
        {"qwen3next", {1, 1, 0, 1}, true, false, false, 0}, {"qwen3next", {1, 1, 0, 1}, true, true, true, 0},
        {"qwen3next", {1, 1, 1, 0}, false, true, false, 0}, {"qwen35", {1, 1, 1, 0}, false, false, false, 0},
        {"qwen35moe", {0, 1, 1, 0}, true, false, true, 2},
    };
    struct options o = good;
    o.arch = cases[_i].arch;
    memcpy(o.kinds, cases[_i].kinds, sizeof o.kinds);
    o.n_kinds = cases[_i].has_array ? LAYERS : 0;
    o.interval = 4;
    o.is_old = cases[_i].is_old;
    o.has_bias = cases[_i].has_bias;
    o.n_predicting = cases[_i].n_predicting;
    struct gguf *g = NULL;
    struct buf bytes;
    struct plan *p = NULL;
    struct err_info info = {0};
    ck_assert_msg(build(&o, &g, &bytes, &p, &info) == ERR_OK, "%s", info.text);
    int n_layers = LAYERS - (int)o.n_predicting, n_linear = 0, n_found[2] = {0, 0};
    ck_assert_int_eq((int)p->n_layers, n_layers);
    for (int32_t i = 0; i < n_layers; i++) {
        ck_assert_int_eq(plan_kv_of(p, i).layer, cases[_i].kinds[i] ? PLAN_NONE : i);
        n_linear += cases[_i].kinds[i];
    }
    const struct plan_delta *d = &p->delta;
    ck_assert(d->n_k_heads == HK && d->n_v_heads == HV && d->key_dim == DK && d->value_dim == DV);
    ck_assert(d->is_tiled == (strcmp(o.arch, "qwen3next") != 0));
    ck_assert_uint_eq(p->recurrent_floats, (uint64_t)n_linear * ((TAPS - 1) * MIXED + HV * DK * DV));
    for (int32_t i = 0; i < p->n_steps; i++) {
        if (p->steps[i].op == PLAN_DELTA) {
            check_linear(p, &p->steps[i], &o);
            n_found[0]++;
        } else if (p->steps[i].op == PLAN_ATTENTION) {
            check_attention(p, &p->steps[i], &o);
            n_found[1]++;
        }
    }
    ck_assert(n_found[0] == n_linear && n_found[1] == n_layers - n_linear);
    plan_free(&p);
    gguf_close(&g);
    buf_fini(&bytes);
}
END_TEST

/* One value of a good file that does not go with the others. */
static const struct {
    size_t field; /* of struct options, a uint32_t; 0: none */
    uint32_t value;
    const char *missing, *word;
    enum err err;
} bad_files[] = {
    {0, 0, "ssm.conv_kernel", "qwen3next.ssm.conv_kernel", ERR_BAD_HPARAM},
    {0, 0, "ssm.state_size", "qwen3next.ssm.state_size", ERR_BAD_HPARAM},
    {0, 0, "ssm.group_count", "qwen3next.ssm.group_count", ERR_BAD_HPARAM},
    {0, 0, "ssm.time_step_rank", "qwen3next.ssm.time_step_rank", ERR_BAD_HPARAM},
    {0, 0, "ssm.inner_size", "qwen3next.ssm.inner_size", ERR_BAD_HPARAM},
    {offsetof(struct options, taps), 1, NULL, "conv_kernel: expected 2 to 16, found 1", ERR_BAD_HPARAM},
    {offsetof(struct options, taps), 17, NULL, "conv_kernel: expected 2 to 16, found 17", ERR_BAD_HPARAM},
    {offsetof(struct options, taps), TAPS + 1, NULL, "blk.0.ssm_conv1d.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, state_size), 0, NULL, "state_size: expected 1 to 576, found 0", ERR_BAD_HPARAM},
    {offsetof(struct options, state_size), 577, NULL, "state_size: expected 1 to 576, found 577", ERR_BAD_HPARAM},
    {offsetof(struct options, state_size), DK + 1, NULL, "blk.0.attn_qkv.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, n_k), 0, NULL, "group_count: expected 1 to 1024, found 0", ERR_BAD_HPARAM},
    {offsetof(struct options, n_k), 3, NULL, "expected a multiple of ssm.group_count 3, found 4", ERR_BAD_HPARAM},
    {offsetof(struct options, n_k), 8, NULL, "expected a multiple of ssm.group_count 8, found 4", ERR_BAD_HPARAM},
    {offsetof(struct options, n_v), 1, NULL, "time_step_rank: expected 2 to 1024, found 1", ERR_BAD_HPARAM},
    {offsetof(struct options, n_v), 6, NULL, "a multiple of time_step_rank 6, at most 3456, found 40", ERR_BAD_HPARAM},
    {offsetof(struct options, n_v), HV / 2, NULL, "blk.0.ssm_beta.weight", ERR_BAD_TENSOR_SHAPE},
    {offsetof(struct options, inner), 577 * HV, NULL, "at most 2304, found 2308", ERR_BAD_HPARAM},
    {offsetof(struct options, inner), 0, NULL, "inner_size: expected 1 to", ERR_BAD_HPARAM},
    {offsetof(struct options, n_predicting), LAYERS, NULL, "nextn_predict_layers: expected 0 to 3", ERR_BAD_HPARAM},
    {offsetof(struct options, n_kinds), LAYERS - 1, NULL, "recurrent_layers: expected 4 elements", ERR_BAD_HPARAM},
    {offsetof(struct options, has_only_linear), 1, NULL, "expected a layer with attention among 4", ERR_BAD_HPARAM},
    {offsetof(struct options, is_encoder), 1, NULL, "attention.causal", ERR_BAD_HPARAM},
    {0, 0, "blk.0.attn_gate.weight", "blk.0.attn_gate.weight", ERR_MISSING_TENSOR},
    {0, 0, "blk.1.ssm_alpha.weight", "blk.1.ssm_alpha.weight", ERR_MISSING_TENSOR},
    {0, 0, "blk.2.attn_q.weight", "blk.2.attn_q.weight", ERR_MISSING_TENSOR},
    {0, 0, "blk.3.ssm_a", "blk.3.ssm_a", ERR_MISSING_TENSOR},
};

START_TEST(files_that_contradict_themselves_are_refused)
{
    struct options o = good;
    if (bad_files[_i].field != 0) {
        memcpy((char *)&o + bad_files[_i].field, &bad_files[_i].value, sizeof bad_files[_i].value);
    }
    o.missing = bad_files[_i].missing;
    memset(o.kinds, 1, o.has_only_linear ? LAYERS : 0);
    struct gguf *g = NULL;
    struct buf bytes;
    struct plan *p = NULL;
    struct err_info info = {0};
    enum err err = build(&o, &g, &bytes, &p, &info);
    ck_assert_msg(err == bad_files[_i].err && strstr(info.text, bad_files[_i].word) != NULL, "row %d: %s: %s", _i,
                  err_code(err), info.text);
    ck_assert_ptr_null(p);
    gguf_close(&g);
    buf_fini(&bytes);
}
END_TEST

/* --- folders ---------------------------------------------------------------------------------------------------- */

#define GOLDEN "tests/golden/models/"

/* The tensor's rows, whatever makes them. */
static unsigned char *rows_of(const struct gguf_tensor *t)
{
    unsigned char *out = mem_alloc((size_t)t->bytes, MEM_GENERAL);
    ck_assert_ptr_nonnull(out);
    row_source_encode(t->source, 0, (uint32_t)(t->dims[1] * t->dims[2]), out);
    return out;
}

/* The reference's converter made the GGUF file of the same folder; small tensors it widens to F32. */
START_TEST(a_folder_becomes_what_the_reference_makes_of_it)
{
    static const char *const names[] = {"qwen35-delta", "qwen35moe-delta", "qwen3next-delta"};
    char path[96];
    struct gguf *file, *folder;
    struct err_info info = {0};
    snprintf(path, sizeof path, GOLDEN "%s.gguf", names[_i]);
    ck_assert_msg(gguf_open(path, &file, &info) == ERR_OK, "%s", info.text);
    snprintf(path, sizeof path, GOLDEN "%s.hf", names[_i]);
    ck_assert_msg(model_open(path, &folder, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(gguf_n_tensors(file), gguf_n_tensors(folder));
    int n_same = 0;
    for (size_t i = 0; i < gguf_n_tensors(file); i++) {
        const struct gguf_tensor *want = gguf_tensor_at(file, i);
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)want->name.len, want->name.data);
        const struct gguf_tensor *found = gguf_find_tensor(folder, name);
        ck_assert_msg(found != NULL && memcmp(found->dims, want->dims, sizeof want->dims) == 0, "%s", name);
        if (found->type != want->type) {
            ck_assert_msg(want->type == DTYPE_F32, "%s", name);
            continue;
        }
        unsigned char *rows = rows_of(found);
        ck_assert_msg(found->bytes == want->bytes && memcmp(rows, want->data, (size_t)want->bytes) == 0, "%s", name);
        mem_free(rows);
        n_same++;
    }
    ck_assert_int_ge(n_same, (int)gguf_n_tensors(file) - 5); /* all but routers */
    const struct gguf_kv *kv;
    if (_i < 2) {
        snprintf(path, sizeof path, "%.*s.rope.dimension_sections", (int)strcspn(names[_i], "-"), names[_i]);
        ck_assert_int_eq(gguf_get_array(folder, path, GGUF_I32, &kv, &info), ERR_OK);
        ck_assert(kv->n == 4 && gguf_elem_i64(kv, 0) == 11 && gguf_elem_i64(kv, 2) == 10 && gguf_elem_i64(kv, 3) == 0);
    }
    gguf_close(&folder);
    gguf_close(&file);
}
END_TEST

/* A member of config.json of a golden folder that is another (NULL: none). */
static const struct {
    const char *model, *key, *value, *word;
    enum err err;
} bad_folders[] = {
    {"qwen35-delta", "linear_num_value_heads", NULL, "linear_num_value_heads", ERR_BAD_CONFIG},
    {"qwen35-delta", "linear_num_value_heads", "0", "linear_num_value_heads", ERR_BAD_CONFIG},
    {"qwen35-delta", "linear_num_value_heads", "3",
     "config.json: linear_num_value_heads: expected a multiple of linear_num_key_heads 2, found 3", ERR_BAD_HPARAM},
    {"qwen35-delta", "linear_num_value_heads", "8", "model.layers.0.linear_attn.in_proj_qkv.weight: expected [",
     ERR_BAD_TENSOR_SHAPE},
    {"qwen35-delta", "linear_num_key_heads", "4096", "linear_num_key_heads", ERR_BAD_CONFIG},
    {"qwen35-delta", "linear_key_head_dim", "13", "model.layers.0.linear_attn.in_proj_qkv.weight: expected [",
     ERR_BAD_TENSOR_SHAPE},
    {"qwen35-delta", "linear_value_head_dim", "\"8\"", "linear_value_head_dim", ERR_BAD_CONFIG},
    {"qwen35-delta", "linear_conv_kernel_dim", "3", "model.layers.0.linear_attn.conv1d.weight", ERR_BAD_TENSOR_SHAPE},
    {"qwen35-delta", "layer_types", "[\"linear_attention\"]", "layer_types", ERR_BAD_CONFIG},
    {"qwen35-delta", "layer_types", "[1,2,3,4,5]", "layer_types[0]", ERR_BAD_CONFIG},
    {"qwen35-delta", "layer_types", NULL, "model.layers.2.linear_attn.in_proj_qkvz.weight", ERR_MISSING_TENSOR},
    {"qwen35-delta", "head_dim", "24", "model.layers.2.self_attn.q_proj.weight: expected [192, 48], found [128, 48]",
     ERR_BAD_TENSOR_SHAPE},
    {"qwen35-delta", "rope_parameters", "{\"mrope_section\":[1,2,3,4,5]}", "mrope_section", ERR_BAD_CONFIG},
    {"qwen35-delta", "rope_parameters", "{\"mrope_section\":[-1]}", "mrope_section", ERR_BAD_CONFIG},
    {"qwen35moe-delta", "num_experts", "6", "num_experts: expected 5, the rows of the router, found 6", ERR_BAD_CONFIG},
    {"qwen3next-delta", "linear_num_value_heads", "6", "model.layers.0.linear_attn.in_proj_qkvz", ERR_BAD_TENSOR_SHAPE},
    {"qwen3next-delta", "linear_num_key_heads", "4", "model.layers.0.linear_attn.in_proj_qkvz", ERR_BAD_TENSOR_SHAPE},
    {"qwen3next-delta", "decoder_sparse_step", "2", "decoder_sparse_step: expected 1, experts in every layer, found 2",
     ERR_BAD_CONFIG},
    {"qwen3next-delta", "mlp_only_layers", "[0, 2]",
     "mlp_only_layers: expected an empty array, experts in every layer, found an array of 2", ERR_BAD_CONFIG},
    {"qwen3next-delta", "mlp_only_layers", "0", "mlp_only_layers: expected an empty array", ERR_BAD_CONFIG},
    {"qwen3moe-norms", "decoder_sparse_step", "0", "decoder_sparse_step: expected 1", ERR_BAD_CONFIG},
    {"qwen3moe-norms", "mlp_only_layers", "[1]", "mlp_only_layers: expected an empty array", ERR_BAD_CONFIG},
    {"qwen2moe-shared", "mlp_only_layers", "[1]", "mlp_only_layers: expected an empty array", ERR_BAD_CONFIG},
    {"quant-gptq-delta", "linear_value_head_dim", "16", "model.layers.0.linear_attn.in_proj_qkvz",
     ERR_BAD_TENSOR_SHAPE},
};

START_TEST(folders_that_contradict_themselves_are_refused)
{
    struct gguf *g = NULL;
    struct plan *p = NULL;
    struct err_info info = {0};
    const char *folder = golden_folder(bad_folders[_i].model, bad_folders[_i].key, bad_folders[_i].value);
    enum err err = model_open(folder, &g, &info);
    err = err != ERR_OK ? err : model_build(g, 0, &p, &info);
    const char *word = bad_folders[_i].word;
    ck_assert_msg(err == bad_folders[_i].err && strstr(info.text, word) != NULL, "row %d: %s: %s", _i, err_code(err),
                  info.text);
    ck_assert_ptr_null(p);
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* Rows with a quarter of each head turning where config.json does not say. */
START_TEST(a_quarter_of_a_head_turns_by_itself)
{
    struct gguf *g = NULL;
    struct plan *p = NULL;
    struct err_info info = {0};
    const char *folder = golden_folder("qwen3next-delta", "rope_parameters", NULL);
    ck_assert_msg(model_open(folder, &g, &info) == ERR_OK && model_build(g, 0, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(p->ropes[0].n_rot, 16 / 4);
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

START_TEST(memory_that_runs_out_is_said_and_given_back)
{
    static const char *const models[] = {GOLDEN "qwen3next-delta.hf", GOLDEN "qwen35-delta.hf",
                                         GOLDEN "qwen3next-delta.gguf"};
    golden_memory_runs_out(models[_i]);
}
END_TEST

Suite *qwen3next_suite(void)
{
    Suite *s = suite_create("qwen3next");
    TCase *c = tcase_create("qwen3next");
    tcase_add_loop_test(c, three_of_four_layers_are_linear, 0, 5);
    tcase_add_loop_test(c, files_that_contradict_themselves_are_refused, 0, (int)ARRAY_LEN(bad_files));
    tcase_add_loop_test(c, a_folder_becomes_what_the_reference_makes_of_it, 0, 3);
    tcase_add_loop_test(c, folders_that_contradict_themselves_are_refused, 0, (int)ARRAY_LEN(bad_folders));
    tcase_add_test(c, a_quarter_of_a_head_turns_by_itself);
    tcase_add_loop_test(c, memory_that_runs_out_is_said_and_given_back, 0, 3);
    suite_add_tcase(s, c);
    return s;
}
