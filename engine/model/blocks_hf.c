/* Tables of SafeTensors folders that families share. */
#include "engine/model/blocks.h"

const struct hf_key blocks_window_keys[] = {
    {"sliding_window", "attention.sliding_window", HF_U32},
    {NULL, NULL, HF_U32},
};

const struct hf_fixed blocks_no_window[] = {
    {"use_sliding_window", "false"},
    {NULL, NULL},
};

const struct hf_key blocks_sigmoid_keys[] = {
    {"n_routed_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"n_shared_experts", "expert_shared_count", HF_U32},
    {"first_k_dense_replace", "leading_dense_block_count", HF_U32},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {"n_group", "expert_group_count", HF_U32},
    {"topk_group", "expert_group_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

const struct hf_name blocks_gemma_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};
