/* Latent attention (DeepSeek-V2 and later): SafeTensors folders keep the matrices that make keys and values of a latent
 * in one tensor, GGUF files W_K transposed and W_V as two stacks, one matrix a head. [llama.cpp b11434,
 * conversion/deepseek.py] Threads: pure functions. */
#ifndef INFCGI_CONVERT_CONVERT_LATENT_H
#define INFCGI_CONVERT_CONVERT_LATENT_H

#include "engine/format/gguf.h"

/* *out = g with each blk.N.attn_kv_b.weight [n_latent, heads * (n_nope + n_value)] in two: attn_k_b
 * [n_nope, n_latent, heads] and attn_v_b [n_latent, n_value, heads], and the keys that go with it; NULL when g has
 * none, or keeps them in blocks along the rows. Data stay g's, which must outlive *out. ERR_BAD_TENSOR_SHAPE,
 * ERR_NOMEM, what gguf_build_finish gives. The caller owns *out until gguf_close. */
MUST_CHECK enum err convert_latent_split(const struct gguf *g, struct gguf **out, struct err_info *info);

#endif
