/* Ling 2 and Ring 2 [Ling Team 2025, "Every Activation Boosted", 2]: Llama's decoder with RoPE on a half of each head, norms
 * of the heads of Q and K, and, after some dense layers, a shared expert and experts of the best groups picked by sigmoids
 * with a bias. No program runs the prediction heads of files. Keys: llama.cpp b11434, src/models/bailingmoe2.cpp and
 * conversion/bailingmoe.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

#include <inttypes.h>
#include <stdio.h>

enum { SIGMOID = 2, NAME_BYTES = 96 }; /* expert_gating_func */

/* Reads the shared experts' width from their tensor, because files differ in what the key is the width of. */
static enum err read_shared(struct blocks *b)
{
    b->plan->layer = (int32_t)b->h.n_dense_layers;
    uint64_t rows = blocks_rows_of(b, "blk.%d.ffn_gate_shexp.weight");
    b->plan->layer = PLAN_NONE;
    TRY(blocks_expect(b, rows <= PLAN_MAX_WIDTH, "expert_shared_feed_forward_length",
                      "expected at most %d, found %" PRIu64, PLAN_MAX_WIDTH, rows));
    b->h.n_ff_shared = rows != 0 ? (uint32_t)rows : b->h.n_ff_shared;
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    TRY(blocks_skip_predicting(b));
    b->style.is_neox = true;
    b->style.head_norm = BLOCKS_NORM_EACH;
    struct blocks_moe moe = {.gating = SIGMOID};
    TRY(blocks_read_moe(b, &moe));
    TRY(read_shared(b));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

static const struct hf_key hf_bailing_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"num_shared_experts", "expert_shared_count", HF_U32},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_WORD},
    {"first_k_dense_replace", "leading_dense_block_count", HF_U32},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {"n_group", "expert_group_count", HF_U32},
    {"topk_group", "expert_group_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_bailing_names[] = {
    {"model.word_embeddings.weight", "token_embd.weight", HF_SAME},
    {"model.layers.{}.attention.query_key_value.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"model.layers.{}.attention.query_key_value.bias", "blk.{}.attn_qkv.bias", HF_SAME},
    {"model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"model.layers.{}.attention.dense.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"model.layers.{}.attention.query_layernorm.weight", "blk.{}.attn_q_norm.weight", HF_SAME},
    {"model.layers.{}.attention.key_layernorm.weight", "blk.{}.attn_k_norm.weight", HF_SAME},
    {"model.layers.{}.mlp.gate.expert_bias", "blk.{}.exp_probs_b.bias", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_bailing_fixed[] = {
    {"score_function", "sigmoid"},
    {"norm_topk_prob", "true"},
    {"use_qk_norm", "true"},
    {"use_rmsnorm", "true"},
    {"norm_head", "false"},
    {"using_split_qkv_in_self_attention", "false"},
    {NULL, NULL},
};

/* Readers of GGUF files multiply the shared experts' width by their number. */
static enum err finish(struct hf *h)
{
    char name[NAME_BYTES];
    uint32_t n_dense, n_shared;
    gguf_build_u32(&h->b, hf_key(h, "expert_gating_func"), SIGMOID);
    gguf_build_bool(&h->b, hf_key(h, "expert_weights_norm"), true);
    gguf_build_u32(&h->b, hf_key(h, "nextn_predict_layers"), 0); /* left out, if there are some */
    TRY(hf_get_u32(h, "first_k_dense_replace", 0, PLAN_MAX_LAYERS, 0, &n_dense));
    TRY(hf_get_u32(h, "num_shared_experts", 0, PLAN_MAX_EXPERTS, 0, &n_shared));
    snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_gate_shexp.weight", n_dense);
    const struct gguf_tensor *shared = gguf_build_find(&h->b, name);
    if (shared != NULL && n_shared != 0 && shared->dims[1] % n_shared == 0 && shared->dims[1] <= PLAN_MAX_WIDTH) {
        gguf_build_u32(&h->b, hf_key(h, "expert_shared_feed_forward_length"), (uint32_t)shared->dims[1] / n_shared);
    }
    return ERR_OK;
}

static const struct hf_family hf_bailing = {
    .architectures = {"BailingMoeV2ForCausalLM"},
    .arch = "bailingmoe2",
    .keys = hf_bailing_keys,
    .names = hf_bailing_names,
    .fixed = hf_bailing_fixed,
    .rotary_part = 0.5,
    .finish = finish,
};

const struct model_family model_bailingmoe2 = {
    .members = "Ling 2, Ring 2: mini, flash, 1T",
    .arch = "bailingmoe2",
    .hf = {&hf_bailing},
    .build = build,
};
