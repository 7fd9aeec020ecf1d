/* The gated delta rule's value heads, of which several read one key head: SafeTensors folders keep those of the first
 * key head, then those of the second; GGUF files of Qwen3.5 the first ones of all key heads, then the second ones
 * [llama.cpp b11434, conversion/qwen.py]. Threads: a folder being read belongs to one thread. */
#ifndef INFCGI_MODEL_HF_DELTA_H
#define INFCGI_MODEL_HF_DELTA_H

#include "engine/model/hf.h"

/* Brings h's tensors of linear attention into the order of GGUF files: rows of attn_qkv, attn_gate, ssm_beta, ssm_alpha
 * and ssm_conv1d, elements of ssm_a and ssm_dt.bias, inputs of ssm_out. Tensors of other shapes than linear_num_* and
 * linear_*_head_dim of config.json say stay as they are, for the builder to refuse. ERR_BAD_CONFIG,
 * ERR_UNSUPPORTED_TYPE (quantised in blocks that two heads share), ERR_NOMEM. */
MUST_CHECK enum err hf_tile_value_heads(struct hf *h);

#endif
