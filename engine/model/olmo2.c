/* OLMo 2 [OLMo Team 2024, "2 OLMo 2 Furious", 2] and OLMo 3: Llama's decoder with norms after the blocks instead of
 * before them, and one norm over all heads of Q, and of K. OLMo 3 has three local layers per global one, and stretches
 * only the RoPE of global layers. Keys: llama.cpp b11434, src/models/olmo2.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

enum { GLOBAL_EVERY = 4 };

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->has_pre_norms = false;
    s->has_post_norms = true;
    s->head_norm = BLOCKS_NORM_WIDE;
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    return blocks_build_decoder(b);
}

static const struct hf_name hf_olmo2_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_olmo2 = {
    .architectures = {"Olmo2ForCausalLM"},
    .arch = "olmo2",
    .names = hf_olmo2_names,
};

static const struct hf_family hf_olmo3 = {
    .architectures = {"Olmo3ForCausalLM"},
    .arch = "olmo2",
    .keys = blocks_window_keys,
    .names = hf_olmo2_names,
    .window = 4096,
};

const struct model_family model_olmo2 = {
    .members = "OLMo 2, OLMo 3",
    .arch = "olmo2",
    .hf = {&hf_olmo2, &hf_olmo3},
    .build = build,
};
