/* SmolLM3: Llama's decoder in which every fourth layer knows no positions [NoPE; Yang 2025, "RoPE to NoPE and Back
 * Again"]. Files do not say which layers: llama.cpp b11434, src/models/smollm3.cpp. */
#include "engine/model/blocks.h"
#include "engine/model/hf.h"

enum { NOPE_EVERY = 4 };

static enum err build(const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "smollm3", .n_ctx = n_ctx, .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    struct blocks_style *s = &b.style;
    for (uint32_t i = NOPE_EVERY - 1; i < b.h.n_layers; i += NOPE_EVERY) {
        s->is_nope[i] = true;
    }
    return blocks_build_decoder(&b);
}

static const char *const hf_smollm3_architectures[] = {"SmolLM3ForCausalLM", NULL};

static const struct hf_family hf_smollm3 = {
    .architectures = hf_smollm3_architectures,
    .arch = "smollm3",
};

static const struct hf_family *const smollm3_hf[] = {&hf_smollm3, NULL};

const struct model_family model_smollm3 = {
    .name = "smollm3",
    .members = "SmolLM3",
    .arch = "smollm3",
    .hf = smollm3_hf,
    .build = build,
};
