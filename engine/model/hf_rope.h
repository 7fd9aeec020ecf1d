/* config.json's ways to say how RoPE turns, under the keys of GGUF. */
#ifndef INFCGI_MODEL_HF_ROPE_H
#define INFCGI_MODEL_HF_ROPE_H

#include "engine/model/hf.h"

/* Adds rope.* keys and the tensors of factors, from rope_theta, rope_scaling and partial_rotary_factor (transformers 4)
 * or rope_parameters (transformers 5), one for all layers or one for each kind of them. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_add_rope(struct hf *h);

#endif
