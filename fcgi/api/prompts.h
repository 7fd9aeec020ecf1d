/* Texts of a request, as text or token ids: `prompt` of completions, `input` of embeddings. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_PROMPTS_H
#define INFCGI_FCGI_API_PROMPTS_H

#include "fcgi/json_in.h"
#include "fcgi/route.h"

/* Tokenised; in the arena of the call. */
struct prompts {
    int32_t **ids; /* [n] */
    size_t *n_ids; /* [n] */
    size_t n;
};

struct prompts_rule {
    const char *field;
    size_t max;         /* texts in one request */
    bool takes_mixed;   /* llama-server's forms too: strings between ids, and objects for strings */
    bool refuses_empty; /* texts of no bytes or no tokens, whatever special tokens the vocabulary would add */
};

/* Reads `field` of root: a string, an array of strings, an array of token ids, or an array of such arrays; see takes_mixed.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE with info->where the field or its element; ERR_NOMEM. */
MUST_CHECK enum err prompts_read(struct prompts *p, struct call *c, const json_t *root, const struct prompts_rule *rule,
                                 struct err_info *info);

/* The error for element i of a field, v, which is no token id: ERR_INVALID_VALUE or ERR_INVALID_TYPE. */
enum err prompts_bad_id(const char *field, size_t i, const json_t *v, int64_t n_vocab, struct err_info *info);

#endif
