/* Qwen2 and Qwen2.5: the Llama decoder with biases on Q, K and V and RoPE on half-split pairs. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

static enum err build(const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "qwen2", .n_ctx = n_ctx, .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    b.style.is_neox = true;
    b.style.local_is_scaled = true;
    TRY(blocks_read_windows(&b, 0, PLAN_MAX_LAYERS)); /* of folders with use_sliding_window */
    return blocks_build_decoder(&b);
}

static const char *const hf_qwen2_architectures[] = {"Qwen2ForCausalLM", NULL};

static const struct hf_family hf_qwen2 = {
    .architectures = hf_qwen2_architectures,
    .arch = "qwen2",
    .finish = hf_add_optional_window,
};

static const struct hf_family *const qwen2_hf[] = {&hf_qwen2, NULL};

const struct model_family model_qwen2 = {
    .name = "qwen2",
    .members = "Qwen2, Qwen2.5, Qwen2.5-Coder",
    .arch = "qwen2",
    .hf = qwen2_hf,
    .build = build,
};
