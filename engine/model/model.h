/* Model families: from a GGUF file to a checked plan. Each family is one file engine/model/<family>.c and one row in
 * model_families.c; blocks.h has what families share. Nothing here computes. Threads: pure functions. */
#ifndef INFCGI_MODEL_MODEL_H
#define INFCGI_MODEL_MODEL_H

#include "engine/base/err.h"
#include "engine/format/gguf.h"
#include "engine/plan/plan.h"

struct blocks;
struct hf_family;

enum { MODEL_MAX_HF = 4 }; /* kinds of SafeTensors folders per family */

struct model_family {
    const char *members;                      /* common names of the models: "Llama 2, Llama 3, SmolLM" */
    const char *arch;                         /* general.architecture in GGUF files: "llama" */
    const struct hf_family *hf[MODEL_MAX_HF]; /* as SafeTensors folders (hf.h), if any; the rest is NULL */

    /* Reads hyper-parameters of b->g, binds its tensors and appends the steps to b->plan. The caller has set b's g,
     * arch, plan, n_ctx (as model_build's) and info. ERR_BAD_HPARAM, ERR_BAD_TYPE, ERR_MISSING_TENSOR,
     * ERR_BAD_TENSOR_SHAPE, ERR_UNSUPPORTED_TYPE, ERR_NOMEM. */
    enum err (*build)(struct blocks *b);
};

/* Returns the i-th row of the table; NULL after the last. */
const struct model_family *model_family_at(int i);

/* Opens a model: a GGUF file, any part of a split one, or a SafeTensors folder. Fails as gguf_open or hf_open does. */
MUST_CHECK enum err model_open(const char *path, struct gguf **out, struct err_info *info);

/* Writes which family is nearest to a file of an unknown one, and what separates them: "'qwen3'; it does not read
 * blk.*.attn_gate.weight and 2 more; the file lacks output_norm.weight". "": no family reads most of its tensors. Takes
 * the time of one model_build for each family. */
enum { MODEL_NEAREST_BYTES = 1024 };
void model_nearest(const struct gguf *g, char out[MODEL_NEAREST_BYTES]);

enum { MODEL_DEFAULT_CTX = 32768 };

/* Builds and checks the plan for g's family. g must outlive the plan. n_ctx: the longest sequence to be run, which
 * determines the RoPE of some models; 0: the training context, at most MODEL_DEFAULT_CTX. ERR_UNSUPPORTED_ARCH names
 * the nearest family and lists all; otherwise fails as the family's build. On failure *out is NULL. */
MUST_CHECK enum err model_build(const struct gguf *g, uint32_t n_ctx, struct plan **out, struct err_info *info);
/* Like model_build, with the prediction head if the file has one. */
MUST_CHECK enum err model_build_predicting(const struct gguf *g, uint32_t n_ctx, struct plan **out,
                                           struct err_info *info);
/* Returns the kind of prediction head that the file has alone: eagle3.c, gemma4_assistant.c; NULL: none, it is a model. */
const struct model_family *model_head_of(const struct gguf *g);
/* Builds the plan of such a head for the model of file `of_file` and plan `of`, for plan_join. All must outlive it. Errors
 * as model_build; on failure *out is NULL. */
MUST_CHECK enum err model_build_head(const struct gguf *g, const struct gguf *of_file, const struct plan *of,
                                     uint32_t n_ctx, struct plan **out, struct err_info *info);

/* Returns whether the file `head` has a prediction head for the model of g: it has one, and is of the same family, layers
 * and width; or it has a head alone (model_head_of), for whatever model. */
bool model_has_head_of(const struct gguf *head, const struct gguf *g);

/* Like model_build, with what the file `draft` has to guess tokens: a prediction head for g's model, or a draft model
 * (plan_join.h), whose plan is then *draft_plan and must outlive *out. The file must outlive both. Errors of the draft
 * begin with "draft-model: ". Fails as model_build and plan_join do. */
MUST_CHECK enum err model_build_drafting(const struct gguf *g, const struct gguf *draft, uint32_t n_ctx,
                                         struct plan **out, struct plan **draft_plan, struct err_info *info);
/* Like model_build, or with `predicts` like model_build_predicting, with another table of families, which NULL ends. */
MUST_CHECK enum err model_build_from(const struct model_family *const *table, const struct gguf *g, uint32_t n_ctx,
                                     bool predicts, struct plan **out, struct err_info *info);

#endif
