/* SmallThinker [Song 2025, "SmallThinker"]: Llama's decoder with experts of ReLU gates in every layer, picked by what the
 * layer reads, before its attention. The first of each four layers of the larger size sees all positions and has no RoPE,
 * the others have a window. Keys: llama.cpp b11434, src/models/smallthinker.cpp and conversion/smallthinker.py, whose files
 * do not say which layers; a folder with others adds attention.rope_pattern. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

enum { GLOBAL_EVERY = 4, SOFTMAX = 1, SIGMOID = 2 /* expert_gating_func */ };

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->act = PLAN_RELU;
    s->local_is_scaled = true;
    s->first_is_global = true;
    TRY(blocks_get_f32(b, "rope.freq_base_swa", 1.0, 1e12, (double)b->h.freq_base, &s->local_freq_base));
    TRY(blocks_read_windows(b, 0, GLOBAL_EVERY));
    TRY(blocks_read_nope(b, s->window != 0 ? GLOBAL_EVERY : 0));
    struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true, .routes_early = true};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* Reads one number of 0 or 1 per layer; without the list all are `fallback`. */
static enum err get_layout(const struct hf *h, const char *key, uint32_t n, unsigned char fallback,
                           unsigned char out[PLAN_MAX_LAYERS])
{
    bool found;
    TRY(hf_get_flags(h, key, n, &found, out));
    for (uint32_t i = 0; !found && i < n; i++) {
        out[i] = fallback;
    }
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    unsigned char is_local[PLAN_MAX_LAYERS], has_rope[PLAN_MAX_LAYERS], has_experts[PLAN_MAX_LAYERS];
    uint32_t n, window, n_ff;
    bool has_window = false, is_usual = true;
    const json_t *softmax = json_read_get(h->config, "moe_primary_router_apply_softmax");
    if (softmax != NULL && !json_is_boolean(softmax)) {
        return hf_bad_value(h, "moe_primary_router_apply_softmax", "true or false", softmax);
    }
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), json_is_true(softmax) ? SOFTMAX : SIGMOID);
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n));
    TRY(get_layout(h, "sliding_window_layout", n, 0, is_local));
    TRY(get_layout(h, "rope_layout", n, 1, has_rope));
    TRY(get_layout(h, "moe_layer_layout", n, 1, has_experts));
    for (uint32_t i = 0; i < n; i++) {
        has_window |= is_local[i] != 0;
        if (!has_experts[i]) {
            return hf_bad(h, "moe_layer_layout", "expected 1 for every layer, found 0 for layer %u", i);
        }
    }
    if (has_window) {
        TRY(hf_get_u32(h, "sliding_window_size", 1, INT32_MAX, UINT64_MAX, &window));
        gguf_build_u32(&h->b, hf_key(h, "attention.sliding_window"), window);
        gguf_build_array(&h->b, hf_key(h, "attention.sliding_window_pattern"), GGUF_BOOL, n, is_local);
    }
    for (uint32_t i = 0; i < n; i++) {
        is_usual &= (has_rope[i] != 0) == (!has_window || i % GLOBAL_EVERY != 0);
    }
    if (!is_usual) {
        gguf_build_array(&h->b, hf_key(h, "attention.rope_pattern"), GGUF_BOOL, n, has_rope);
    }
    TRY(hf_get_u32(h, "moe_ffn_hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_ff));
    gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), n_ff); /* as in GGUF files */
    return ERR_OK;
}

static const struct hf_key hf_keys[] = {
    {"moe_num_primary_experts", "expert_count", HF_U32},
    {"moe_num_active_primary_experts", "expert_used_count", HF_U32},
    {"moe_ffn_hidden_size", "expert_feed_forward_length", HF_U32},
    {"sliding_window_size", "attention.sliding_window", HF_WORD},
    {"sliding_window_layout", "attention.sliding_window_pattern", HF_WORD},
    {"rope_layout", "attention.rope_pattern", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_names[] = {
    {"model.layers.{}.block_sparse_moe.primary_router.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.gate.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.up.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.block_sparse_moe.experts.{}.down.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_fixed[] = {
    {"hidden_act", "relu"},
    {"use_qk_norm", "false"},
    {"moe_enable_early_router", "true"},
    {"moe_enable_secondary_experts", "false"},
    {"moe_shared_primary_experts", "0"},
    {NULL, NULL},
};

static const struct hf_family hf_smallthinker = {
    .architectures = {"SmallThinkerForCausalLM", "SmallthinkerForCausalLM"},
    .arch = "smallthinker",
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .has_act = true,
    .has_layer_types = true,
    .finish = finish,
};

const struct model_family model_smallthinker = {
    .members = "SmallThinker 4B-A0.6B, 21B-A3B",
    .arch = "smallthinker",
    .hf = {&hf_smallthinker},
    .build = build,
};
