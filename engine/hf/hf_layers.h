/* Which layers of a folder see only a window of the nearest positions, or have no RoPE, as GGUF keys. Threads: pure functions. */
#ifndef INFCGI_HF_HF_LAYERS_H
#define INFCGI_HF_HF_LAYERS_H

#include "engine/hf/hf.h"
#include "engine/plan/plan.h"

/* Adds attention.sliding_window_pattern from layer_types; sliding_window is required if the family's layers have one.
 * Call it before sliding_window itself is read. ERR_BAD_CONFIG, ERR_NOMEM. */
MUST_CHECK enum err hf_add_layer_types(struct hf *h);

/* Adds the window of Qwen2 and Qwen3. A `finish`. use_sliding_window enables it; without layer_types the layers from
 * max_window_layers on have it [transformers 5, configuration_qwen2.py]. ERR_BAD_CONFIG, ERR_NOMEM. */
MUST_CHECK enum err hf_add_optional_window(struct hf *h);

/* Reads a list of a 0 or a 1 per layer, which can be longer than the model; without it, or if it is empty, *found is
 * false and out unchanged. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_get_flags(const struct hf *h, const char *key, uint32_t n_layers, bool *found,
                                 unsigned char out[PLAN_MAX_LAYERS]);

/* Reads which layers have RoPE: no_rope_layers has a 1 for each. Without it, the last of each no_rope_layer_interval
 * layers has none; `interval` is the default [transformers 5, SmolLM3Config, Llama4TextConfig]. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_get_rope_layers(const struct hf *h, uint32_t interval, uint32_t *n_layers,
                                       unsigned char has_rope[PLAN_MAX_LAYERS]);

/* Adds "<arch>.<key>", a boolean per layer, unless the values are those that its absence means: false for the last of
 * each `period` layers (0: for none). */
void hf_add_pattern(struct hf *h, const char *key, uint32_t n_layers, const unsigned char *is_set, uint32_t period);

#endif
