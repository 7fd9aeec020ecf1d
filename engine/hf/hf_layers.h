/* Which layers of a folder see only a window of the nearest positions, under the keys of GGUF. Threads: pure
 * functions. */
#ifndef INFCGI_HF_HF_LAYERS_H
#define INFCGI_HF_HF_LAYERS_H

#include "engine/hf/hf.h"

/* attention.sliding_window_pattern from layer_types; sliding_window must be there where the family's layers have one.
 * To be called before sliding_window itself is read. ERR_BAD_CONFIG, ERR_NOMEM. */
MUST_CHECK enum err hf_add_layer_types(struct hf *h);

/* The window of Qwen2 and Qwen3, a `finish`: use_sliding_window says whether there is one; without layer_types the
 * layers from max_window_layers on have it [transformers 5, configuration_qwen2.py]. ERR_BAD_CONFIG, ERR_NOMEM. */
MUST_CHECK enum err hf_add_optional_window(struct hf *h);

#endif
