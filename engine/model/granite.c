/* Granite 3 [IBM 2024, "Granite 3.0 Language Models"]: Llama's decoder with four scales: of the embedding, of
 * scores, of what a block adds, and of the logits, which are divided by it; dense or with experts. Keys: llama.cpp
 * b11434, src/models/granite.cpp. */
#include "engine/model/blocks.h"
#include "engine/model/hf.h"

#include <inttypes.h>
#include <stdio.h>

enum { NAME_BYTES = 96 };

static enum err build_as(const char *arch, const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    struct blocks b = {.g = g, .arch = arch, .n_ctx = n_ctx, .plan = p, .info = info};
    TRY(blocks_read_hparams(&b));
    struct blocks_style *s = &b.style;
    float logit_scale;
    TRY(blocks_get_f32(&b, "embedding_scale", 1e-6, 1e6, 1.0, &s->embed_scale));
    TRY(blocks_get_f32(&b, "residual_scale", 1e-6, 1e6, 1.0, &s->residual_scale));
    TRY(blocks_get_f32(&b, "attention.scale", 1e-6, 1e6, (double)s->attn_scale, &s->attn_scale));
    TRY(blocks_get_f32(&b, "logit_scale", 1e-6, 1e6, 1.0, &logit_scale));
    s->logit_scale = 1.0f / logit_scale;
    if (p->moe.n_experts != 0) {
        struct blocks_moe moe = {.gating = 1, .norms_weights = true, .n_ff = b.h.n_ff};
        TRY(blocks_read_moe(&b, &moe));
    }
    return blocks_build_decoder(&b);
}

static enum err build(const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    return build_as("granite", g, n_ctx, p, info);
}

static enum err build_moe(const struct gguf *g, uint32_t n_ctx, struct plan *p, struct err_info *info)
{
    return build_as("granitemoe", g, n_ctx, p, info);
}

static const struct hf_key hf_granite_keys[] = {
    {"embedding_multiplier", "embedding_scale", HF_F32},
    {"attention_multiplier", "attention.scale", HF_F32},
    {"residual_multiplier", "residual_scale", HF_F32},
    {"logits_scaling", "logit_scale", HF_F32},
    {NULL, NULL, HF_U32},
};

static const char *const hf_granite_architectures[] = {"GraniteForCausalLM", NULL};

static const struct hf_family hf_granite = {
    .architectures = hf_granite_architectures,
    .arch = "granite",
    .keys = hf_granite_keys,
};

static const struct hf_family *const granite_hf[] = {&hf_granite, NULL};

/* Gate and up of all experts in one tensor, the gate's rows first. */
static enum err split_experts(struct hf *h)
{
    uint32_t n_layers;
    char from[NAME_BYTES], gate[NAME_BYTES], up[NAME_BYTES];
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    for (uint32_t i = 0; i < n_layers; i++) {
        snprintf(from, sizeof from, "model.layers.%" PRIu32 ".block_sparse_moe.input_linear.weight", i);
        snprintf(gate, sizeof gate, "blk.%" PRIu32 ".ffn_gate_exps.weight", i);
        snprintf(up, sizeof up, "blk.%" PRIu32 ".ffn_up_exps.weight", i);
        TRY(hf_add_expert_halves(h, from, gate, up));
    }
    return ERR_OK;
}

static const struct hf_key hf_granitemoe_keys[] = {
    {"embedding_multiplier", "embedding_scale", HF_F32},
    {"attention_multiplier", "attention.scale", HF_F32},
    {"residual_multiplier", "residual_scale", HF_F32},
    {"logits_scaling", "logit_scale", HF_F32},
    {"num_local_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_granitemoe_names[] = {
    {"model.layers.{}.block_sparse_moe.router.layer.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.output_linear.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const char *const hf_granitemoe_architectures[] = {"GraniteMoeForCausalLM", NULL};

static const struct hf_family hf_granitemoe = {
    .architectures = hf_granitemoe_architectures,
    .arch = "granitemoe",
    .keys = hf_granitemoe_keys,
    .names = hf_granitemoe_names,
    .finish = split_experts,
};

static const struct hf_family *const granitemoe_hf[] = {&hf_granitemoe, NULL};

const struct model_family model_granite = {
    .name = "granite",
    .members = "Granite 3 dense",
    .arch = "granite",
    .hf = granite_hf,
    .build = build,
};

const struct model_family model_granitemoe = {
    .name = "granitemoe",
    .members = "Granite 3 MoE",
    .arch = "granitemoe",
    .hf = granitemoe_hf,
    .build = build_moe,
};
