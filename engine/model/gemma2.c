/* Gemma 2 [Gemma Team 2024, "Gemma 2", 2]: Llama's decoder with a scaled embedding, norms before and after attention
 * and feed-forward, GELU gates, soft-capped scores and logits, and alternating local and global layers. Norm weights in
 * files already include the 1 of Gemma's (1 + w). Keys and their defaults: llama.cpp b11434, src/models/gemma2.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <math.h>

enum {
    GLOBAL_EVERY = 2,
    LAYERS_27B = 46, /* in this size queries are scaled by D/H instead of d */
};

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->has_post_norms = true;
    s->act = PLAN_GELU_TANH;
    s->embed_scale = sqrtf((float)b->h.n_embd);
    if (b->h.n_layers == LAYERS_27B) {
        s->attn_scale = (float)(1.0 / sqrt((double)b->h.n_embd / b->h.n_heads));
    }
    s->local_is_scaled = true;
    TRY(blocks_get_f32(b, "attn_logit_softcapping", 0.0, 1e6, 50.0, &s->attn_softcap));
    TRY(blocks_get_f32(b, "final_logit_softcapping", 0.0, 1e6, 30.0, &s->logit_softcap));
    TRY(blocks_read_windows(b, 4096, GLOBAL_EVERY));
    TRY(blocks_get_f32(b, "attention.scale", 1e-6, 1e6, (double)s->attn_scale, &s->attn_scale));
    return blocks_build_decoder(b);
}

static const struct hf_key hf_gemma2_keys[] = {
    {"query_pre_attn_scalar", "attention.scale", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"attn_logit_softcapping", "attn_logit_softcapping", HF_CAP},
    {"final_logit_softcapping", "final_logit_softcapping", HF_CAP},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_gemma2_fixed[] = {
    {"use_bidirectional_attention", "false"},
    {NULL, NULL},
};

static const struct hf_family hf_gemma2 = {
    .architectures = {"Gemma2ForCausalLM"},
    .arch = "gemma2",
    .keys = hf_gemma2_keys,
    .names = blocks_gemma_names,
    .fixed = hf_gemma2_fixed,
    .act = HF_GELU_TANH,
    .window = 4096,
    .norms_plus_one = true,
    .finish = hf_add_query_scale,
};

const struct model_family model_gemma2 = {
    .members = "Gemma 2 2B, 9B, 27B",
    .arch = "gemma2",
    .hf = {&hf_gemma2},
    .build = build,
};
