/* Phi-3 and Phi-4 [Abdin 2024, "Phi-3 Technical Report", 2]: Llama's decoder with Q, K and V in one tensor, gate and up
 * in another, LongRoPE if the context was stretched, and in some sizes a window in every layer. Keys: llama.cpp b11434,
 * src/models/phi3.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->local_is_scaled = true;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS)); /* all layers are local */
    return blocks_build_decoder(b);
}

static const struct hf_family hf_phi3 = {
    .architectures = {"Phi3ForCausalLM"},
    .arch = "phi3",
    .keys = blocks_window_keys,
};

const struct model_family model_phi3 = {
    .members = "Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4 mini",
    .arch = "phi3",
    .hf = {&hf_phi3},
    .build = build,
};
