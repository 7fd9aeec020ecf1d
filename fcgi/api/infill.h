/* Prompts that ask for what is missing between two texts. Threads: pure functions on the call. */
#ifndef INFCGI_FCGI_API_INFILL_H
#define INFCGI_FCGI_API_INFILL_H

#include "fcgi/api/prompts.h"

struct infill {
    const json_t *prefix, *suffix; /* strings */
    const json_t *prompt;          /* OPTIONAL, a string: how the missing text begins */
    const json_t *extra;           /* OPTIONAL, an array of {"text": .., "filename": ..}: of other files */
    bool is_cut;       /* texts are cut to what a batch and the context have room for, as in llama.cpp; then the
                                    * prompt begins with the marks of a repository and its files, where the model has them */
    int64_t n_predict; /* tokens that the answer may take; below 0: not known */
};

/* Makes the prompt. ERR_NOT_SUPPORTED: the model has no such tokens; what is wrong with the texts is not looked for before.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE with info->where of /infill; as engine_tokenize. */
MUST_CHECK enum err infill_prompt(struct call *c, const struct infill *f, int32_t **ids, size_t *n,
                                  struct err_info *info);

/* `suffix` of /v1/completions: each of the prompts, which are strings then, goes before it. */
MUST_CHECK enum err infill_prompts(struct prompts *p, struct call *c, const json_t *root, struct err_info *info);

#endif
