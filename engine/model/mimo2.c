/* MiMo-V2 [Xiaomi 2026, "MiMo-V2-Flash Technical Report"]: Llama's decoder with values narrower than keys, times a factor,
 * and RoPE on a part of each head. Local layers have a window, attention sinks, more KV heads and another base of RoPE.
 * Most layers have experts picked by sigmoids with a bias. Keys: llama.cpp b11434, src/models/mimo2.cpp and
 * conversion/mimo.py. Names of folders: the published config.json, and transformers 5.23, MiMoV2FlashConfig. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_layers.h"

#include <inttypes.h>
#include <stdio.h>

enum { SIGMOID = 2 /* expert_gating_func */ };

static enum err build(struct blocks *b)
{
    b->heads_by_layer = true;
    b->may_narrow_values = true;
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->may_have_sinks = true;
    s->head_takes_stream = true;
    TRY(blocks_get_f32(b, "attention.value_scale", 0.0, 1e6, 1.0, &s->value_scale));
    s->value_scale = s->value_scale != 0 ? s->value_scale : 1; /* 0 in a file means none */
    TRY(blocks_read_local_rope(b));
    TRY(blocks_expect(b, blocks_has_key(b, "attention.sliding_window_pattern"), "attention.sliding_window_pattern",
                      "expected an array, found none"));
    TRY(blocks_read_windows(b, 0, PLAN_MAX_LAYERS - 1));
    TRY(blocks_read_predicting(b));
    struct blocks_moe moe = {.gating = SIGMOID, .norms_weights = true};
    TRY(blocks_read_moe(b, &moe));
    blocks_find_dense(b);
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* The layers of a folder, and of its prediction head, which is local and dense. */
struct layers {
    uint32_t n; /* without the head */
    unsigned char is_local[PLAN_MAX_LAYERS], has_experts[PLAN_MAX_LAYERS];
};

/* Reads a list of names, of which `set` means 1, `other` 0, that replaces the list of numbers `key`. */
static enum err get_kinds(const struct hf *h, const char *key, const char *names, const char *set, const char *other,
                          const struct layers *l, unsigned char out[PLAN_MAX_LAYERS])
{
    const json_t *list = json_read_get(h->config, names);
    bool found;
    TRY(hf_get_flags(h, key, l->n, &found, out));
    if (list == NULL) {
        return found ? ERR_OK : hf_bad(h, key, "expected an array of 0 and 1, one a layer, found none");
    }
    if (!json_is_array(list) || json_array_size(list) != l->n) {
        return hf_bad(h, names, "expected an array of %" PRIu32 " names, one a layer, found %s of %zu", l->n,
                      json_read_type_name(list), json_array_size(list));
    }
    for (uint32_t i = 0; i < l->n; i++) {
        const json_t *v = json_array_get(list, i);
        bool is_set = json_read_is(v, set), fits = !found || is_set == out[i];
        if ((!is_set && !json_read_is(v, other)) || !fits) {
            char shown[JSON_READ_SHOWN];
            return err_set(h->info, ERR_BAD_CONFIG, names, "config.json: %s[%" PRIu32 "]: expected %s%s%s%s, found %s",
                           names, i, fits || out[i] ? set : other, fits ? " or " : ", as ", fits ? other : key,
                           fits ? "" : " says", json_read_show(v, shown));
        }
        out[i] = is_set;
    }
    return ERR_OK;
}

/* Rejects local heads of another number or width. */
static enum err check_local_heads(const struct hf *h)
{
    static const char *const same[][2] = {{"swa_num_attention_heads", "num_attention_heads"},
                                          {"swa_head_dim", "head_dim"},
                                          {"swa_v_head_dim", "v_head_dim"}};
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        uint32_t of_global, of_local;
        TRY(hf_get_u32(h, same[i][1], 1, PLAN_MAX_WIDTH, UINT64_MAX, &of_global));
        TRY(hf_get_u32(h, same[i][0], 1, PLAN_MAX_WIDTH, of_global, &of_local));
        if (of_local != of_global) {
            return hf_bad(h, same[i][0], "expected %" PRIu32 ", as %s says, found %" PRIu32, of_global, same[i][1],
                          of_local);
        }
    }
    return ERR_OK;
}

/* Adds the KV heads of each layer. Without a number of its own, a local layer has twice those of a global one
 * [transformers 5.23, MiMoV2FlashAttention]. */
static enum err add_heads(struct hf *h, const struct layers *l)
{
    uint32_t n_heads, n_global, n_local, heads[PLAN_MAX_LAYERS];
    TRY(check_local_heads(h));
    TRY(hf_get_u32(h, "num_attention_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "num_key_value_heads", 1, n_heads, n_heads, &n_global));
    TRY(hf_get_u32(h, "swa_num_key_value_heads", 1, n_heads, 2 * n_global, &n_local));
    for (uint32_t i = 0; i < l->n + h->has_head; i++) {
        heads[i] = l->is_local[i] ? n_local : n_global;
    }
    gguf_build_array(&h->b, hf_key(h, "attention.head_count_kv"), GGUF_U32, l->n + h->has_head, heads);
    return ERR_OK;
}

/* Do the layers have the sinks and routers that config.json says? */
static enum err check_layers(const struct hf *h, const struct layers *l)
{
    static const char *const sinks[] = {"add_full_attention_sink_bias", "add_swa_attention_sink_bias"};
    for (uint32_t i = 0; i < l->n; i++) {
        char sink[64], router[64];
        const char *key = sinks[l->is_local[i]];
        const json_t *v = json_read_get(h->config, key);
        bool says = v != NULL ? json_is_true(v) : l->is_local[i];
        snprintf(sink, sizeof sink, "blk.%" PRIu32 ".attn_sinks.weight", i);
        snprintf(router, sizeof router, "blk.%" PRIu32 ".ffn_gate_inp.weight", i);
        if (says != (gguf_build_find(&h->b, sink) != NULL) || (v != NULL && !json_is_boolean(v))) {
            return hf_bad_value(h, key, says ? "false, as a layer lacks sinks" : "true, as a layer has sinks", v);
        }
        if ((l->has_experts[i] != 0) != (gguf_build_find(&h->b, router) != NULL)) {
            return hf_bad(h, "moe_layer_freq", "expected %d for layer %" PRIu32 ", as it has %s router, found %d",
                          !l->has_experts[i], i, l->has_experts[i] ? "no" : "a", l->has_experts[i]);
        }
    }
    return ERR_OK;
}

/* Rejects Q, K and V in one matrix, whose rows newer folders order by ranks of which config.json does not tell. */
static enum err check_separate(const struct hf *h)
{
    for (size_t i = 0; i < h->b.n_tensors; i++) {
        if (gguf_str_ends(h->b.tensors[i].name, ".attn_qkv.weight")) {
            return hf_bad_tensor(h, ERR_UNSUPPORTED_ARCH, "self_attn.qkv_proj.weight",
                                 "expected q_proj, k_proj and v_proj, found one matrix; convert the folder to GGUF");
        }
    }
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    struct layers l = {.n = 0};
    bool has_bases =
        json_read_get(h->config, "rope_theta") != NULL || json_read_get(h->config, "rope_parameters") != NULL;
    if (!has_bases || json_object_get(h->config, "attention_value_scale") == NULL) {
        return hf_bad(h, has_bases ? "attention_value_scale" : "rope_theta", "expected a number, found none");
    }
    TRY(blocks_check_local_rope(h));
    TRY(blocks_check_local_part(h));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS - 1, UINT64_MAX, &l.n));
    TRY(get_kinds(h, "hybrid_layer_pattern", "layer_types", "sliding_attention", "full_attention", &l, l.is_local));
    TRY(get_kinds(h, "moe_layer_freq", "mlp_layer_types", "sparse", "dense", &l, l.has_experts));
    TRY(check_separate(h));
    TRY(check_layers(h, &l));
    l.is_local[l.n] = true;
    gguf_build_array(&h->b, hf_key(h, "attention.sliding_window_pattern"), GGUF_BOOL, l.n + h->has_head, l.is_local);
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    return add_heads(h, &l);
}

static const struct hf_key hf_mimo2_keys[] = {
    {"num_key_value_heads", "attention.head_count_kv", HF_WORD},
    {"hybrid_layer_pattern", "attention.sliding_window_pattern", HF_WORD},
    {"head_dim", "attention.key_length", HF_U32},
    {"v_head_dim", "attention.value_length", HF_U32},
    {"sliding_window", "attention.sliding_window", HF_U32},
    {"attention_value_scale", "attention.value_scale", HF_F32},
    {"n_routed_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {"n_group", "expert_group_count", HF_U32},
    {"topk_group", "expert_group_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_alias hf_mimo2_aliases[] = {
    {"rms_norm_eps", "layernorm_epsilon"},
    {"rope_local_base_freq", "swa_rope_theta"},
    {NULL, NULL},
};

static const struct hf_name hf_mimo2_names[] = {
    {"model.layers.{}.self_attn.attention_sink_bias", "blk.{}.attn_sinks.weight", HF_SAME},
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.pre_mlp_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.final_layernorm.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_mimo2_fixed[] = {
    {"norm_topk_prob", "true"},
    {"n_shared_experts", "0"},
    {"scoring_func", "sigmoid"},
    {"topk_method", "noaux_tc"},
    {NULL, NULL},
};

static const struct hf_family hf_mimo2 = {
    .architectures = {"MiMoV2FlashForCausalLM"},
    .arch = "mimo2",
    .predicts = true,
    .aliases = hf_mimo2_aliases,
    .keys = hf_mimo2_keys,
    .names = hf_mimo2_names,
    .fixed = hf_mimo2_fixed,
    .has_layer_types = true,
    .rotary_part = 0.334,
    .finish = finish,
};

const struct model_family model_mimo2 = {
    .members = "MiMo-V2-Flash, MiMo-V2.5",
    .arch = "mimo2",
    .hf = {&hf_mimo2},
    .build = build,
};
