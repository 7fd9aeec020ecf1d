/* Qwen1.5-MoE and Qwen2-MoE [Qwen Team 2024, "Qwen2 Technical Report", 2.2.2]: Qwen2's decoder with experts and a gated
 * shared expert as feed-forward blocks. Keys: llama.cpp b11434, src/models/qwen2moe.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    struct blocks_moe moe = {.gating = 1, .gates_shared = true, .n_shared = 1};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

static const struct hf_key hf_qwen2moe_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_qwen2moe_names[] = {
    {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight", HF_FLAT},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_qwen2moe = {
    .architectures = {"Qwen2MoeForCausalLM"},
    .arch = "qwen2moe",
    .keys = hf_qwen2moe_keys,
    .names = hf_qwen2moe_names,
    .fixed = blocks_no_window,
    .finish = hf_check_sparse,
};

const struct model_family model_qwen2moe = {
    .members = "Qwen1.5-MoE, Qwen2-MoE",
    .arch = "qwen2moe",
    .hf = {&hf_qwen2moe},
    .build = build,
};
