/* Quantised SafeTensors folders: reads quantization_config of config.json, and presents a weight's codes, scales and
 * zero points as one tensor with rows (hf_quant_rows.h). The tensors present show which weights are quantised, so lists
 * of excluded modules are not read. Threads: a folder being read belongs to one thread. */
#ifndef INFCGI_HF_HF_QUANT_H
#define INFCGI_HF_HF_QUANT_H

#include "engine/hf/hf.h"

struct hf_rows;

/* Reads quantization_config into *out; HF_PLAIN if there is none. ERR_BAD_CONFIG (key, expected, found),
 * ERR_UNSUPPORTED_TYPE for unknown methods and variants, with a list of the known ones. */
MUST_CHECK enum err hf_quant_read(const struct hf *h, struct hf_quant *out);

/* Checks, once all tensors were added, that the folder has what quantization_config names. ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_quant_check(const struct hf *h);

/* Returns whether t is the main tensor of a quantised weight. `plain` then gets the name of the weight as a plain
 * matrix, made from `name`, which is t's (or t's in a text-only model). */
bool hf_quant_is_weight(const struct hf *h, const struct st_tensor *t, const char *name,
                        char plain[SAFETENSORS_MAX_NAME_BYTES + 1]);

/* Binds the weight whose main tensor is t with its scales and other tensors; *out is in h's arena. ERR_MISSING_TENSOR,
 * ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_BAD_CONFIG (tensors and config disagree), ERR_NOMEM. */
MUST_CHECK enum err hf_quant_bind(struct hf *h, const struct st_tensor *t, struct hf_rows **out);

/* Makes the tensor [n_in][n_out] of one weight, or [n_in][n_out][n] of n weights of one width. ERR_BAD_TENSOR_SHAPE
 * names the odd one by `name`. */
MUST_CHECK enum err hf_quant_tensor(struct hf *h, const char *name, struct hf_rows *const *rows, size_t n,
                                    struct gguf_tensor *out);

/* Experts of one layer in one tensor, with alternating rows of gate and up, as in gpt-oss: MXFP4 "<prefix>_blocks"
 * [E][N][K / 32][16] and "<prefix>_scales", or BF16 "<prefix>" [E][K][N]. hf_quant_add_fused adds rows first, first +
 * step, .. of all experts as `name`. ERR_MISSING_TENSOR, ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_NOMEM. */
struct hf_fused {
    const char *prefix;
    uint32_t n_experts, n_out, n_in; /* E, N, K */
    uint32_t first, step;
};
MUST_CHECK enum err hf_quant_add_fused(struct hf *h, const struct hf_fused *f, const char *name);

#endif
