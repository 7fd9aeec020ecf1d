/* Prompts for the text between two given texts. Threads: pure functions on the call. */
#ifndef INFCGI_FCGI_API_INFILL_H
#define INFCGI_FCGI_API_INFILL_H

#include "fcgi/api/prompts.h"

struct infill {
    const json_t *prefix, *suffix; /* strings */
    const json_t *prompt;          /* OPTIONAL, a string: start of the missing text */
    const json_t *extra;           /* OPTIONAL, an array of {"text": .., "filename": ..} from other files */
    /* Truncate texts to fit the batch and the context, as llama.cpp does, and begin the prompt with the marks of repository
     * and files if the model has them. */
    bool is_cut;
    int64_t n_predict; /* maximum answer tokens; below 0: not known */
};

/* Builds the prompt. ERR_NOT_SUPPORTED: the model has no infill tokens; this is checked before the texts.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE with info->where as in /infill; else as engine_tokenize. */
MUST_CHECK enum err infill_prompt(struct prompts *p, struct call *c, const struct infill *f, struct err_info *info);

/* Applies `suffix` of /v1/completions: each prompt, which is then a string, becomes the text before it. */
MUST_CHECK enum err infill_prompts(struct prompts *p, struct call *c, const json_t *root, struct err_info *info);

#endif
