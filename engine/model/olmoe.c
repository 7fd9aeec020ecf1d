/* OLMoE [Muennighoff 2024, "OLMoE: Open Mixture-of-Experts Language Models", 2]: Llama's decoder with one norm over all
 * heads of Q, and of K, and experts picked by a softmax. Keys: llama.cpp b11434, src/models/olmoe.cpp and
 * conversion/olmo.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.head_norm = BLOCKS_NORM_WIDE;
    struct blocks_moe moe = {.gating = 1, .n_ff = b->h.n_ff};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

static const struct hf_key hf_olmoe_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_olmoe_fixed[] = {
    {"clip_qkv", "none"},
    {NULL, NULL},
};

static const struct hf_family hf_olmoe = {
    .architectures = {"OlmoeForCausalLM"},
    .arch = "olmoe",
    .defaults = "{\"rms_norm_eps\": 1e-5}", /* transformers 5.23, OlmoeConfig */
    .keys = hf_olmoe_keys,
    .fixed = hf_olmoe_fixed,
};

const struct model_family model_olmoe = {
    .members = "OLMoE 1B-7B",
    .arch = "olmoe",
    .hf = {&hf_olmoe},
    .build = build,
};
