/* DeepSeek-V2 and V3 [DeepSeek-AI 2024, "DeepSeek-V2"; "DeepSeek-V3 Technical Report"] and models of their structure:
 * Llama's decoder with latent attention, and routed and shared experts after some dense layers. V2 picks experts by a
 * softmax, from the groups with the best expert; V3 by sigmoids with a bias, from the groups with the best two. GLM-4.7-Flash
 * is as V3; Mistral 4 picks as V2 without groups, and its queries grow with the position. Keys: llama.cpp b11434,
 * src/models/deepseek2.cpp. */
#include "engine/model/deepseek2.h"

#include <math.h>
#include <string.h>

enum { GLM_LITE_VOCAB = 154880 };

static enum err build(struct blocks *b)
{
    b->is_latent = true;
    TRY(blocks_read_hparams(b));
    TRY(blocks_read_latent_scale(b));
    struct blocks_style *s = &b->style;
    TRY(blocks_read_predicting(b));
    TRY(blocks_get_f32(b, "attention.temperature_scale", 0.0, 1e3, 0.0, &s->query_beta)); /* Mistral Large 3 */
    TRY(blocks_get_u32(b, "attention.temperature_length", 1, UINT32_MAX / 2, b->h.n_ctx_train, &s->query_period));
    if (b->plan->moe.n_experts == 0) {
        return blocks_build_decoder(b);
    }
    /* The first files of GLM-4.7-Flash lack the key for picking by sigmoids. */
    bool is_glm = b->h.n_vocab == GLM_LITE_VOCAB && (b->h.n_layers == 47 || b->h.n_layers == 48);
    struct blocks_moe moe = {.gating = is_glm ? 2 : 1};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_deepseek_keys[] = {
    {"first_k_dense_replace", "leading_dense_block_count", HF_U32},
    DEEPSEEK2_KEYS,
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_deepseek_names[] = {
    DEEPSEEK2_NAMES,
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_v2_fixed[] = {
    {"scoring_func", "softmax"},
    {"topk_method", "greedy or group_limited_greedy"},
    {"moe_layer_freq", "1"},
    {NULL, NULL},
};

static const struct hf_fixed hf_v3_fixed[] = {
    DEEPSEEK2_FIXED,
    {NULL, NULL},
};

static void put_u32(struct hf *h, const char *key, uint32_t v) { gguf_build_u32(&h->b, hf_key(h, key), v); }

/* Adds values that need more than a name: the width of a whole key; groups of experts, whether or not they are used. */
static enum err finish(struct hf *h, uint32_t gating, bool has_groups)
{
    uint32_t nope, rope, n_groups, n_used;
    TRY(hf_get_u32(h, "qk_nope_head_dim", 1, 1 << 16, UINT64_MAX, &nope));
    TRY(hf_get_u32(h, "qk_rope_head_dim", 1, 1 << 16, UINT64_MAX, &rope));
    put_u32(h, "attention.key_length_mla", nope + rope);
    put_u32(h, "expert_gating_func", gating);
    TRY(hf_get_u32(h, "n_group", 0, UINT32_MAX, 1, &n_groups));
    TRY(hf_get_u32(h, "topk_group", 0, UINT32_MAX, n_groups, &n_used));
    put_u32(h, "expert_group_count", has_groups ? n_groups : 1);
    put_u32(h, "expert_group_used_count", has_groups ? n_used : 1);
    return ERR_OK;
}

static enum err finish_v2(struct hf *h)
{
    const char *method = json_string_value(json_read_get(h->config, "topk_method"));
    return finish(h, 1, method != NULL && strcmp(method, "group_limited_greedy") == 0);
}

static enum err finish_v3(struct hf *h) { return finish(h, 2, true); }

enum err deepseek2_finish(struct hf *h, uint32_t n_dense)
{
    TRY(hf_get_u32(h, "first_k_dense_replace", 0, PLAN_MAX_LAYERS, n_dense, &n_dense));
    TRY(hf_get_dense(h, n_dense, &n_dense));
    put_u32(h, "leading_dense_block_count", n_dense);
    return finish_v3(h);
}

static enum err finish_glm(struct hf *h) { return deepseek2_finish(h, 1); } /* transformers 5.23, Glm4MoeLiteConfig */

/* Queries grow beyond the original context [transformers 5.23, get_llama_4_attn_scale]. */
static enum err finish_mistral4(struct hf *h)
{
    const json_t *rope = json_read_get(h->config, "rope_parameters");
    double beta, original;
    rope = rope != NULL ? rope : json_read_get(h->config, "rope_scaling");
    TRY(hf_get_f64(h, rope, "llama_4_scaling_beta", 0, 1e3, 0, &beta));
    if (beta != 0) {
        TRY(hf_get_f64(h, rope, "original_max_position_embeddings", 1, 1 << 30, NAN, &original));
        gguf_build_f32(&h->b, hf_key(h, "attention.temperature_scale"), (float)beta);
        put_u32(h, "attention.temperature_length", (uint32_t)original);
    }
    return finish(h, 1, false);
}

static const struct hf_family hf_v2 = {
    .architectures = {"DeepseekV2ForCausalLM"},
    .arch = "deepseek2",
    .keys = hf_deepseek_keys,
    .names = hf_deepseek_names,
    .fixed = hf_v2_fixed,
    .has_rope_pairs = true,
    .finish = finish_v2,
};

static const struct hf_family hf_v3 = {
    .architectures = {"DeepseekV3ForCausalLM"},
    .arch = "deepseek2",
    .predicts = true,
    .defaults = "{\"num_nextn_predict_layers\": 1}", /* transformers 5, DeepseekV3Config */
    .keys = hf_deepseek_keys,
    .names = hf_deepseek_names,
    .fixed = hf_v3_fixed,
    .has_rope_pairs = true,
    .finish = finish_v3,
};

/* Like hf_deepseek_keys, except that leading dense layers are in a list. */
static const struct hf_key hf_glm_keys[] = {
    DEEPSEEK2_DENSE_KEY,
    DEEPSEEK2_KEYS,
    {NULL, NULL, HF_U32},
};

static const struct hf_family hf_glm = {
    .architectures = {"Glm4MoeLiteForCausalLM"},
    .arch = "deepseek2",
    .predicts = true,
    .defaults = "{\"num_nextn_predict_layers\": 1}",
    .keys = hf_glm_keys,
    .names = hf_deepseek_names,
    .fixed = hf_v3_fixed,
    .has_rope_pairs = true,
    .finish = finish_glm,
};

/* Of a nested text_config, config.json has only differences [transformers 5.23, Mistral4Config]. */
#define MISTRAL4_DEFAULTS                                                                                              \
    "{\"hidden_size\": 4096, \"intermediate_size\": 12288, \"moe_intermediate_size\": 2048,"                           \
    " \"num_hidden_layers\": 36, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"n_shared_experts\": 1,"   \
    " \"n_routed_experts\": 128, \"kv_lora_rank\": 256, \"q_lora_rank\": 1024, \"qk_rope_head_dim\": 64,"              \
    " \"v_head_dim\": 128, \"qk_nope_head_dim\": 64, \"num_experts_per_tok\": 4, \"norm_topk_prob\": true,"            \
    " \"max_position_embeddings\": 1048576, \"rms_norm_eps\": 1e-6}"

static const struct hf_fixed hf_mistral4_fixed[] = {
    {"n_group", "1"},
    {"topk_group", "1"},
    {NULL, NULL},
};

/* All experts of a layer are in two tensors, each with the gate's rows before those of `up`. */
static const struct hf_name hf_mistral4_names[] = {
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight", HF_SAME},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", HF_SAME},
    DEEPSEEK2_NAMES,
    {NULL, NULL, HF_SAME},
};

const struct hf_family blocks_hf_mistral4 = {
    .architectures = {"Mistral4ForCausalLM"},
    .arch = "mistral4",
    .defaults = MISTRAL4_DEFAULTS,
    .keys = hf_deepseek_keys,
    .names = hf_mistral4_names,
    .fixed = hf_mistral4_fixed,
    .rotates_of_key = true,
    .has_rope_pairs = true,
    .finish = finish_mistral4,
};

const struct model_family model_deepseek2 = {
    .members = "DeepSeek-V2, DeepSeek-V3, DeepSeek-R1, Kimi-K2, GLM-4.7-Flash",
    .arch = "deepseek2",
    .hf = {&hf_v2, &hf_v3, &hf_glm},
    .build = build,
};

const struct model_family model_mistral4 = {
    .members = "Mistral Small 4 (text)",
    .arch = "mistral4",
    .hf = {&blocks_hf_mistral4},
    .build = build,
};
