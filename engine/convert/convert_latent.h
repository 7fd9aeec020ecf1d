/* Latent attention (DeepSeek-V2 and later): SafeTensors folders keep the matrices for keys and values of a latent in
 * one tensor. GGUF files have W_K transposed and W_V as two stacks, one matrix per head [llama.cpp b11434,
 * conversion/deepseek.py]. Threads: pure functions. */
#ifndef INFCGI_CONVERT_CONVERT_LATENT_H
#define INFCGI_CONVERT_CONVERT_LATENT_H

#include "engine/format/gguf.h"

/* Makes a copy of g with each blk.N.attn_kv_b.weight [n_latent, heads * (n_nope + n_value)] split into attn_k_b
 * [n_nope, n_latent, heads] and attn_v_b [n_latent, n_value, heads], with their keys. *out is NULL if g has none, or
 * keeps them in blocks along the rows. Data stay in g, which must outlive *out. ERR_BAD_TENSOR_SHAPE, ERR_NOMEM, errors
 * of gguf_build_finish. The caller owns *out until gguf_close. */
MUST_CHECK enum err convert_latent_split(const struct gguf *g, struct gguf **out, struct err_info *info);

#endif
