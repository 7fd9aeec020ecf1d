/* The request fields that chat and text completions share: their table, and fields that need their own code. Ranges are
 * in docs/api.md. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_PARAMS_H
#define INFCGI_FCGI_API_PARAMS_H

#include "engine/chat/chat_parts.h"
#include "engine/engine.h"
#include "fcgi/api/constraint.h"
#include "fcgi/wire/json_in.h"

struct params {
    struct engine_params gen;
    const char *model;    /* as requested, or NULL */
    int64_t n;            /* choices per prompt, 1 .. PARAMS_MAX_N */
    int64_t max_tokens;   /* -1: until the context is full */
    int64_t best_of;      /* 0: absent */
    int64_t logprobs;     /* completions: 0..20, -1: absent */
    int64_t top_logprobs; /* chat: 0..20, -1: absent */
    bool want_logprobs;   /* chat */
    bool stream, echo, include_usage, return_token_ids;
    bool add_generation_prompt;
    bool continues;               /* chat: the answer continues the last message */
    struct constraint constraint; /* form of the answer; borrowed from root */
    bool tells_probs;             /* completion_probabilities */
    bool cache_prompt;            /* false: neither use the prefix cache nor leave prefixes for other requests */
    bool timings_per_token, return_progress,
        verbose; /* llama-server's: timings in each event; prompt progress before the first token; __verbose */
    int64_t id_slot, t_max_ms;      /* t_max_ms: from the first token, applied after a newline; 0: no limit */
    const char *suffix;             /* completions: borrowed from root; NULL: none */
    struct chat_split_config split; /* chat: formats to find in answers; chat.c sets its tools */
    enum chat_thinking thinking;    /* chat: thinking that the finished prompt allows */
    int64_t think_budget;           /* chat: thinking tokens, -1: not given */
    const char *think_words;        /* chat: from root, text that ends thinking at the budget; NULL: not given */
    const json_t *root;             /* borrowed; NULL after the prompt is built */
};

enum { PARAMS_MAX_N = 128, PARAMS_MAX_STOP_IDS = 64 };

/* Sets defaults in *p and reads the fields of `root` into it. Data it points to is in the arena. is_chat selects the
 * table. On failure info->where is the field. */
MUST_CHECK enum err params_read(struct params *p, const json_t *root, bool is_chat, bool strict, const struct engine *e,
                                struct arena *arena, struct err_info *info);

/* Returns whether reasoning_format of `root`, or `otherwise` if it is absent, separates thinking from the content.
 * NULL: yes. */
bool params_splits_reasoning(const json_t *root, const char *otherwise);

/* Returns the i-th reasoning format: a names_fn. */
const char *params_reasoning_format_name(int i);

/* Builds p->gen.grammar, owned by the caller, from the constraint fields, after p->thinking. Call before p->root is
 * cleared. Stays NULL without a constraint. Errors name the position in the request: ERR_INVALID_VALUE for two
 * constraints; those of engine_grammar_*. */
bool params_has_grammar(const struct params *p);
bool params_has_text_grammar(const struct params *p); /* the same without response_format */
MUST_CHECK enum err params_grammar(struct params *p, struct engine *e, struct err_info *info);

/* Returns the i-th field of the chat or completion table, for tests and checks of docs; NULL beyond the last. */
const struct field *params_field(bool is_chat, int i);

#endif
