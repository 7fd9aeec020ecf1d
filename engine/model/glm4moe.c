/* GLM-4.5 [GLM-4.5 Team 2025, 2.1]: Llama's decoder with RoPE on a part of each head, biases, norms of the heads of Q
 * and K in the larger size, and experts picked by sigmoids after some dense layers. Keys: llama.cpp b11434, src/models/glm4-moe.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->ffn_norm = "blk.%d.post_attention_norm.weight";
    TRY(blocks_read_predicting(b));
    s->head_norm = blocks_rows_of(b, "blk.0.attn_q_norm.weight") != 0 ? BLOCKS_NORM_EACH : BLOCKS_NO_HEAD_NORM;
    struct blocks_moe moe = {.gating = 2, .norms_weights = true, .n_shared = 1};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

static const struct hf_name hf_glm4moe_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* The tensors show whether heads have norms, which must agree with config.json. */
static enum err finish(struct hf *h)
{
    static const char key[] = "use_qk_norm";
    const json_t *v = json_read_get(h->config, key);
    bool has_norms = gguf_build_find(&h->b, "blk.0.attn_q_norm.weight") != NULL;
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), 2); /* sigmoids */
    return v == NULL || json_is_true(v) == has_norms
               ? ERR_OK
               : hf_bad_value(h, key,
                              has_norms ? "true, as there is q_norm.weight" : "false, as there is no q_norm.weight", v);
}

static const struct hf_fixed hf_glm4moe_fixed[] = {
    {"scoring_func", "sigmoid"},
    {"topk_method", "noaux_tc"},
    {NULL, NULL},
};

static const struct hf_family hf_glm4moe = {
    .architectures = {"Glm4MoeForCausalLM"},
    .arch = "glm4moe",
    .predicts = true,
    .defaults = "{\"num_nextn_predict_layers\": 1}", /* transformers 5, Glm4MoeConfig */
    .keys = blocks_sigmoid_keys,
    .names = hf_glm4moe_names,
    .fixed = hf_glm4moe_fixed,
    .finish = finish,
};

const struct model_family model_glm4moe = {
    .members = "GLM-4.5, GLM-4.5-Air, GLM-4.6",
    .arch = "glm4moe",
    .hf = {&hf_glm4moe},
    .build = build,
};
