/* gpt-oss [OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", 2]: a decoder with biases everywhere, alternating
 * local and global layers, attention sinks, YaRN in all layers, and experts with a clamped gate, in MXFP4. Keys and
 * tensor names: llama.cpp b11434, src/models/openai-moe.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_quant.h"

#include <inttypes.h>
#include <stdio.h>

enum { GLOBAL_EVERY = 2, NAME_BYTES = 96 };

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->has_sinks = true;
    s->local_is_scaled = true;
    s->yarn_truncates = false;
    s->act = PLAN_CLAMPED;
    s->ffn_norm = "blk.%d.post_attention_norm.weight";
    TRY(blocks_get_u32(b, "attention.sliding_window", 1, INT32_MAX, UINT64_MAX, &s->window)); /* required */
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    struct blocks_moe moe = {.gating = 3};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* Adds a layer's experts, whose rows of gate and up alternate. */
static enum err add_experts(struct hf *h, uint32_t layer, uint32_t n_experts, uint32_t n_embd, uint32_t n_ff)
{
    static const struct {
        const char *from, *to;
        uint32_t first, step;
    } parts[] = {{"gate_up_proj", "gate", 0, 2}, {"gate_up_proj", "up", 1, 2}, {"down_proj", "down", 0, 1}};
    char from[NAME_BYTES], to[NAME_BYTES], other[NAME_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        bool is_down = parts[i].step == 1;
        snprintf(from, sizeof from, "model.layers.%" PRIu32 ".mlp.experts.%s", layer, parts[i].from);
        snprintf(to, sizeof to, "blk.%" PRIu32 ".ffn_%s_exps.weight", layer, parts[i].to);
        struct hf_fused f = {.prefix = from,
                             .n_experts = n_experts,
                             .n_out = is_down ? n_embd : 2 * n_ff,
                             .n_in = is_down ? n_ff : n_embd,
                             .first = parts[i].first,
                             .step = parts[i].step};
        TRY(hf_quant_add_fused(h, &f, to));
    }
    snprintf(from, sizeof from, "model.layers.%" PRIu32 ".mlp.experts.gate_up_proj_bias", layer);
    snprintf(to, sizeof to, "blk.%" PRIu32 ".ffn_gate_exps.bias", layer);
    snprintf(other, sizeof other, "blk.%" PRIu32 ".ffn_up_exps.bias", layer);
    return hf_add_every_second(h, from, to, other);
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers, n_experts, n_embd, n_ff;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_local_experts", 1, PLAN_MAX_EXPERTS, UINT64_MAX, &n_experts));
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_embd));
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_ff));
    for (uint32_t i = 0; i < n_layers; i++) {
        TRY(add_experts(h, i, n_experts, n_embd, n_ff));
    }
    return ERR_OK;
}

static const struct hf_key hf_keys[] = {
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"num_local_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"intermediate_size", "expert_feed_forward_length", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_fixed[] = {
    {"swiglu_limit", "7"}, /* PLAN_CLAMPED's */
    {NULL, NULL},
};

static const struct hf_name hf_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight", HF_SAME},
    {"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias", HF_SAME},
    {"model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias", HF_AS_F32},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_gpt_oss = {.architectures = {"GptOssForCausalLM"},
                                            .arch = "gpt-oss",
                                            .keys = hf_keys,
                                            .names = hf_names,
                                            .fixed = hf_fixed,
                                            .window = 128,
                                            .finish = finish};

const struct model_family model_gpt_oss = {
    .members = "gpt-oss 20B, 120B",
    .arch = "gpt-oss",
    .hf = {&hf_gpt_oss},
    .build = build,
};
