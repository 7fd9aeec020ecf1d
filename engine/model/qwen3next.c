/* Qwen3-Next [Qwen Team 2025, "Qwen3-Next"] and Qwen3.5: Qwen3's decoder, dense or with experts and a gated shared one.
 * Three of four layers are linear attention by the gated delta rule. Attention has a gate, too, and RoPE on a quarter
 * of each head. RoPE of three position ids (mrope) is plain RoPE for text, whose three ids are equal.
 *
 * Keys: llama.cpp b11434, src/models/qwen3next.cpp, qwen35.cpp, qwen35moe.cpp and conversion/qwen.py. Formulas: Hugging
 * Face transformers 5.23, modeling_qwen3_next.py and modeling_qwen3_5.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_delta.h"
#include "engine/hf/hf_rope.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 128 };

/* is_tiled: the value heads of all key heads alternate, as in GGUF files of Qwen3.5; in files of Qwen3-Next one key
 * head's value heads follow another's. */
static enum err build(struct blocks *b, bool is_tiled)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    s->gates_attention = true;
    s->ffn_norm = "blk.%d.post_attention_norm.weight";
    TRY(blocks_read_delta(b, is_tiled));
    struct blocks_moe moe = {.gating = 1, .norms_weights = true, .gates_shared = true, .n_shared = 1};
    if (b->plan->moe.n_experts != 0) {
        TRY(blocks_read_moe(b, &moe));
    }
    return blocks_build_decoder(b);
}

static enum err build_next(struct blocks *b) { return build(b, false); }

static enum err build_35(struct blocks *b) { return build(b, true); }

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_qwen3next_keys[] = {
    {"linear_conv_kernel_dim", "ssm.conv_kernel", HF_U32},
    {"linear_key_head_dim", "ssm.state_size", HF_U32},
    {"linear_num_key_heads", "ssm.group_count", HF_U32},
    {"linear_num_value_heads", "ssm.time_step_rank", HF_U32},
    {"full_attention_interval", "full_attention_interval", HF_U32},
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {NULL, NULL, HF_U32},
};

/* For all families; folders of a family lack tensors that it does not have. */
static const struct hf_name hf_qwen3next_names[] = {
    {"model.norm.weight", "output_norm.weight", HF_PLUS_ONE},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", HF_PLUS_ONE},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_PLUS_ONE},
    {"model.layers.{}.enorm.weight", "blk.{}.nextn.enorm.weight", HF_PLUS_ONE},
    {"model.layers.{}.hnorm.weight", "blk.{}.nextn.hnorm.weight", HF_PLUS_ONE},
    {"model.layers.{}.shared_head.norm.weight", "blk.{}.nextn.shared_head_norm.weight", HF_PLUS_ONE},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", HF_PLUS_ONE},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", HF_PLUS_ONE},
    {"model.layers.{}.linear_attn.in_proj_qkvz.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"model.layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight", HF_SAME},
    {"model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"model.layers.{}.linear_attn.in_proj_z.weight", "blk.{}.attn_gate.weight", HF_SAME},
    {"model.layers.{}.linear_attn.in_proj_b.weight", "blk.{}.ssm_beta.weight", HF_SAME},
    {"model.layers.{}.linear_attn.in_proj_a.weight", "blk.{}.ssm_alpha.weight", HF_SAME},
    {"model.layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight", HF_CONV},
    {"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a", HF_MINUS_EXP},
    {"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias", HF_SAME},
    {"model.layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight", HF_SAME},
    {"model.layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight", HF_SAME},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", HF_DROP}, /* for add_gate_up */
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight", HF_DROP},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight", HF_FLAT},
    {NULL, NULL, HF_SAME},
};

/* Adds which layers are linear, if layer_types says so; else the interval decides. */
static enum err add_kinds(struct hf *h, uint32_t n_layers)
{
    unsigned char is_linear[PLAN_MAX_LAYERS + 1] = {0}; /* that of the head is false */
    const json_t *types = json_read_get(h->config, "layer_types");
    if (types == NULL) {
        return ERR_OK;
    }
    if (json_array_size(types) != n_layers) {
        return hf_bad(h, "layer_types", "expected an array of %" PRIu32 " elements, one a layer, found %zu", n_layers,
                      json_array_size(types));
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        is_linear[i] = type != NULL && strcmp(type, "linear_attention") == 0;
        if (type == NULL || (!is_linear[i] && strcmp(type, "full_attention") != 0)) {
            return err_set(h->info, ERR_BAD_CONFIG, "layer_types",
                           "config.json: layer_types[%" PRIu32
                           "]: expected linear_attention or full_attention, found '%.64s'",
                           i, type != NULL ? type : "");
        }
    }
    gguf_build_array(&h->b, hf_key(h, "attention.recurrent_layers"), GGUF_BOOL, n_layers + h->has_head, is_linear);
    return ERR_OK;
}

/* Splits gate and up of all experts of a layer, if the folder has them in one tensor. */
static enum err add_gate_up(struct hf *h, uint32_t layer, bool is_head)
{
    static const char *const prefixes[] = {"model.language_model.", "model.", "mtp.", "model.mtp."};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        char from[NAME_BYTES], gate[NAME_BYTES], up[NAME_BYTES];
        bool is_mtp = i >= 2;
        snprintf(from, sizeof from, "%slayers.%" PRIu32 ".mlp.experts.gate_up_proj", prefixes[i], is_mtp ? 0 : layer);
        if (is_mtp != is_head) {
            continue;
        }
        if (safetensors_folder_find(h->tensors, from) != NULL) {
            snprintf(gate, sizeof gate, "blk.%" PRIu32 ".ffn_gate_exps.weight", layer);
            snprintf(up, sizeof up, "blk.%" PRIu32 ".ffn_up_exps.weight", layer);
            return hf_add_expert_halves(h, from, gate, up);
        }
    }
    return ERR_OK;
}

static enum err finish(struct hf *h)
{
    uint32_t n_layers, n_heads, dim;
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "linear_num_value_heads", 1, PLAN_MAX_HEADS, UINT64_MAX, &n_heads));
    TRY(hf_get_u32(h, "linear_value_head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &dim));
    gguf_build_u32(&h->b, hf_key(h, "ssm.inner_size"), n_heads * dim);
    TRY(add_kinds(h, n_layers));
    for (uint32_t i = 0; i < n_layers; i++) {
        TRY(add_gate_up(h, i, false));
    }
    return h->has_head ? add_gate_up(h, n_layers, true) : ERR_OK;
}

static enum err finish_next(struct hf *h)
{
    TRY(hf_check_sparse(h));
    TRY(finish(h));
    return hf_split_key_heads(h);
}

static enum err finish_35(struct hf *h)
{
    TRY(finish(h));
    TRY(hf_add_sections(h, (const int32_t[4]){11, 11, 10, 0})); /* transformers' default */
    return hf_tile_value_heads(h);
}

#define FOLDER(family, finishes, ...)                                                                                  \
    {                                                                                                                  \
        .architectures = {__VA_ARGS__}, .arch = (family), .predicts = true, .has_layer_types = true,                   \
        .keys = hf_qwen3next_keys, .names = hf_qwen3next_names, .rotary_part = 0.25, .finish = (finishes)              \
    }
static const struct hf_family hf_qwen3next = FOLDER("qwen3next", finish_next, "Qwen3NextForCausalLM");
static const struct hf_family hf_qwen35 =
    FOLDER("qwen35", finish_35, "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration");
static const struct hf_family hf_qwen35moe =
    FOLDER("qwen35moe", finish_35, "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration");

const struct model_family model_qwen3next = {
    .members = "Qwen3-Next 80B-A3B, Qwen3-Coder-Next",
    .arch = "qwen3next",
    .hf = {&hf_qwen3next},
    .build = build_next,
};

const struct model_family model_qwen35 = {
    .members = "Qwen3.5 0.8B, 2B, 4B, 9B, 27B (text)",
    .arch = "qwen35",
    .hf = {&hf_qwen35},
    .build = build_35,
};

const struct model_family model_qwen35moe = {
    .members = "Qwen3.5 35B-A3B and other MoE (text)",
    .arch = "qwen35moe",
    .hf = {&hf_qwen35moe},
    .build = build_35,
};
