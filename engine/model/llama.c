/* The Llama family: pre-norm decoder with RMSNorm, SwiGLU and RoPE on interleaved pairs (converters permute the rows of
 * Q and K for that). Llama 3's RoPE scaling comes as factors in rope_freqs.weight. Mistral 7B belongs to the family;
 * Mixtral has experts as feed-forward blocks [Jiang 2024]. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.local_is_scaled = true;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* Mistral 7B v0.1: all layers are local */
    if (b->plan->moe.n_experts != 0) {
        struct blocks_moe moe = {.gating = 1, .norms_weights = true, .n_ff = b->h.n_ff};
        TRY(blocks_read_moe(b, &moe));
    }
    return blocks_build_decoder(b);
}

static const struct hf_family hf_llama = {
    .architectures = {"LlamaForCausalLM"},
    .arch = "llama",
};

static const struct hf_family hf_mistral = {
    .architectures = {"MistralForCausalLM"},
    .arch = "llama",
    .defaults = "{\"sliding_window\": 4096}", /* transformers 5, MistralConfig; null: no window */
    .keys = blocks_window_keys,
};

static const struct hf_key hf_mixtral_keys[] = {
    {"sliding_window", "attention.sliding_window", HF_U32},       {"intermediate_size", "feed_forward_length", HF_U32},
    {"intermediate_size", "expert_feed_forward_length", HF_WORD}, {"num_local_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},         {NULL, NULL, HF_U32},
};

static const struct hf_name hf_mixtral_names[] = {
    {"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_mixtral = {
    .architectures = {"MixtralForCausalLM"},
    .arch = "llama",
    .keys = hf_mixtral_keys,
    .names = hf_mixtral_names,
};

const struct model_family model_llama = {
    .members = "Llama 2, Llama 3, Llama 3.1, Llama 3.2, TinyLlama, SmolLM, SmolLM2, Mistral 7B, Mistral Nemo, Mixtral",
    .arch = "llama",
    .hf = {&hf_llama, &hf_mistral, &hf_mixtral},
    .build = build,
};
