/* LFM2 [Liquid AI 2025, "LFM2 Technical Report"]: Llama's decoder, most of whose layers have a short convolution
 * instead of attention, with norms of the heads of Q and K. The larger ones have experts after some dense layers,
 * picked by sigmoids with a bias. Keys: llama.cpp b11434, src/models/lfm2.cpp and lfm2moe.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <math.h>
#include <string.h>

enum { SIGMOID = 2 }; /* expert_gating_func */

static enum err build(struct blocks *b)
{
    b->may_skip_attention = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    const char *last = "token_embd_norm.weight"; /* the output norm's name in files */
    bool has_plain = gguf_find_tensor(b->g, s->last_norm) != NULL && gguf_find_tensor(b->g, last) == NULL;
    s->last_norm = has_plain ? s->last_norm : last;
    TRY(blocks_read_conv(b));
    struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true};
    if (b->plan->moe.n_experts != 0) {
        TRY(blocks_read_moe(b, &moe));
    }
    return blocks_build_decoder(b);
}

/* --- SafeTensors ------------------------------------------------------------------------------------------------ */

static bool is_in(const json_t *list, json_int_t wanted)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_is_integer(json_array_get(list, i)) && json_integer_value(json_array_get(list, i)) == wanted) {
            return true;
        }
    }
    return false;
}

/* Does layer i have attention? Reads layer_types, or full_attn_idxs of older folders. */
static enum err has_attention(const struct hf *h, uint32_t i, bool *out)
{
    const json_t *types = json_read_get(h->config, "layer_types"),
                 *indexes = json_read_get(h->config, "full_attn_idxs");
    if (types == NULL) {
        *out = indexes == NULL || is_in(indexes, i);
        return ERR_OK;
    }
    const char *type = json_string_value(json_array_get(types, i));
    *out = type != NULL && strcmp(type, "full_attention") == 0;
    return *out || (type != NULL && strcmp(type, "conv") == 0)
               ? ERR_OK
               : err_set(h->info, ERR_BAD_CONFIG, "layer_types",
                         "config.json: layer_types[%u]: expected full_attention or conv, found '%.64s'", i,
                         type != NULL ? type : "");
}

/* Adds KV heads per layer; 0 for layers with a convolution. */
static enum err add_layers(struct hf *h)
{
    uint32_t n_layers, n_heads, n_kv_heads;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, PLAN_MAX_HEADS, n_heads, &n_kv_heads));
    uint32_t *heads = arena_zalloc(&h->b.arena, n_layers * sizeof *heads);
    TRY_MEM_FOR(heads != NULL, h->info, "out of memory for %u layers", n_layers);
    for (uint32_t i = 0; i < n_layers; i++) {
        bool is_attention;
        TRY(has_attention(h, i, &is_attention));
        heads[i] = is_attention ? n_kv_heads : 0;
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, n_layers, heads);
    return ERR_OK;
}

/* Computes the width that block_auto_adjust_ff_dim makes from config.json's [transformers, Lfm2MLP]. */
static enum err add_width(struct hf *h)
{
    uint32_t width, multiple;
    double factor;
    const char *name = json_read_get(h->config, "block_ff_dim") != NULL ? "block_ff_dim" : "intermediate_size";
    TRY(hf_get_u32(h, name, 1, PLAN_MAX_WIDTH, UINT64_MAX, &width));
    TRY(hf_get_u32(h, "block_multiple_of", 1, PLAN_MAX_WIDTH, 256, &multiple));
    TRY(hf_get_f64(h, h->config, "block_ffn_dim_multiplier", 1e-3, 1e3, 1.0, &factor));
    if (!json_is_false(json_read_get(h->config, "block_auto_adjust_ff_dim"))) {
        uint64_t n = (uint64_t)(factor * (double)(2 * (uint64_t)width / 3)); /* at most 2^30 */
        width = (uint32_t)((n + multiple - 1) / multiple * multiple);
    }
    gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), width);
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    TRY(add_layers(h));
    return add_width(h);
}

static enum err finish_moe(struct hf *h)
{
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    return add_layers(h);
}

static const struct hf_key hf_lfm2_keys[] = {
    {"norm_eps", "attention.layer_norm_rms_epsilon", HF_F32},
    {"conv_L_cache", "shortconv.l_cache", HF_U32},
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"intermediate_size", "feed_forward_length", HF_WORD},
    {NULL, NULL, HF_U32},
};

static const struct hf_key hf_lfm2moe_keys[] = {
    {"norm_eps", "attention.layer_norm_rms_epsilon", HF_F32},
    {"conv_L_cache", "shortconv.l_cache", HF_U32},
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"num_dense_layers", "leading_dense_block_count", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {NULL, NULL, HF_U32},
};

/* For both families; one without experts has no such tensors. */
static const struct hf_name hf_lfm2_names[] = {
    {"model.embedding_norm.weight", "token_embd_norm.weight", HF_SAME},
    {"model.layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    {"model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"model.layers.{}.self_attn.q_layernorm.weight", "blk.{}.attn_q_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.k_layernorm.weight", "blk.{}.attn_k_norm.weight", HF_SAME},
    {"model.layers.{}.conv.conv.weight", "blk.{}.shortconv.conv.weight", HF_CONV},
    {"model.layers.{}.conv.conv.bias", "blk.{}.shortconv.conv.bias", HF_SAME},
    {"model.layers.{}.conv.in_proj.weight", "blk.{}.shortconv.in_proj.weight", HF_SAME},
    {"model.layers.{}.conv.in_proj.bias", "blk.{}.shortconv.in_proj.bias", HF_SAME},
    {"model.layers.{}.conv.out_proj.weight", "blk.{}.shortconv.out_proj.weight", HF_SAME},
    {"model.layers.{}.conv.out_proj.bias", "blk.{}.shortconv.out_proj.bias", HF_SAME},
    {"model.layers.{}.feed_forward.w1.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"model.layers.{}.feed_forward.w3.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.feed_forward.w2.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"model.layers.{}.feed_forward.gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.feed_forward.expert_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.feed_forward.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const char hf_lfm2_defaults[] = "{\"rope_theta\": 1e6}"; /* transformers 5.23, Lfm2Config */

static const struct hf_family hf_lfm2 = {
    .architectures = {"Lfm2ForCausalLM", "LFM2ForCausalLM", "Lfm2VlForConditionalGeneration"},
    .has_layer_types = true,
    .arch = "lfm2",
    .defaults = hf_lfm2_defaults,
    .keys = hf_lfm2_keys,
    .names = hf_lfm2_names,
    .finish = finish,
};

static const struct hf_family hf_lfm2moe = {
    .architectures = {"Lfm2MoeForCausalLM"},
    .has_layer_types = true,
    .arch = "lfm2moe",
    .defaults = hf_lfm2_defaults,
    .keys = hf_lfm2moe_keys,
    .names = hf_lfm2_names,
    .finish = finish_moe,
};

const struct model_family model_lfm2 = {
    .members = "LFM2, LFM2.5, LFM2-VL (text)",
    .arch = "lfm2",
    .hf = {&hf_lfm2},
    .build = build,
};

const struct model_family model_lfm2moe = {
    .members = "LFM2-8B-A1B",
    .arch = "lfm2moe",
    .hf = {&hf_lfm2moe},
    .build = build,
};
