/* The Llama family: pre-norm decoder with RMSNorm, SwiGLU and RoPE on interleaved pairs (converters permute the rows of
 * Q and K so). Llama 3's RoPE scaling comes as factors in rope_freqs.weight. Mixtures of experts are not read here. */
#include "engine/model/blocks.h"

static enum err build(const struct gguf *g, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "llama", .plan = p, .info = info};
    uint32_t n_expert;
    TRY(blocks_get_u32(&b, "expert_count", 0, 0, 0, &n_expert));
    TRY(blocks_read_hparams(&b));
    return blocks_build_decoder(&b);
}

const struct model_family model_llama = {
    .name = "llama",
    .members = "Llama 2, Llama 3, Llama 3.1, Llama 3.2, TinyLlama, SmolLM, SmolLM2",
    .arch = "llama",
    .build = build,
};
