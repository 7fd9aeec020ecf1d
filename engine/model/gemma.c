/* Gemma [Gemma Team 2024, "Gemma: Open Models Based on Gemini Research and Technology", 2]: Llama's decoder with a scaled
 * embedding that is also the output matrix, and GELU gates. Norm weights in files already include the 1 of Gemma's
 * (1 + w). Keys: llama.cpp b11434, src/models/gemma.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <math.h>

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.act = PLAN_GELU_TANH;
    b->style.embed_scale = sqrtf((float)b->h.n_embd);
    return blocks_build_decoder(b);
}

static const struct hf_fixed hf_gemma_fixed[] = {
    {"use_bidirectional_attention", "false"},
    {NULL, NULL},
};

static const struct hf_family hf_gemma = {
    .architectures = {"GemmaForCausalLM"},
    .arch = "gemma",
    .fixed = hf_gemma_fixed,
    .act = HF_GELU_TANH,
    .norms_plus_one = true,
};

const struct model_family model_gemma = {
    .members = "Gemma 2B, 7B; CodeGemma",
    .arch = "gemma",
    .hf = {&hf_gemma},
    .build = build,
};
