/* Seed-OSS: Llama's decoder with biases on Q, K and V, RoPE on half-split pairs, and another name of the norm before the
 * feed-forward block. Keys: llama.cpp b11434, src/models/seed-oss.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.ffn_norm = "blk.%d.post_attention_norm.weight";
    return blocks_build_decoder(b);
}

static const struct hf_name hf_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_seed_oss = {
    .architectures = {"SeedOssForCausalLM"},
    .arch = "seed_oss",
    .names = hf_names,
};

const struct model_family model_seed_oss = {
    .members = "Seed-OSS 36B",
    .arch = "seed_oss",
    .hf = {&hf_seed_oss},
    .build = build,
};
