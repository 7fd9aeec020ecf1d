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

const struct hf_name blocks_gemma_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};
