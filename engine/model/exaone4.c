/* EXAONE 4.0 [LG AI Research 2025, "EXAONE 4.0"]: Llama's decoder with norms after the blocks instead of before them, and
 * norms of the heads of Q and K. The 32B size has three local layers per global one, and no RoPE in global layers. Keys:
 * llama.cpp b11434, src/models/exaone4.cpp and conversion/exaone.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

enum {
    GLOBAL_EVERY = 4,
    LAYERS_32B = 64, /* whose first files do not say that it has windows */
    WINDOW_32B = 4096,
};

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    b->may_predict = false; /* files of EXAONE 4.5 have a prediction head that no program runs */
    TRY(blocks_read_predicting(b));
    s->is_neox = true;
    s->has_pre_norms = false;
    s->has_post_norms = true;
    s->head_norm = BLOCKS_NORM_EACH;
    s->local_is_scaled = true;
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_read_windows(b, b->h.n_layers == LAYERS_32B ? WINDOW_32B : 0, GLOBAL_EVERY));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        s->is_nope[i] = s->window != 0 && !s->is_local[i];
    }
    return blocks_build_decoder(b);
}

static const struct hf_name hf_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_fixed[] = {
    {"sliding_window_pattern", "4 or LLLG or 0"}, /* of folders without layer_types */
    {NULL, NULL},
};

static const struct hf_family hf_exaone4 = {
    .architectures = {"Exaone4ForCausalLM"},
    .arch = "exaone4",
    .keys = blocks_window_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .window = WINDOW_32B,
};

const struct model_family model_exaone4 = {
    .members = "EXAONE 4.0 1.2B, 32B",
    .arch = "exaone4",
    .hf = {&hf_exaone4},
    .build = build,
};
