/* gpt-oss [OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", 2]: a decoder with biases everywhere, local and global
 * layers in turns, attention sinks, YaRN in all layers, and experts with a clamped gate, in MXFP4.
 * Keys and tensor names: llama.cpp b11434, src/models/openai-moe.cpp. */
#include "engine/model/blocks.h"

enum { GLOBAL_EVERY = 2 };

static enum err build(const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = "gpt-oss", .n_ctx = n_ctx, .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    struct blocks_style *s = &b.style;
    s->is_neox = true;
    s->has_sinks = true;
    s->local_is_scaled = true;
    s->yarn_truncates = false;
    s->act = PLAN_CLAMPED;
    s->ffn_norm = "blk.%d.post_attention_norm.weight";
    TRY(blocks_read_windows(&b, 0, GLOBAL_EVERY));
    struct blocks_moe moe = {.gating = 3};
    TRY(blocks_read_moe(&b, &moe));
    return blocks_build_decoder(&b);
}

const struct model_family model_gpt_oss = {
    .name = "gpt-oss",
    .members = "gpt-oss 20B, 120B",
    .arch = "gpt-oss",
    .build = build,
};
