/* Model families: from a GGUF file to a checked plan. Each family is one file engine/model/<family>.c and one row in
 * model_families.c; what families share is in blocks.h. Nothing here computes.
 * Threads: pure functions. */
#ifndef INFCGI_MODEL_MODEL_H
#define INFCGI_MODEL_MODEL_H

#include "engine/base/err.h"
#include "engine/format/gguf.h"
#include "engine/plan/plan.h"

struct model_family {
    const char *name;    /* "llama", for docs and messages */
    const char *members; /* what people call the models: "Llama 2, Llama 3, SmolLM" */
    const char *arch;    /* general.architecture in GGUF files */

    /* Reads hyper-parameters of g, binds its tensors and appends the steps to p. ERR_BAD_HPARAM, ERR_BAD_TYPE,
     * ERR_MISSING_TENSOR, ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_NOMEM. */
    enum err (*build)(const struct gguf *g, struct plan *p, struct err_info *info);
};

/* i-th row of the table; NULL beyond the last. */
const struct model_family *model_family_at(int i);

/* Builds and checks the plan for the family that g names. g must outlive the plan. ERR_UNSUPPORTED_ARCH lists the known
 * ones; otherwise as build. On failure *out is NULL. */
MUST_CHECK enum err model_build(const struct gguf *g, struct plan **out, struct err_info *info);

#endif
