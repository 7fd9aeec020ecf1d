/* Qwen3 [Qwen Team 2025, "Qwen3 Technical Report", 2]: Qwen2 without its biases and with norms of the heads of Q and K.
 * Keys: llama.cpp b11434, src/models/qwen3.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->local_is_scaled = true;
    s->head_norm = BLOCKS_NORM_EACH;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* for folders with use_sliding_window */
    return blocks_build_decoder(b);
}

static const struct hf_name hf_names[] = {
    {"score.weight", "cls.output.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_qwen3 = {
    .architectures = {"Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification"},
    .arch = "qwen3",
    .names = hf_names,
    .finish = hf_add_optional_window,
};

const struct model_family model_qwen3 = {
    .members = "Qwen3 0.6B, 1.7B, 4B, 8B, 14B, 32B",
    .arch = "qwen3",
    .hf = {&hf_qwen3},
    .build = build,
};
