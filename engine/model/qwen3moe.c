/* Qwen3-MoE [Qwen Team 2025, "Qwen3 Technical Report", 2]: Qwen3's decoder with experts as feed-forward blocks, without
 * a shared one. The text part of Qwen3-VL-MoE is the same (qwen3.c says why). Keys: llama.cpp b11434,
 * src/models/qwen3moe.cpp and qwen3vlmoe.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf_rope.h"

#include <inttypes.h>
#include <stdio.h>

enum { NAME_BYTES = 96 };

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true;
    s->head_norm = BLOCKS_NORM_EACH;
    struct blocks_moe moe = {.gating = 1, .norms_weights = true};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

static const struct hf_key hf_qwen3moe_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {NULL, NULL, HF_U32},
};

/* Their weights are always divided by their sum. */
static const struct hf_key hf_qwen3vlmoe_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_qwen3vlmoe_names[] = {
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", HF_DROP}, /* for add_experts */
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight", HF_DROP},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", HF_DROP},
    {NULL, NULL, HF_SAME},
};

static const struct hf_alias hf_qwen3vlmoe_aliases[] = {
    {"num_experts", "num_local_experts"},
    {NULL, NULL},
};

static const struct hf_family hf_qwen3moe = {
    .architectures = {"Qwen3MoeForCausalLM"},
    .arch = "qwen3moe",
    .keys = hf_qwen3moe_keys,
    .fixed = blocks_no_window,
    .finish = hf_check_sparse,
};

/* Adds a tensor with all experts of a layer, if the folder has one. gate_up_proj becomes two. */
static enum err add_experts(struct hf *h, uint32_t layer, bool is_down, uint32_t n_out, uint32_t n_in)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "model."};
    char from[NAME_BYTES], as[2][NAME_BYTES];
    snprintf(as[0], NAME_BYTES, "blk.%" PRIu32 ".ffn_%s_exps.weight", layer, is_down ? "down" : "gate");
    snprintf(as[1], NAME_BYTES, "blk.%" PRIu32 ".ffn_up_exps.weight", layer);
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        snprintf(from, sizeof from, "%slayers.%" PRIu32 ".mlp.experts.%s_proj", prefixes[i], layer,
                 is_down ? "down" : "gate_up");
        if (safetensors_folder_find(h->tensors, from) != NULL) {
            return hf_add_experts(h, from, n_out, n_in, false, (const char *const[]){as[0], is_down ? NULL : as[1]});
        }
    }
    return ERR_OK; /* one tensor per expert */
}

static enum err finish_vl(struct hf *h)
{
    uint32_t n_layers, n_embd, n_ff;
    TRY(hf_check_sparse(h));
    TRY(hf_get_u32(h, "num_hidden_layers", 1, PLAN_MAX_LAYERS, UINT64_MAX, &n_layers));
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_embd));
    TRY(hf_get_u32(h, "moe_intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_ff));
    for (uint32_t i = 0; i < n_layers; i++) {
        TRY(add_experts(h, i, false, 2 * n_ff, n_embd));
        TRY(add_experts(h, i, true, n_embd, n_ff));
    }
    return hf_add_qwen3vl(h);
}

/* Of the nested text_config, config.json has only differences [transformers 5.23, Qwen3VLMoeTextConfig]. */
static const struct hf_family hf_qwen3vlmoe = {
    .architectures = {"Qwen3VLMoeForConditionalGeneration"},
    .arch = "qwen3vlmoe",
    .aliases = hf_qwen3vlmoe_aliases,
    .defaults = "{\"hidden_size\": 2048, \"intermediate_size\": 5632, \"num_hidden_layers\": 24,"
                " \"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"max_position_embeddings\": 128000,"
                " \"rms_norm_eps\": 1e-6, \"rope_theta\": 5e5, \"moe_intermediate_size\": 1408,"
                " \"num_experts_per_tok\": 4, \"num_experts\": 60}",
    .keys = hf_qwen3vlmoe_keys,
    .names = hf_qwen3vlmoe_names,
    .finish = finish_vl,
};

const struct model_family model_qwen3moe = {
    .members = "Qwen3 30B-A3B, 235B-A22B, Qwen3-Coder",
    .arch = "qwen3moe",
    .hf = {&hf_qwen3moe},
    .build = build,
};

const struct model_family model_qwen3vlmoe = {
    .members = "Qwen3-VL 30B-A3B, 235B-A22B (text)",
    .arch = "qwen3vlmoe",
    .hf = {&hf_qwen3vlmoe},
    .build = build,
};
