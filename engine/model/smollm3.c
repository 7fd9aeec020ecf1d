/* SmolLM3: Llama's decoder; every fourth layer has no positions [NoPE; Yang 2025, "RoPE to NoPE and Back Again"]. GGUF
 * files do not say which layers [llama.cpp b11434, src/models/smollm3.cpp]. For a folder with another pattern,
 * attention.rope_pattern is true for each layer with RoPE. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

enum { NOPE_EVERY = 4 };

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    TRY(blocks_read_nope(b, NOPE_EVERY));
    return blocks_build_decoder(b);
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers;
    unsigned char has_rope[PLAN_MAX_LAYERS];
    TRY(hf_get_rope_layers(h, NOPE_EVERY, &n_layers, has_rope));
    hf_add_pattern(h, "attention.rope_pattern", n_layers, has_rope, NOPE_EVERY);
    return ERR_OK;
}

static const struct hf_family hf_smollm3 = {
    .architectures = {"SmolLM3ForCausalLM"},
    .arch = "smollm3",
    .fixed = blocks_no_window,
    .finish = finish,
};

const struct model_family model_smollm3 = {
    .members = "SmolLM3",
    .arch = "smollm3",
    .hf = {&hf_smollm3},
    .build = build,
};
