/* Which layers of a folder see only a window of the nearest positions, as GGUF keys. Threads: pure functions. */
#ifndef INFCGI_HF_HF_LAYERS_H
#define INFCGI_HF_HF_LAYERS_H

#include "engine/hf/hf.h"

/* Adds attention.sliding_window_pattern from layer_types; sliding_window is required if the family's layers have one.
 * Call it before sliding_window itself is read. ERR_BAD_CONFIG, ERR_NOMEM. */
MUST_CHECK enum err hf_add_layer_types(struct hf *h);

/* Adds the window of Qwen2 and Qwen3. A `finish`. use_sliding_window enables it; without layer_types the layers from
 * max_window_layers on have it [transformers 5, configuration_qwen2.py]. ERR_BAD_CONFIG, ERR_NOMEM. */
MUST_CHECK enum err hf_add_optional_window(struct hf *h);

#endif
