/* Laguna [poolside 2026]: Llama's decoder with norms of the heads of Q and K, a softplus gate of each head's output or of
 * each of its components, and, after leading dense layers, a shared expert and experts picked by sigmoids with a bias. XS and
 * S have three local layers per global one, with more query heads and plain RoPE; global layers have YaRN and rotate a part
 * of each head. Keys: llama.cpp b11434, src/models/laguna.cpp and conversion/laguna.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>

enum { GLOBAL_EVERY = 4, SIGMOID = 2 /* expert_gating_func */ };

static enum err build(struct blocks *b)
{
    b->heads_by_layer = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    s->head_gate = PLAN_MAP_SOFTPLUS;
    s->first_is_global = true;
    TRY(blocks_read_local_rope(b));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true, .n_shared = 1};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* Adds the query heads of each layer. */
static enum err add_heads(struct hf *h, uint32_t n_layers)
{
    static const char key[] = "num_attention_heads_per_layer";
    const json_t *list = json_read_get(h->config, key);
    uint32_t heads[PLAN_MAX_LAYERS], n;
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n));
    if (list == NULL) {
        gguf_build_u32(&h->b, hf_key(h, "attention.head_count"), n);
        return ERR_OK;
    }
    if (!json_is_array(list) || json_array_size(list) != n_layers) {
        return hf_bad(h, key, "expected an array of %" PRIu32 " numbers, one a layer, found %s of %zu", n_layers,
                      json_read_type_name(list), json_array_size(list));
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        char shown[JSON_READ_SHOWN];
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > PLAN_MAX_HEADS) {
            return err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s[%" PRIu32 "]: expected 1 to %d, found %s",
                           key, i, PLAN_MAX_HEADS, json_read_show(v, shown));
        }
        heads[i] = (uint32_t)json_integer_value(v);
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count"), GGUF_U32, n_layers, heads);
    return ERR_OK;
}

/* Adds the number of dense layers, which must be the first ones. By default it is one [transformers 5, LagunaConfig]. */
static enum err add_dense(struct hf *h, uint32_t n_layers)
{
    static const char key[] = "mlp_layer_types";
    const json_t *types = json_read_get(h->config, key);
    uint32_t n = types == NULL ? 1 : 0;
    if (types != NULL && (!json_is_array(types) || json_array_size(types) != n_layers)) {
        return hf_bad(h, key, "expected an array of %" PRIu32 " names, one a layer, found %s of %zu", n_layers,
                      json_read_type_name(types), json_array_size(types));
    }
    for (uint32_t i = 0; types != NULL && i < n_layers; i++) {
        char shown[JSON_READ_SHOWN];
        const json_t *v = json_array_get(types, i);
        bool is_dense = json_read_is(v, "dense");
        if ((!is_dense && !json_read_is(v, "sparse")) || (is_dense && n != i)) {
            return err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s[%" PRIu32 "]: expected %s, found %s", key, i,
                           n == i ? "dense or sparse" : "sparse, as in an earlier layer", json_read_show(v, shown));
        }
        n += is_dense;
    }
    gguf_build_u32(&h->b, hf_key(h, "leading_dense_block_count"), n);
    return ERR_OK;
}

/* Adds window and RoPE of local layers, if there are some. */
static enum err add_local(struct hf *h)
{
    const json_t *types = json_read_get(h->config, "layer_types"), *ropes = json_read_get(h->config, "rope_parameters");
    const json_t *local = json_read_get(ropes, "sliding_attention");
    bool has_local = false;
    uint32_t head_dim, window;
    double part;
    for (size_t i = 0; i < json_array_size(types); i++) {
        has_local |= json_read_is(json_array_get(types, i), "sliding_attention");
    }
    TRY(hf_get_u32(h, "head_dim", 2, PLAN_MAX_HEAD, UINT64_MAX, &head_dim));
    TRY(hf_get_f64(h, local, "partial_rotary_factor", 0, 1, 1, &part));
    if (local != NULL) {
        gguf_build_u32(&h->b, hf_key(h, "rope.dimension_count_swa"), (uint32_t)(head_dim * part + 1e-6));
    }
    if (!has_local) {
        return ERR_OK;
    }
    TRY(blocks_check_local_rope(h));
    TRY(hf_get_u32(h, "sliding_window", 1, INT32_MAX, UINT64_MAX, &window));
    gguf_build_u32(&h->b, hf_key(h, "attention.sliding_window"), window);
    return ERR_OK;
}

/* The tensor says whether a head has one gate or one per component; config.json must know it. */
static enum err check_gates(const struct hf *h)
{
    static const char key[] = "gating";
    static const char *const known[] = {"per-head", "per_head", "per-element", "per_element"};
    const json_t *v = json_read_get(h->config, key);
    bool fits = v == NULL || json_is_true(v);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        fits |= json_read_is(v, known[i]);
    }
    return fits ? ERR_OK : hf_bad_value(h, key, "true, per-head or per-element", v);
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers;
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    gguf_build_bool(&h->b, hf_key(h, "expert_weights_norm"), true);
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(check_gates(h));
    TRY(add_heads(h, n_layers));
    TRY(add_dense(h, n_layers));
    return add_local(h);
}

static const struct hf_key hf_keys[] = {
    {"num_attention_heads", "attention.head_count", HF_WORD},
    {"mlp_layer_types", "leading_dense_block_count", HF_WORD},
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_U32},
    {"moe_routed_scaling_factor", "expert_weights_scale", HF_F32},
    {"sliding_window", "attention.sliding_window", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_names[] = {
    {"model.layers.{}.self_attn.g_proj.weight", "blk.{}.attn_gate.weight", HF_SAME},
    {"model.layers.{}.mlp.experts.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_fixed[] = {
    {"moe_router_logit_softcapping", "0"},
    {"moe_apply_router_weight_on_input", "false"},
    {NULL, NULL},
};

/* [transformers 5.23, LagunaConfig] */
static const char hf_defaults[] =
    "{\"shared_expert_intermediate_size\": 512, \"rope_parameters\": {"
    "\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 5e5, \"partial_rotary_factor\": 0.5}, "
    "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, \"partial_rotary_factor\": 1.0}}}";

static const struct hf_family hf_laguna = {
    .architectures = {"LagunaForCausalLM"},
    .arch = "laguna",
    .defaults = hf_defaults,
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .finish = finish,
};

const struct model_family model_laguna = {
    .members = "Laguna XS, S, M",
    .arch = "laguna",
    .hf = {&hf_laguna},
    .build = build,
};
