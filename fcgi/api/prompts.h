/* Texts of a request, as text or token ids: `prompt` of completions, `input` of embeddings. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_PROMPTS_H
#define INFCGI_FCGI_API_PROMPTS_H

#include "fcgi/wire/json_in.h"
#include "fcgi/wire/call.h"

/* Tokenised; in the arena of the call. */
struct prompts {
    int32_t **ids; /* [n] */
    size_t *n_ids; /* [n] */
    bool *has_end; /* [n] the last id is the end token that the vocabulary adds to a text; NULL: not known */
    size_t n;
};

/* Is text i, of n_ids tokens, short enough? ERR_CONTEXT_LENGTH, info->where the field; the reply then knows how long it is. */
typedef enum err (*prompts_check)(struct call *c, size_t i, const int32_t *ids, size_t n_ids, const char *field,
                                  struct err_info *info);

struct prompts_rule {
    const char *field;
    prompts_check check; /* asked after each text, before the next one is tokenized */
    size_t max;          /* texts in one request */
    bool takes_mixed;    /* llama-server's forms too: strings between ids, and objects for strings */
    bool refuses_empty;  /* texts of no bytes or no tokens, whatever special tokens the vocabulary would add */
};

/* The check of prompts that are continued: engine_check_submit takes them with an answer of no tokens. The length of the answer is
 * checked when it is submitted. A prompt without tokens passes here, and what runs it refuses it. */
MUST_CHECK enum err prompts_check_length(struct call *c, size_t i, const int32_t *ids, size_t n_ids, const char *field,
                                         struct err_info *info);

/* Reads `field` of root: a string, an array of strings, an array of token ids, or an array of such arrays; see takes_mixed.
 * ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE with info->where the field or its element; as the rule's check;
 * ERR_NOMEM. */
MUST_CHECK enum err prompts_read(struct prompts *p, struct call *c, const json_t *root, const struct prompts_rule *rule,
                                 struct err_info *info);

/* The error for element i of a field, v, which is no token id: ERR_INVALID_VALUE or ERR_INVALID_TYPE. */
enum err prompts_bad_id(const char *field, size_t i, const json_t *v, int64_t n_vocab, struct err_info *info);

#endif
