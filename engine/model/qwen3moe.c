/* Qwen3-MoE [Qwen Team 2025, "Qwen3 Technical Report", 2]: Qwen3's decoder with experts as feed-forward blocks, without
 * a shared one. Keys: llama.cpp b11434, src/models/qwen3moe.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    struct blocks_moe moe = {.gating = 1, .norms_weights = true};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

static const struct hf_key hf_qwen3moe_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {NULL, NULL, HF_U32},
};

static const struct hf_family hf_qwen3moe = {
    .architectures = {"Qwen3MoeForCausalLM"},
    .arch = "qwen3moe",
    .keys = hf_qwen3moe_keys,
    .fixed = blocks_no_window,
    .finish = hf_check_sparse,
};

const struct model_family model_qwen3moe = {
    .members = "Qwen3 30B-A3B, 235B-A22B, Qwen3-Coder",
    .arch = "qwen3moe",
    .hf = {&hf_qwen3moe},
    .build = build,
};
