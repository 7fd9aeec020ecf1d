/* What folders of DeepSeek-V3 and of models of its structure have in common (deepseek2.c). Threads: a reader belongs to one
 * thread. */
#ifndef INFCGI_MODEL_DEEPSEEK2_H
#define INFCGI_MODEL_DEEPSEEK2_H

#include "engine/model/blocks.h"

/* Rows of a table of keys; the one of a number of leading dense layers that deepseek2_finish reads. */
#define DEEPSEEK2_KEYS                                                                                                 \
    {"head_dim", NULL, HF_U32}, /* of the part with RoPE, in transformers' key */                                      \
        {"kv_lora_rank", "attention.kv_lora_rank", HF_U32}, {"q_lora_rank", "attention.q_lora_rank", HF_U32},          \
        {"v_head_dim", "attention.value_length_mla", HF_U32}, {"n_routed_experts", "expert_count", HF_U32},            \
        {"num_experts_per_tok", "expert_used_count", HF_U32},                                                          \
        {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},                                               \
        {"n_shared_experts", "expert_shared_count", HF_U32}, {"n_group", "expert_group_count", HF_WORD},               \
        {"topk_group", "expert_group_used_count", HF_WORD}, {"norm_topk_prob", "expert_weights_norm", HF_BOOL},        \
    {                                                                                                                  \
        "routed_scaling_factor", "expert_weights_scale", HF_F32                                                        \
    }

#define DEEPSEEK2_DENSE_KEY                                                                                            \
    {                                                                                                                  \
        "first_k_dense_replace", "leading_dense_block_count", HF_WORD                                                  \
    }

/* Rows of a table of names. */
#define DEEPSEEK2_NAMES                                                                                                \
    BLOCKS_LATENT_NAMES, {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias", HF_SAME},     \
        {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},              \
        {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},                  \
    {                                                                                                                  \
        "model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME                 \
    }

/* Rows of a table of fixed values: experts are picked by sigmoids with a bias. */
#define DEEPSEEK2_FIXED                                                                                                \
    {"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}, { "moe_layer_freq", "1" }

/* Adds the width of keys, the gating, groups of experts, and the number of leading dense layers, by default n_dense.
 * ERR_BAD_CONFIG. */
MUST_CHECK enum err deepseek2_finish(struct hf *h, uint32_t n_dense);

#endif
