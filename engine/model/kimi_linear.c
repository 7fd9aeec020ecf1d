/* Kimi Linear [Kimi Team 2025, "Kimi Linear"]: DeepSeek-V3's decoder without positions. Three of four layers have Kimi
 * Delta Attention instead of latent attention. Keys: llama.cpp b11434, src/models/kimi-linear.cpp and
 * conversion/kimi_linear.py. Formulas: Hugging Face transformers 5.23, modeling_kimi_linear.py. */
#include "engine/model/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SIGMOID = 2 }; /* expert_gating_func */

static enum err build(struct blocks *b)
{
    b->is_latent = b->lacks_rope = b->may_skip_attention = true;
    TRY(blocks_read_hparams(b));
    b->style.attn_scale = (float)(1 / sqrt(b->h.key_dim));
    TRY(blocks_read_kda(b));
    if (b->plan->moe.n_experts != 0) {
        struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true};
        TRY(blocks_read_moe(b, &moe));
    }
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const char linear_key[] = "linear_attn_config";

/* Adds members of linear_attn_config under the names that transformers 5 gives them. */
static enum err prepare(struct hf *h)
{
    static const char *const names[][2] = {{"head_dim", "linear_head_dim"},
                                           {"num_heads", "linear_num_heads"},
                                           {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
    json_t *config = (json_t *)h->config; /* the reader owns the tree */
    const json_t *linear = json_read_get(config, linear_key);
    if (linear != NULL && !json_is_object(linear)) {
        return hf_bad_value(h, linear_key, "an object", linear);
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *v = json_object_get(linear, names[i][0]);
        if (v != NULL && json_object_set(config, names[i][1], v) != 0) {
            return err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
        }
    }
    return ERR_OK;
}

/* Sets kv[layer - 1] for each layer that a list of linear_attn_config has, which must be PLAN_MAX_HEADS before. */
static enum err mark_layers(const struct hf *h, const char *list, uint32_t n_layers, uint32_t is, uint32_t *kv)
{
    const json_t *layers = json_read_get(json_read_get(h->config, linear_key), list);
    if (!json_is_array(layers)) {
        return hf_bad(h, linear_key, "expected an array %s, found none", list);
    }
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *v = json_array_get(layers, i);
        json_int_t layer = json_is_integer(v) ? json_integer_value(v) : 0;
        if (layer < 1 || layer > (json_int_t)n_layers || kv[layer - 1] != PLAN_MAX_HEADS) {
            return hf_bad(h, linear_key,
                          "expected other layers from 1 to %" PRIu32 " in %s, found %" JSON_INTEGER_FORMAT, n_layers,
                          list, layer);
        }
        kv[layer - 1] = is;
    }
    return ERR_OK;
}

/* Reads the KV heads of layers from the two lists of linear_attn_config. */
static enum err read_lists(const struct hf *h, uint32_t n_layers, uint32_t *kv)
{
    for (uint32_t i = 0; i < n_layers; i++) {
        kv[i] = PLAN_MAX_HEADS;
    }
    TRY(mark_layers(h, "full_attn_layers", n_layers, 1, kv));
    TRY(mark_layers(h, "kda_layers", n_layers, 0, kv));
    for (uint32_t i = 0; i < n_layers; i++) {
        if (kv[i] == PLAN_MAX_HEADS) {
            return hf_bad(h, linear_key,
                          "expected layer %" PRIu32 " in kda_layers or full_attn_layers, found it in none", i + 1);
        }
    }
    return ERR_OK;
}

/* Reads the KV heads of layers from layer_types. */
static enum err read_types(const struct hf *h, uint32_t n_layers, uint32_t *kv)
{
    static const char key[] = "layer_types";
    const json_t *types = json_read_get(h->config, key);
    if (json_array_size(types) != n_layers) {
        return hf_bad(h, key, "expected an array of %" PRIu32 " elements, one a layer, found %zu", n_layers,
                      json_array_size(types));
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        const json_t *v = json_array_get(types, i);
        kv[i] = json_read_is(v, "full_attention");
        if (!kv[i] && !json_read_is(v, "linear_attention")) {
            return hf_bad_value(h, key, "linear_attention and full_attention", v);
        }
    }
    return ERR_OK;
}

/* The heads of both kinds of layers are one number in GGUF files, and a head of linear attention has one width. */
static enum err add_linear(struct hf *h)
{
    uint32_t n_layers, n_heads, n_linear, kv[PLAN_MAX_LAYERS];
    bool has_lists = json_read_get(json_read_get(h->config, linear_key), "full_attn_layers") != NULL;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "linear_num_heads", 1, PLAN_MAX_HEADS, n_heads, &n_linear));
    if (n_linear != n_heads) {
        bool is_nested = json_read_get(json_read_get(h->config, linear_key), "num_heads") != NULL;
        return hf_bad(h, is_nested ? "linear_attn_config.num_heads" : "linear_num_heads",
                      "expected num_attention_heads %" PRIu32 ", found %" PRIu32, n_heads, n_linear);
    }
    TRY(has_lists ? read_lists(h, n_layers, kv) : read_types(h, n_layers, kv));
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, n_layers, kv);
    return ERR_OK;
}

/* GGUF files of llama.cpp's converter know one group. */
static enum err add_experts(struct hf *h)
{
    uint32_t n_dense, n_groups, n_used;
    TRY(hf_get_u32(h, "n_group", 1, PLAN_MAX_EXPERTS, 1, &n_groups));
    TRY(hf_get_u32(h, "topk_group", 1, n_groups, 1, &n_used));
    TRY(hf_get_u32(h, "first_k_dense_replace", 0, PLAN_MAX_LAYERS, 1, &n_dense));
    TRY(hf_get_dense(h, n_dense, &n_dense));
    if (n_groups != 1) {
        gguf_build_u32(&h->b, hf_key(h, "expert_group_count"), n_groups);
        gguf_build_u32(&h->b, hf_key(h, "expert_group_used_count"), n_used);
    }
    gguf_build_u32(&h->b, hf_key(h, "leading_dense_block_count"), n_dense);
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    uint32_t nope, rope;
    TRY(hf_get_u32(h, "qk_nope_head_dim", 1, 1 << 16, UINT64_MAX, &nope));
    TRY(hf_get_u32(h, "qk_rope_head_dim", 1, 1 << 16, UINT64_MAX, &rope));
    gguf_build_u32(&h->b, hf_key(h, "attention.key_length_mla"), nope + rope);
    TRY(add_linear(h));
    TRY(add_experts(h));
    blocks_shape_ssm(h, 1);
    return ERR_OK;
}

static const struct hf_alias hf_aliases[] = {
    {"max_position_embeddings", "model_max_length"},
    {"num_experts_per_tok", "num_experts_per_token"},
    {"n_shared_experts", "num_shared_experts"},
    {"norm_topk_prob", "moe_renormalize"},
    {"n_group", "num_expert_group"},
    {NULL, NULL},
};

static const struct hf_key hf_keys[] = {
    {"head_dim", NULL, HF_U32}, /* of neither kind of layers */
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"kv_lora_rank", "attention.kv_lora_rank", HF_U32},
    {"q_lora_rank", "attention.q_lora_rank", HF_U32},
    {"v_head_dim", "attention.value_length_mla", HF_U32},
    {"linear_head_dim", "kda.head_dim", HF_U32},
    {"linear_conv_kernel_dim", "ssm.conv_kernel", HF_U32},
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"n_shared_experts", "expert_shared_count", HF_U32},
    {"first_k_dense_replace", "leading_dense_block_count", HF_WORD},
    {"n_group", "expert_group_count", HF_WORD},
    {"topk_group", "expert_group_used_count", HF_WORD},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {NULL, NULL, HF_U32},
};

#define ATTENTION "model.layers.{}.self_attn."
#define EXPERTS   "model.layers.{}.block_sparse_moe."

static const struct hf_name hf_names[] = {
    BLOCKS_LATENT_NAMES,
    {ATTENTION "q_conv1d.weight", "blk.{}.ssm_conv1d_q.weight", HF_AS_F32},
    {ATTENTION "k_conv1d.weight", "blk.{}.ssm_conv1d_k.weight", HF_AS_F32},
    {ATTENTION "v_conv1d.weight", "blk.{}.ssm_conv1d_v.weight", HF_AS_F32},
    {ATTENTION "f_a_proj.weight", "blk.{}.ssm_f_a.weight", HF_SAME},
    {ATTENTION "f_b_proj.weight", "blk.{}.ssm_f_b.weight", HF_SAME},
    {ATTENTION "g_a_proj.weight", "blk.{}.ssm_g_a.weight", HF_SAME},
    {ATTENTION "g_b_proj.weight", "blk.{}.ssm_g_b.weight", HF_SAME},
    {ATTENTION "b_proj.weight", "blk.{}.ssm_beta.weight", HF_SAME},
    {ATTENTION "A_log", "blk.{}.ssm_a", HF_FLAT_MINUS_EXP},
    {ATTENTION "dt_bias", "blk.{}.ssm_dt.bias", HF_SAME},
    {ATTENTION "o_norm.weight", "blk.{}.ssm_norm.weight", HF_SAME},
    {EXPERTS "gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {EXPERTS "gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {EXPERTS "experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {EXPERTS "experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {EXPERTS "experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {EXPERTS "shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {EXPERTS "shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {EXPERTS "shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {EXPERTS "gate_proj.weight", "blk.{}.ffn_gate.weight", HF_SAME}, /* as transformers 5.23 saves dense layers */
    {EXPERTS "up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {EXPERTS "down_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_fixed[] = {
    {"mla_use_nope", "true"},    {"moe_router_activation_func", "sigmoid"},
    {"moe_layer_freq", "1"},     {"num_nextn_predict_layers", "0"},
    {"attention_bias", "false"}, {NULL, NULL},
};

static const struct hf_family hf_kimi_linear = {
    .architectures = {"KimiLinearForCausalLM"},
    .arch = "kimi-linear",
    .aliases = hf_aliases,
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .prepare = prepare,
    .has_rope_pairs = true, /* none is rotated: rows stay as they are */
    .has_layer_types = true,
    .finish = finish,
};

const struct model_family model_kimi_linear = {
    .members = "Kimi Linear 48B-A3B",
    .arch = "kimi-linear",
    .hf = {&hf_kimi_linear},
    .build = build,
};
