/* Heads of the gated delta rule from the order of SafeTensors folders to that of GGUF files [llama.cpp b11434,
 * conversion/qwen.py]. Several value heads read one key head: folders keep those of the first key head, then those of
 * the second; GGUF files of Qwen3.5 the first ones of all key heads, then the second ones. Folders of Qwen3-Next keep
 * q, k, values and their gates together for each key head; GGUF files all q, all k, all values in one tensor, all gates
 * in another. Threads: a folder being read belongs to one thread. */
#ifndef INFCGI_HF_HF_DELTA_H
#define INFCGI_HF_HF_DELTA_H

#include "engine/hf/hf.h"

/* Brings h's tensors of linear attention into the order of GGUF files: rows of attn_qkv, attn_gate, ssm_beta, ssm_alpha
 * and ssm_conv1d, elements of ssm_a and ssm_dt.bias, inputs of ssm_out. Tensors of other shapes than linear_num_* and
 * linear_*_head_dim of config.json say stay as they are, for the builder to refuse. ERR_BAD_CONFIG,
 * ERR_UNSUPPORTED_TYPE (quantised in blocks that two heads share), ERR_NOMEM. */
MUST_CHECK enum err hf_tile_value_heads(struct hf *h);

/* attn_qkv, which the folder's table of names has made of in_proj_qkvz, as attn_qkv and attn_gate. Otherwise the same.
 */
MUST_CHECK enum err hf_split_key_heads(struct hf *h);

#endif
