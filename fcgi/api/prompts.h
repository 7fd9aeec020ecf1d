/* Texts of a request, as strings or token ids: `prompt` of completions, `input` of embeddings. Threads: pure
 * functions. */
#ifndef INFCGI_FCGI_API_PROMPTS_H
#define INFCGI_FCGI_API_PROMPTS_H

#include "fcgi/wire/json_in.h"
#include "fcgi/wire/call.h"

/* Tokenized texts, in the arena of the call. */
struct prompts {
    int32_t **ids; /* [n] */
    size_t *n_ids; /* [n] */
    bool *has_end; /* [n] the last id is the end token that the vocabulary appends; NULL: not known */
    size_t n;
};

/* Allocates ids and n_ids for n texts; p->n stays. ERR_NOMEM. */
MUST_CHECK enum err prompts_room(struct prompts *p, struct call *c, size_t n);

/* Checks that text i, of n_ids tokens, fits. ERR_CONTEXT_LENGTH with info->where the field; the reply is then told the
 * length. */
typedef enum err (*prompts_check)(struct call *c, const struct prompts *p, size_t i, const char *field,
                                  struct err_info *info);

struct prompts_rule {
    const char *field;
    prompts_check check; /* called after each text, before the next one is tokenized */
    size_t max;          /* maximum texts per request */
    bool takes_mixed;    /* also llama-server's forms: strings between ids, and objects instead of strings */
    bool refuses_empty;  /* reject texts without bytes or tokens, even if the vocabulary would add special tokens */
};

/* The check of prompts that are continued: engine_check_submit accepts them with an answer of no tokens. The answer's
 * length is checked on submission. A prompt without tokens passes this check; running it fails. */
MUST_CHECK enum err prompts_check_length(struct call *c, const struct prompts *p, size_t i, const char *field,
                                         struct err_info *info);

/* Reads `field` of root: a string, an array of strings, an array of token ids, or an array of such arrays; see
 * takes_mixed. ERR_MISSING_PARAMETER, ERR_INVALID_TYPE, ERR_INVALID_VALUE with info->where the field or its element;
 * the rule's check's errors; ERR_NOMEM. */
MUST_CHECK enum err prompts_read(struct prompts *p, struct call *c, const json_t *root, const struct prompts_rule *rule,
                                 struct err_info *info);

/* Reports that element i of a field, v, is no token id: ERR_INVALID_VALUE or ERR_INVALID_TYPE. */
enum err prompts_bad_id(const char *field, size_t i, const json_t *v, int64_t n_vocab, struct err_info *info);

#endif
