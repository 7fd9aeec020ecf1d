/* Qwen2 and Qwen2.5: the Llama decoder with biases on Q, K and V and RoPE on half-split pairs. */
#include "engine/model/blocks.h"

static enum err build(const struct gguf *g, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "qwen2", .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    b.style.is_neox = true;
    return blocks_build_decoder(&b);
}

const struct model_family model_qwen2 = {
    .name = "qwen2",
    .members = "Qwen2, Qwen2.5, Qwen2.5-Coder",
    .arch = "qwen2",
    .build = build,
};
