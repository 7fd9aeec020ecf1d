/* Mistral 3 and Ministral 3, text: Llama's decoder with YaRN, whose queries grow with the position beyond the original
 * context. Keys: llama.cpp b11434, src/models/mistral3.cpp. */
#include "engine/model/blocks.h"

static enum err build(const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "mistral3", .n_ctx = n_ctx, .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    struct blocks_style *s = &b.style;
    TRY(blocks_get_f32(&b, "attention.temperature_scale", 0.0, 1e3, 0.0, &s->query_beta));
    TRY(blocks_get_u32(&b, "rope.scaling.original_context_length", 1, UINT32_MAX / 2, b.h.n_ctx_train,
                       &s->query_period));
    return blocks_build_decoder(&b);
}

const struct model_family model_mistral3 = {
    .name = "mistral3",
    .members = "Mistral 3, Ministral 3 (text)",
    .arch = "mistral3",
    .build = build,
};
