/* Reorders heads of the gated delta rule from SafeTensors folders to GGUF files [llama.cpp b11434, conversion/qwen.py].
 * Several value heads read one key head. Folders keep all value heads of the first key head, then those of the second.
 * GGUF files of Qwen3.5 keep the first value heads of all key heads, then the second ones. Folders of Qwen3-Next keep
 * q, k, values and their gates together per key head. GGUF files have all q, all k and all values in one tensor, all
 * gates in another. Threads: a folder being read belongs to one thread. */
#ifndef INFCGI_HF_HF_DELTA_H
#define INFCGI_HF_HF_DELTA_H

#include "engine/hf/hf.h"

/* Reorders h's tensors of linear attention for GGUF: rows of attn_qkv, attn_gate, ssm_beta, ssm_alpha and ssm_conv1d,
 * elements of ssm_a and ssm_dt.bias, inputs of ssm_out. Leaves tensors whose shapes do not match linear_num_* and
 * linear_*_head_dim of config.json for the builder to reject. ERR_BAD_CONFIG, ERR_UNSUPPORTED_TYPE (quantised in blocks
 * that two heads share), ERR_NOMEM. */
MUST_CHECK enum err hf_tile_value_heads(struct hf *h);

/* Splits attn_qkv, which the folder's table of names made from in_proj_qkvz, into attn_qkv and attn_gate. Otherwise
 * like hf_tile_value_heads. */
MUST_CHECK enum err hf_split_key_heads(struct hf *h);

#endif
