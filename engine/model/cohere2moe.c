/* Command A+ and North Mini Code [Cohere 2026]: Command R7B's decoder (cohere.c) with experts, picked by logits and weighted
 * by sigmoids or a softmax of the picked, and with shared ones, whose mean with the routed is added. Leading layers are
 * dense and have RoPE, although they are global. Norms are LayerNorm without bias, or RMSNorm if there is an epsilon for
 * it. Keys: llama.cpp b11434, src/models/cohere2moe.cpp and conversion/command_r.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

enum { GLOBAL_EVERY = 4, SOFTMAX = 1, SIGMOID = 2 }; /* expert_gating_func */

/* Finds whether norms subtract the mean. */
static enum err read_norms(struct blocks *b)
{
    float rms_eps;
    TRY(blocks_get_f32(b, "attention.layer_norm_rms_epsilon", 0.0, 1.0, 0.0, &rms_eps));
    b->centers = rms_eps == 0;
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    TRY(read_norms(b));
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->ffn_norm = NULL;
    s->local_is_scaled = true;
    s->first_is_global = true; /* in files without a list of the layers */
    TRY(blocks_get_f32(b, "logit_scale", 0.0, 1e6, 0.0, &s->logit_scale));
    s->logit_scale = s->logit_scale != 0 ? s->logit_scale : 1; /* 0 in a file means none */
    TRY(blocks_get_u32(b, "attention.sliding_window", 1, INT32_MAX, UINT64_MAX, &s->window)); /* required */
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_read_predicting(b));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    struct blocks_moe moe = {.gating = SIGMOID, .n_ff = b->h.n_ff};
    TRY(blocks_read_moe(b, &moe));
    s->expert_scale = b->h.n_ff_shared != 0 ? 0.5f : 1.0f;
    for (uint32_t i = b->h.n_dense_layers; i < b->h.n_layers; i++) {
        s->is_nope[i] = !s->is_local[i];
    }
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_cohere2moe_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"logit_scale", "logit_scale", HF_F32},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"num_shared_experts", "expert_shared_count", HF_WORD},
    {"intermediate_size", "expert_feed_forward_length", HF_U32},
    {"intermediate_size", "expert_shared_feed_forward_length", HF_WORD},
    {"prefix_dense_intermediate_size", "feed_forward_length", HF_WORD},
    {"first_k_dense_replace", "leading_dense_block_count", HF_WORD},
    {"expert_selection_fn", "expert_gating_func", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_cohere2moe_names[] = {
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_cohere2moe_fixed[] = {
    {"rotary_pct", "1"},
    {"use_parallel_block", "true"},
    {"use_gated_activation", "true"},
    {"use_qk_norm", "false"},
    {"position_embedding_type", "rope_gptj"},
    {"shared_expert_combination_strategy", "average"},
    {"prefix_dense_sliding_window_pattern", "1"}, /* dense layers are global */
    {NULL, NULL},
};

/* Without layer_types, the first dense layers are global, and of the others the last of each sliding_window_pattern
 * [transformers 5.23, Cohere2MoeConfig]. */
static enum err add_pattern(struct hf *h, uint32_t n_layers, uint32_t n_prefix)
{
    unsigned char is_local[PLAN_MAX_LAYERS] = {0};
    uint32_t period;
    if (json_read_get(h->config, "layer_types") != NULL) {
        return ERR_OK;
    }
    TRY(hf_get_u32(h, "sliding_window_pattern", 1, INT32_MAX, GLOBAL_EVERY, &period));
    for (uint32_t i = n_prefix; i < n_layers; i++) {
        is_local[i] = (i - n_prefix + 1) % period != 0;
    }
    gguf_build_array(&h->b, hf_key(h, "attention.sliding_window_pattern"), GGUF_BOOL, n_layers, is_local);
    return ERR_OK;
}

/* Adds how experts are weighted. A softmax of the picked is one of all, divided by the sum of the picked. */
static enum err add_gating(struct hf *h)
{
    static const char key[] = "expert_selection_fn", norms[] = "norm_topk_prob";
    const json_t *fn = json_read_get(h->config, key), *norm = json_read_get(h->config, norms);
    bool is_softmax = fn == NULL || json_read_is(fn, "softmax");
    if (!is_softmax && !json_read_is(fn, "sigmoid")) {
        return hf_bad_value(h, key, "softmax or sigmoid", fn);
    }
    if (norm != NULL && !json_is_boolean(norm)) {
        return hf_bad_value(h, norms, "true or false", norm);
    }
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), is_softmax ? SOFTMAX : SIGMOID);
    gguf_build_bool(&h->b, hf_key(h, "expert_weights_norm"), is_softmax || !json_is_false(norm));
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers, n_prefix, n_dense, n_ff, n_shared, n_expert;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "first_k_dense_replace", 0, n_layers, 0, &n_prefix));
    TRY(hf_get_dense(h, n_prefix, &n_dense));
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_expert));
    TRY(hf_get_u32(h, "prefix_dense_intermediate_size", 1, PLAN_MAX_WIDTH, n_expert, &n_ff));
    TRY(hf_get_u32(h, "num_shared_experts", 0, PLAN_MAX_EXPERTS, 0, &n_shared));
    gguf_build_u32(&h->b, hf_key(h, "leading_dense_block_count"), n_dense);
    if (n_dense != 0) {
        gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), n_ff);
    }
    if (n_shared != 0) {
        gguf_build_u32(&h->b, hf_key(h, "expert_shared_count"), n_shared);
        gguf_build_u32(&h->b, hf_key(h, "expert_shared_feed_forward_length"), n_shared * n_expert); /* at most 2^30 */
    }
    TRY(add_gating(h));
    return add_pattern(h, n_layers, n_prefix);
}

static const struct hf_family hf_cohere2moe = {
    .architectures = {"Cohere2MoeForCausalLM"},
    .arch = "cohere2moe",
    .predicts = true,
    .defaults = "{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"head_dim\": 128, \"num_experts_per_tok\": 2}",
    .keys = hf_cohere2moe_keys,
    .names = hf_cohere2moe_names,
    .fixed = hf_cohere2moe_fixed,
    .window = 4096,
    .has_rope_pairs = true,
    .finish = finish,
};

const struct model_family model_cohere2moe = {
    .members = "Command A+, North Mini Code",
    .arch = "cohere2moe",
    .hf = {&hf_cohere2moe},
    .build = build,
};
