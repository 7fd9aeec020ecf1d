/* RoPE parameters of config.json, as GGUF keys. */
#ifndef INFCGI_HF_HF_ROPE_H
#define INFCGI_HF_HF_ROPE_H

#include "engine/hf/hf.h"

/* Adds rope.* keys and the tensors of factors, from rope_theta, rope_scaling and partial_rotary_factor (transformers 4)
 * or rope_parameters (transformers 5), one for all layers or one per kind of layer. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_add_rope(struct hf *h);

/* Adds rope.dimension_sections from mrope_section, else `fallback`: the pairs that rotate by each of the three positions
 * of a row. Unused here, because these are equal in text, but other readers of GGUF files need it. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_add_sections(struct hf *h, const int32_t fallback[4]);

/* Adds rope.dimension_sections and n_deepstack_layers of Qwen3-VL: the number of first layers that images add to, which
 * other readers of GGUF files need too. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_add_qwen3vl(struct hf *h);

/* Reads a value that only global layers have: under its own name, or as `per_layer` of one of them in per_layer_config,
 * where newer versions of transformers write differences from the plain `per_layer`. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_get_global(const struct hf *h, const char *name, const char *per_layer, uint32_t fallback,
                                  uint32_t *out);

enum { HF_GLOBAL_HEAD_DIM = 512 }; /* if config.json has none [transformers 5, configuration_gemma4.py] */

#endif
