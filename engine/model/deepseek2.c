/* DeepSeek-V2 and V3 [DeepSeek-AI 2024, "DeepSeek-V2"; "DeepSeek-V3 Technical Report"] and models of their structure:
 * Llama's decoder with latent attention, and routed and shared experts after some dense layers. V2 picks experts by a
 * softmax, from the groups with the best expert; V3 by sigmoids with a bias, from the groups with the best two.
 * Keys: llama.cpp b11434, src/models/deepseek2.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <string.h>

enum { GLM_LITE_VOCAB = 154880 };

static enum err build(struct blocks *b)
{
    b->is_latent = true;
    TRY(blocks_read_hparams(b));
    TRY(blocks_read_latent_scale(b));
    struct blocks_style *s = &b->style;
    TRY(blocks_read_predicting(b));
    TRY(blocks_get_f32(b, "attention.temperature_scale", 0.0, 1e3, 0.0, &s->query_beta)); /* Mistral Large 3 */
    TRY(blocks_get_u32(b, "attention.temperature_length", 1, UINT32_MAX / 2, b->h.n_ctx_train, &s->query_period));
    if (b->plan->moe.n_experts == 0) {
        return blocks_build_decoder(b);
    }
    /* The first files of GLM-4.7-Flash lack the key for picking by sigmoids. */
    bool is_glm = b->h.n_vocab == GLM_LITE_VOCAB && (b->h.n_layers == 47 || b->h.n_layers == 48);
    struct blocks_moe moe = {.gating = is_glm ? 2 : 1};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_deepseek_keys[] = {
    {"head_dim", NULL, HF_U32}, /* of the part with RoPE, in transformers' key */
    {"kv_lora_rank", "attention.kv_lora_rank", HF_U32},
    {"q_lora_rank", "attention.q_lora_rank", HF_U32},
    {"v_head_dim", "attention.value_length_mla", HF_U32},
    {"n_routed_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"n_shared_experts", "expert_shared_count", HF_U32},
    {"first_k_dense_replace", "leading_dense_block_count", HF_U32},
    {"n_group", "expert_group_count", HF_WORD},
    {"topk_group", "expert_group_used_count", HF_WORD},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_deepseek_names[] = {
    {"model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight", HF_SAME},
    {"model.layers.{}.self_attn.q_a_proj.bias", "blk.{}.attn_q_a.bias", HF_SAME},
    {"model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight", HF_SAME},
    {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight", HF_SAME},
    {"model.layers.{}.self_attn.kv_a_proj_with_mqa.bias", "blk.{}.attn_kv_a_mqa.bias", HF_SAME},
    {"model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_kv_b.weight", HF_UNPACKED},
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_v2_fixed[] = {
    {"scoring_func", "softmax"},
    {"topk_method", "greedy or group_limited_greedy"},
    {"moe_layer_freq", "1"},
    {NULL, NULL},
};

static const struct hf_fixed hf_v3_fixed[] = {
    {"scoring_func", "sigmoid"},
    {"topk_method", "noaux_tc"},
    {"moe_layer_freq", "1"},
    {NULL, NULL},
};

static void put_u32(struct hf *h, const char *key, uint32_t v) { gguf_build_u32(&h->b, hf_key(h, key), v); }

/* Adds values that need more than a name: the width of a whole key; groups of experts, whether or not they are used. */
static enum err finish(struct hf *h, uint32_t gating, bool has_groups)
{
    uint32_t nope, rope, n_groups, n_used;
    TRY(hf_get_u32(h, "qk_nope_head_dim", 1, 1 << 16, UINT64_MAX, &nope));
    TRY(hf_get_u32(h, "qk_rope_head_dim", 1, 1 << 16, UINT64_MAX, &rope));
    put_u32(h, "attention.key_length_mla", nope + rope);
    put_u32(h, "expert_gating_func", gating);
    TRY(hf_get_u32(h, "n_group", 0, UINT32_MAX, 1, &n_groups));
    TRY(hf_get_u32(h, "topk_group", 0, UINT32_MAX, n_groups, &n_used));
    put_u32(h, "expert_group_count", has_groups ? n_groups : 1);
    put_u32(h, "expert_group_used_count", has_groups ? n_used : 1);
    return ERR_OK;
}

static enum err finish_v2(struct hf *h)
{
    const char *method = json_string_value(json_read_get(h->config, "topk_method"));
    return finish(h, 1, method != NULL && strcmp(method, "group_limited_greedy") == 0);
}

static enum err finish_v3(struct hf *h) { return finish(h, 2, true); }

static const struct hf_family hf_v2 = {
    .architectures = {"DeepseekV2ForCausalLM"},
    .arch = "deepseek2",
    .keys = hf_deepseek_keys,
    .names = hf_deepseek_names,
    .fixed = hf_v2_fixed,
    .has_rope_pairs = true,
    .finish = finish_v2,
};

static const struct hf_family hf_v3 = {
    .architectures = {"DeepseekV3ForCausalLM"},
    .arch = "deepseek2",
    .defaults = "{\"num_nextn_predict_layers\": 1}", /* transformers 5, DeepseekV3Config */
    .keys = hf_deepseek_keys,
    .names = hf_deepseek_names,
    .fixed = hf_v3_fixed,
    .has_rope_pairs = true,
    .finish = finish_v3,
};

const struct model_family model_deepseek2 = {
    .members = "DeepSeek-V2, DeepSeek-V3, DeepSeek-R1, Kimi-K2, GLM-4.7-Flash",
    .arch = "deepseek2",
    .hf = {&hf_v2, &hf_v3},
    .build = build,
};
