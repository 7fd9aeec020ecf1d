/* Quantised SafeTensors folders: what quantization_config of config.json says, and a weight's codes, scales and zero
 * points as one tensor with rows (hf_quant_rows.h). Which weights are quantised is seen from which tensors there are,
 * so lists of modules left alone need no reading. Threads: a folder being read belongs to one thread. */
#ifndef INFCGI_HF_HF_QUANT_H
#define INFCGI_HF_HF_QUANT_H

#include "engine/hf/hf.h"

struct hf_rows;

/* Reads quantization_config into *out; none is HF_PLAIN. ERR_BAD_CONFIG (key, wanted, found), ERR_UNSUPPORTED_TYPE for
 * methods and variants that are not known, naming those that are. */
MUST_CHECK enum err hf_quant_read(const struct hf *h, struct hf_quant *out);

/* Once all tensors were added: does the folder hold what quantization_config names? ERR_BAD_CONFIG. */
MUST_CHECK enum err hf_quant_check(const struct hf *h);

/* When t is the main tensor of a quantised weight: true, and in `plain` the name that the weight would have as a plain
 * matrix, made of `name`, which is t's (or t's in a model of text alone). */
bool hf_quant_is_weight(const struct hf *h, const struct st_tensor *t, const char *name,
                        char plain[SAFETENSORS_MAX_NAME_BYTES + 1]);

/* The weight whose main tensor is t, with its scales and whatever else belongs to it; of h's arena. ERR_MISSING_TENSOR,
 * ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_BAD_CONFIG (tensors and config say different things), ERR_NOMEM. */
MUST_CHECK enum err hf_quant_bind(struct hf *h, const struct st_tensor *t, struct hf_rows **out);

/* The tensor [n_in][n_out] of one weight, or [n_in][n_out][n] of n weights of one width. ERR_BAD_TENSOR_SHAPE names the
 * odd one by `name`. */
MUST_CHECK enum err hf_quant_tensor(struct hf *h, const char *name, struct hf_rows *const *rows, size_t n,
                                    struct gguf_tensor *out);

/* Experts of one layer in one tensor, rows of gate and up in turns, as gpt-oss has them: MXFP4 "<prefix>_blocks" [E][N]
 * [K / 32][16] and "<prefix>_scales", or BF16 "<prefix>" [E][K][N]. Adds rows first, first + step, .. of all experts as
 * `name`. ERR_MISSING_TENSOR, ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_NOMEM. */
struct hf_fused {
    const char *prefix;
    uint32_t n_experts, n_out, n_in; /* E, N, K */
    uint32_t first, step;
};
MUST_CHECK enum err hf_quant_add_fused(struct hf *h, const struct hf_fused *f, const char *name);

#endif
