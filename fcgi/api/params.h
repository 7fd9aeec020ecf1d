/* Requests for generated text, of every API: their settings, and the parts of a chat in the form that templates and
 * constraints read. Each API has a table of its fields; params_read reads them and those that need their own code.
 * Ranges are in docs/api.md. Threads: a call's own. */
#ifndef INFCGI_FCGI_API_PARAMS_H
#define INFCGI_FCGI_API_PARAMS_H

#include "engine/chat/chat_parts.h"
#include "engine/engine.h"
#include "fcgi/api/constraint.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/tools.h"
#include "fcgi/wire/call.h"

/* From params_init to params_fini. Borrowed members point into the call's JSON. */
struct params {
    struct engine_params gen;
    const char *model;    /* as requested, borrowed, or NULL */
    int64_t n;            /* choices per prompt, 1 .. PARAMS_MAX_N */
    int64_t best_of;      /* 0: absent */
    int64_t logprobs;     /* completions: 0..20, -1: absent */
    int64_t top_logprobs; /* chat: 0..20, -1: absent */
    bool want_logprobs;   /* chat */
    bool stream, echo, include_usage, return_token_ids;
    struct constraint constraint; /* form of the answer; borrowed */
    bool tells_probs;             /* completion_probabilities */
    bool cache_prompt;            /* false: neither use the prefix cache nor leave prefixes for other requests */
    bool timings_per_token, return_progress,
        verbose; /* llama-server's: timings in each event; prompt progress before the first token; __verbose */
    int64_t id_slot, t_max_ms; /* t_max_ms: from the first token, applied after a newline; 0: no limit */
    const char *suffix;        /* completions: borrowed; NULL: none */
    /* For chats: */
    json_t *messages;             /* owned; checked and completed by messages_check */
    struct tools tools;           /* owned */
    json_t *kwargs;               /* owned: variables for the template, a client's JSON of any type; NULL: none */
    const char *effort;           /* static: reasoning_effort; NULL: not given */
    int64_t think_budget;         /* thinking tokens, -1: not given */
    const char *think_words;      /* borrowed: text that ends thinking at the budget; NULL: not given */
    const char *reasoning_format; /* static: whether thinking is separate from the content; NULL: not given */
    bool add_generation_prompt, has_begin; /* has_..: the request gives the value */
    bool continues, has_continue;          /* the answer continues the last message */
    struct chat_split_config split;        /* formats to find in answers */
    enum chat_thinking thinking;           /* thinking that the finished prompt allows */
    int32_t *prompt;                       /* [n_prompt], in the call's arena */
    size_t n_prompt;
};

enum { PARAMS_MAX_N = 128, PARAMS_MAX_STOP_IDS = 64 };

#define PARAMS_AT(member) offsetof(struct params, member)
#define PARAMS_INT32_TOP  2147483647.0

/* Rows that the tables of several APIs have. */
#define PARAMS_SAMPLING                                                                                                \
    {"temperature", FIELD_FLOAT, PARAMS_AT(gen.sampling.temperature), 0, 2},                                           \
        {"top_p", FIELD_FLOAT, PARAMS_AT(gen.sampling.top_p), 0, 1},                                                   \
        {"top_k", FIELD_INT32, PARAMS_AT(gen.sampling.top_k), -1, PARAMS_INT32_TOP},                                   \
        {"min_p", FIELD_FLOAT, PARAMS_AT(gen.sampling.min_p), 0, 1},                                                   \
        {"repeat_penalty", FIELD_FLOAT, PARAMS_AT(gen.sampling.repeat_penalty), 0.01, 10},                             \
        {"presence_penalty", FIELD_FLOAT, PARAMS_AT(gen.sampling.presence_penalty), -2, 2},                            \
        {"frequency_penalty", FIELD_FLOAT, PARAMS_AT(gen.sampling.frequency_penalty), -2, 2},                          \
    {                                                                                                                  \
        "seed", FIELD_UINT64, PARAMS_AT(gen.sampling.seed), 0, 0                                                       \
    }

#define PARAMS_THINKING                                                                                                \
    {"thinking_token_budget", FIELD_INT, PARAMS_AT(think_budget), -1, PARAMS_INT32_TOP},       /* vLLM's */            \
        {"thinking_budget", FIELD_INT, PARAMS_AT(think_budget), -1, PARAMS_INT32_TOP},         /* Qwen's */            \
        {"reasoning_budget_tokens", FIELD_INT, PARAMS_AT(think_budget), -1, PARAMS_INT32_TOP}, /* llama-server's */    \
        {"thinking_budget_tokens", FIELD_INT, PARAMS_AT(think_budget), -1, PARAMS_INT32_TOP},                          \
        {"reasoning_budget", FIELD_INT, PARAMS_AT(think_budget), -1, PARAMS_INT32_TOP},                                \
    {                                                                                                                  \
        "reasoning_budget_message", FIELD_STRING, PARAMS_AT(think_words), 0, 1024                                      \
    }

/* Sets the defaults. Call once, before params_read. */
void params_init(struct params *p, const struct call *c);
void params_fini(struct params *p);

/* Reads the fields of `object` that the table lists: its rows into *p or, for a table with more rows, into the struct
 * that begins with *p; and fields with their own code (stop, logit_bias, response_format ..) if the table has a row of
 * that name. Data it points to is in the call's arena. On failure info->where is the field. */
MUST_CHECK enum err params_read(struct params *p, struct call *c, const struct field_table *table, const json_t *object,
                                struct err_info *info);

/* Adds a stop string, copied. ERR_INVALID_TYPE, ERR_INVALID_VALUE, ERR_NOMEM. */
MUST_CHECK enum err params_add_stop(struct params *p, struct call *c, const json_t *v, struct err_info *info);

/* Returns the i-th reasoning format: a names_fn. */
const char *params_reasoning_format_name(int i);

/* Builds p->gen.grammar from the constraint fields, after p->thinking. Call before the call's JSON is freed. Stays NULL
 * without a constraint. Errors name the position in the request: ERR_INVALID_VALUE for two constraints; those of
 * engine_grammar_*. */
bool params_has_grammar(const struct params *p);
bool params_has_text_grammar(const struct params *p); /* the same without response_format */
MUST_CHECK enum err params_grammar(struct params *p, struct engine *e, struct err_info *info);

#endif
