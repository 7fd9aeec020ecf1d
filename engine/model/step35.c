/* Step 3.5 and 3.7 [StepFun 2026]: Llama's decoder with norms of the heads of Q and K, a sigmoid gate of each head's output,
 * and, after leading dense layers, a shared expert and experts picked by sigmoids with a bias. Local layers have a window,
 * more query heads, and RoPE on whole heads; global ones rotate half of each head, stretched as in Llama 3.1. Some layers
 * limit the gates of their feed-forward blocks. Prediction heads are left out. Keys: llama.cpp b11434,
 * src/models/step35.cpp and conversion/step3.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { SIGMOID = 2 /* expert_gating_func */ };

/* Reads one limit per layer; none without the key. Files can name the limit 0: none. */
static enum err read_limits(struct blocks *b, const char *key, float out[PLAN_MAX_LAYERS])
{
    const struct gguf_kv *kv;
    TRY(blocks_get_array(b, key, GGUF_F32, &kv));
    for (uint32_t i = 0; kv != NULL && i < b->h.n_layers; i++) {
        double v = gguf_elem_f64(kv, i);
        TRY(blocks_expect(b, v >= 0 && v <= 1e6, key, "expected 0 to 1e6 for layer %u, found %g", i, v));
        out[i] = v > 1e-6 ? (float)v : 0;
    }
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    b->heads_by_layer = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    s->head_gate = PLAN_MAP_SIGMOID;
    s->factors_of_head = true;
    TRY(blocks_read_local_rope(b));
    TRY(blocks_expect(b, b->h.n_rot % 4 == 0, "rope.dimension_count",
                      "expected a multiple of 4, of which global layers rotate half, found %" PRIu32, b->h.n_rot));
    b->h.n_rot /= 2;
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS - 1));
    TRY(read_limits(b, "swiglu_clamp_exp", s->expert_limit));
    TRY(read_limits(b, "swiglu_clamp_shexp", s->dense_limit));
    TRY(blocks_skip_predicting(b));
    struct blocks_moe moe = {.gating = SIGMOID, .n_shared = 1};
    TRY(blocks_read_moe(b, &moe));
    blocks_find_dense(b);
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

enum { NAME_BYTES = 64, DENSE_BY_DEFAULT = 3 };

static const char types_key[] = "layer_types";

static enum err set(const struct hf *h, const char *key, json_t *v) /* the reader owns the tree, and now v */
{
    return json_object_set_new((json_t *)h->config, key, v) == 0
               ? ERR_OK
               : err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
}

/* Removes the types of the prediction heads' layers. */
static void drop_types(const struct hf *h, uint32_t n_layers)
{
    json_t *all = json_object_get(h->config, types_key);
    for (size_t n = json_array_size(all); n > n_layers; n--) {
        json_array_remove(all, n - 1);
    }
}

static bool is_local(const struct hf *h, uint32_t layer)
{
    return json_read_is(json_array_get(json_read_get(h->config, types_key), layer), "sliding_attention");
}

/* Adds the base of one kind of layers to its parameters of RoPE, and checks the rotated part of heads: `expected`. The part
 * itself is left out, because GGUF files have the whole width. */
static enum err fill_rope(const struct hf *h, uint32_t n_layers, bool of_local, json_t *params)
{
    const json_t *bases = json_read_get(h->config, "rope_theta"),
                 *parts = json_read_get(h->config, "partial_rotary_factors");
    const json_t *own = json_object_get(params, "partial_rotary_factor");
    double expected = of_local ? 1 : 0.5, part = own != NULL ? json_number_value(own) : 1;
    for (uint32_t i = 0; i < n_layers; i++) {
        const json_t *base = json_is_array(bases) ? json_array_get(bases, i) : bases;
        if (is_local(h, i) != of_local) {
            continue;
        }
        if (own == NULL && parts != NULL) {
            part = json_number_value(json_array_get(parts, i));
        }
        const json_t *old = json_object_get(params, "rope_theta");
        if (part != expected || (base != NULL && old != NULL && !json_equal(base, old)) ||
            (base != NULL && !json_is_number(base))) {
            return part != expected ? hf_bad(h, "partial_rotary_factors", "expected %g for layer %" PRIu32 ", found %g",
                                             expected, i, part)
                                    : hf_bad_value(h, "rope_theta", "one number for all layers of a kind", bases);
        }
        if (base != NULL && old == NULL && json_object_set(params, "rope_theta", (json_t *)base) != 0) {
            return err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
        }
    }
    json_object_del(params, "partial_rotary_factor");
    return ERR_OK;
}

/* Turns lists of one element a layer into parameters by kinds of layers. */
static enum err prepare(struct hf *h)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"}, key[] = "rope_parameters";
    uint32_t n_layers;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS - 1, UINT64_MAX, &n_layers));
    drop_types(h, n_layers);
    const json_t *scaled = json_read_get(h->config, "yarn_only_types");
    if (scaled != NULL && (json_array_size(scaled) != 1 || !json_read_is(json_array_get(scaled, 0), kinds[0]))) {
        return hf_bad_value(h, "yarn_only_types", "only full_attention", scaled);
    }
    json_t *all = json_object_get(h->config, key), *scaling = json_object_get(h->config, "rope_scaling");
    if (!json_is_object(all)) {
        TRY(set(h, key, json_object()));
        all = json_object_get(h->config, key);
    }
    for (int i = 0; i < 2; i++) {
        json_t *params = json_object_get(all, kinds[i]);
        if (params == NULL) {
            params = i == 0 && json_is_object(scaling) ? json_copy(scaling) : json_object();
            if (json_object_set_new(all, kinds[i], params) != 0) {
                return err_set(h->info, ERR_NOMEM, NULL, "out of memory for config.json");
            }
        }
        TRY(fill_rope(h, n_layers, i == 1, params));
    }
    json_object_del((json_t *)h->config, "rope_theta");
    json_object_del((json_t *)h->config, "rope_scaling");
    json_object_del((json_t *)h->config, "partial_rotary_factors");
    return ERR_OK;
}

/* Adds window and heads of each layer. */
static enum err add_layers(struct hf *h, uint32_t n_layers)
{
    unsigned char local[PLAN_MAX_LAYERS];
    uint32_t heads[PLAN_MAX_LAYERS], kv[PLAN_MAX_LAYERS], n_heads[2], n_kv[2], dim, other_dim;
    struct hf other = *h; /* of local layers */
    other.config = json_read_get(h->config, "attention_other_setting");
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads[0]));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, PLAN_MAX_HEADS, n_heads[0], &n_kv[0]));
    TRY(hf_get_u32(h, "num_sliding_attention_heads", 1, PLAN_MAX_HEADS, n_heads[0], &n_heads[1]));
    TRY(hf_get_u32(h, "head_dim", 4, PLAN_MAX_HEAD, UINT64_MAX, &dim));
    n_kv[1] = n_kv[0];
    if (other.config != NULL) {
        TRY(hf_get_u32(&other, "num_attention_heads", 1, PLAN_MAX_HEADS, n_heads[1], &n_heads[1]));
        TRY(hf_get_u32(&other, "num_attention_groups", 1, PLAN_MAX_HEADS, n_kv[1], &n_kv[1]));
        TRY(hf_get_u32(&other, "head_dim", 4, PLAN_MAX_HEAD, dim, &other_dim));
        if (other_dim != dim) {
            return hf_bad(h, "attention_other_setting", "expected head_dim %" PRIu32 ", found %" PRIu32, dim,
                          other_dim);
        }
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        local[i] = is_local(h, i);
        heads[i] = n_heads[local[i]];
        kv[i] = n_kv[local[i]];
        const json_t *v = json_array_get(json_read_get(h->config, types_key), i);
        if (!local[i] && !json_read_is(v, "full_attention")) {
            return hf_bad_value(h, types_key, "sliding_attention and full_attention, one a layer", v);
        }
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count"), GGUF_U32, n_layers, heads);
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, n_layers, kv);
    gguf_build_array(&h->b, hf_key(h, "attention.sliding_window_pattern"), GGUF_BOOL, n_layers, local);
    return ERR_OK;
}

/* Adds the limits of each layer; null: none. */
static enum err add_limits(struct hf *h, const char *json, const char *key, uint32_t n_layers)
{
    const json_t *list = json_read_get(h->config, json);
    float limits[PLAN_MAX_LAYERS];
    if (list == NULL) {
        return ERR_OK;
    }
    if (!json_is_array(list) || json_array_size(list) < n_layers) {
        return hf_bad(h, json, "expected an array of %" PRIu32 " numbers, one a layer, found %s of %zu", n_layers,
                      json_read_type_name(list), json_array_size(list));
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        const json_t *v = json_array_get(list, i);
        double limit = json_number_value(v);
        if ((v != NULL && !json_is_number(v) && !json_is_null(v)) || limit < 0 || limit > 1e6) {
            return hf_bad_value(h, json, "numbers of 0 to 1e6, or null", v);
        }
        limits[i] = (float)limit;
    }
    gguf_build_array(&h->b, hf_key(h, key), GGUF_F32, n_layers, limits);
    return ERR_OK;
}

/* Notes the layers that moe_layers_enum lists, a text of numbers. */
static enum err read_enum(const struct hf *h, uint32_t n_layers, bool has_experts[PLAN_MAX_LAYERS])
{
    static const char key[] = "moe_layers_enum";
    const json_t *v = json_read_get(h->config, key);
    const char *text = json_string_value(v);
    for (uint32_t i = 0; i < n_layers; i++) {
        has_experts[i] = v == NULL && i >= DENSE_BY_DEFAULT;
    }
    if (v != NULL && text == NULL) {
        return hf_bad_value(h, key, "a text of numbers", v);
    }
    while (text != NULL && *text != '\0') {
        uint32_t layer = 0, digits = 0;
        for (; *text >= '0' && *text <= '9' && digits < 5; digits++) {
            layer = layer * 10 + (uint32_t)(*text++ - '0');
        }
        if ((digits == 0 && *text != ',' && *text != ' ') || digits == 5) {
            return hf_bad_value(h, key, "numbers of layers", v);
        }
        if (digits != 0 && layer < n_layers) {
            has_experts[layer] = true;
        }
        text += digits == 0;
    }
    return ERR_OK;
}

/* Adds the number of leading dense layers. The layers' tensors must be those of the kinds that config.json lists. */
static enum err add_dense(struct hf *h, uint32_t n_layers)
{
    const json_t *types = json_read_get(h->config, "mlp_layer_types");
    bool has_experts[PLAN_MAX_LAYERS];
    uint32_t n_dense = 0;
    TRY(read_enum(h, n_layers, has_experts));
    for (uint32_t i = 0; i < n_layers; i++) {
        char router[NAME_BYTES];
        snprintf(router, sizeof router, "blk.%" PRIu32 ".ffn_gate_inp.weight", i);
        bool says = types != NULL ? json_read_is(json_array_get(types, i), "sparse") : has_experts[i];
        bool has = gguf_build_find(&h->b, router) != NULL;
        if (says != has) {
            return hf_bad(h, types != NULL ? "mlp_layer_types" : "moe_layers_enum",
                          "expected layer %" PRIu32 " %s experts, as it has %s router, found another", i,
                          has ? "with" : "without", has ? "a" : "no");
        }
        n_dense += !has && n_dense == i;
    }
    gguf_build_u32(&h->b, hf_key(h, "leading_dense_block_count"), n_dense);
    return ERR_OK;
}

/* Global layers rotate half of each head: of the factors, which are those of whole heads, they need every second. The
 * others do nothing. */
static void halve_factors(struct hf *h)
{
    struct gguf_tensor *t = gguf_build_find(&h->b, "rope_freqs.weight");
    float *f = t != NULL ? (float *)(uintptr_t)t->data : NULL; /* written by hf_rope.c */
    for (uint64_t i = 0; f != NULL && i < t->dims[0]; i++) {
        f[i] = 2 * i < t->dims[0] ? f[2 * i] : 1.0f;
    }
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers, dim, scalar;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS - 1, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "head_dim", 4, PLAN_MAX_HEAD, UINT64_MAX, &dim));
    TRY(hf_get_u32(h, "query_pre_attn_scalar", 1, UINT32_MAX, dim, &scalar));
    if (scalar != dim) {
        return hf_bad(h, "query_pre_attn_scalar", "expected head_dim %" PRIu32 ", found %" PRIu32, dim, scalar);
    }
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    gguf_build_bool(&h->b, hf_key(h, "expert_weights_norm"), true);
    TRY(blocks_check_local_rope(h));
    halve_factors(h);
    TRY(add_layers(h, n_layers));
    TRY(add_limits(h, "swiglu_limits", "swiglu_clamp_exp", n_layers));
    TRY(add_limits(h, "swiglu_limits_shared", "swiglu_clamp_shexp", n_layers));
    return add_dense(h, n_layers);
}

static const struct hf_alias hf_aliases[] = {
    {"num_key_value_heads", "num_attention_groups"},
    {"n_routed_experts", "moe_num_experts"},
    {"num_experts_per_tok", "moe_top_k"},
    {"share_expert_dim", "share_expert_dims"},
    {NULL, NULL},
};

static const struct hf_key hf_keys[] = {
    {"num_attention_heads", "attention.head_count", HF_WORD},
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"n_routed_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"share_expert_dim", "expert_shared_feed_forward_length", HF_U32},
    {"moe_router_scaling_factor", "expert_weights_scale", HF_F32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_names[] = {
    {"model.layers.{}.self_attn.g_proj.weight", "blk.{}.attn_gate.weight", HF_SAME},
    {"model.layers.{}.moe.gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.moe.router_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.moe.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.moe.up_proj.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.moe.down_proj.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {"model.layers.{}.share_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.share_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.share_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {"model.layers.{}.transformer.shared_head.norm.weight", "blk.{}.nextn.shared_head_norm.weight", HF_SAME},
    {"model.layers.{}.transformer.shared_head.output.weight", "blk.{}.nextn.shared_head_head.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_fixed[] = {
    {"norm_expert_weight", "true"},
    {"moe_router_activation", "sigmoid"},
    {"moe_every_n_layer", "1"},
    {"use_moe_router_bias", "true"},
    {"use_head_wise_attn_gate", "true"},
    {"gating", "true"},
    {"zero_centered", "true"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"use_bidirectional_attention", "false"},
    {NULL, NULL},
};

static const struct hf_family hf_step35 = {
    .architectures = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"},
    .arch = "step35",
    .aliases = hf_aliases,
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .prepare = prepare,
    .norms_plus_one = true,
    .has_layer_types = true,
    .finish = finish,
};

const struct model_family model_step35 = {
    .members = "Step-3.5-Flash, Step-3.7-Flash",
    .arch = "step35",
    .hf = {&hf_step35},
    .build = build,
};
