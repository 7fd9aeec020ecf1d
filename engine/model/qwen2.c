/* Qwen2 and Qwen2.5: Llama's decoder with biases on Q, K and V and RoPE on half-split pairs. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.local_is_scaled = true;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* for folders with use_sliding_window */
    return blocks_build_decoder(b);
}

static const struct hf_family hf_qwen2 = {
    .architectures = {"Qwen2ForCausalLM"},
    .arch = "qwen2",
    .finish = hf_add_optional_window,
};

const struct model_family model_qwen2 = {
    .members = "Qwen2, Qwen2.5, Qwen2.5-Coder",
    .arch = "qwen2",
    .hf = {&hf_qwen2},
    .build = build,
};
