/* The request fields that chat and text completions share: their table, and the ones that need code of their own.
 * Ranges are in docs/api.md. Threads: pure functions. */
#ifndef INFCGI_FCGI_API_PARAMS_H
#define INFCGI_FCGI_API_PARAMS_H

#include "engine/chat/chat_parts.h"
#include "engine/engine.h"
#include "fcgi/api/constraint.h"
#include "fcgi/wire/json_in.h"

struct params {
    struct engine_params gen;
    const char *model;    /* as asked for, or NULL */
    int64_t n;            /* choices of a prompt, 1 .. PARAMS_MAX_N */
    int64_t max_tokens;   /* -1 = until the context is full */
    int64_t best_of;      /* 0 = absent */
    int64_t logprobs;     /* completions: 0..20, -1 = absent */
    int64_t top_logprobs; /* chat: 0..20, -1 = absent */
    bool want_logprobs;   /* chat */
    bool stream, echo, include_usage, return_token_ids;
    bool add_generation_prompt;
    bool continues;               /* chat: the answer goes on with the last message */
    struct constraint constraint; /* the form of the answer; of root */
    bool tells_probs;             /* completion_probabilities */
    bool cache_prompt;            /* false: nothing is found in the prefix cache, and nothing left there for others */
    bool timings_per_token, return_progress,
        verbose;                    /* llama-server's: each event tells them; told before the first token; ..
                                                       * __verbose */
    int64_t id_slot, t_max_ms;      /* t_max_ms: from the first token on, once there is a new line; 0 = no limit */
    const char *suffix;             /* completions: of root, NULL = none */
    struct chat_split_config split; /* chat: what to look for in answers; its tools are chat.c's */
    enum chat_thinking thinking;    /* chat: what the prompt, once it is made, leaves room for */
    int64_t think_budget;           /* chat: tokens of thinking, -1 = not said */
    const char *think_words;        /* chat: of root, what ends it when that is spent; NULL = not said */
    const json_t *root;             /* borrowed, and NULL once the prompt is made */
};

enum { PARAMS_MAX_N = 128, PARAMS_MAX_STOP_IDS = 64 };

/* Reads the fields of `root` into *p, whose defaults are set first; what it points to lies in the arena. is_chat chooses
 * the table. On failure info->where is the field. */
MUST_CHECK enum err params_read(struct params *p, const json_t *root, bool is_chat, bool strict, const struct engine *e,
                                struct arena *arena, struct err_info *info);

/* Does reasoning_format of `root`, or `otherwise` where it is not there, ask for thinking apart from the content? NULL: yes. */
bool params_splits_reasoning(const json_t *root, const char *otherwise);

/* The formats that there are: a names_fn. */
const char *params_reasoning_format_name(int i);

/* Makes p->gen.grammar, the caller's, of what the fields ask for, behind p->thinking; before p->root goes. It stays NULL where they
 * ask for none. An error names the place in the request: ERR_INVALID_VALUE: two of them; engine_grammar_*'s. */
bool params_has_grammar(const struct params *p);
bool params_has_text_grammar(const struct params *p); /* .. but for response_format */
MUST_CHECK enum err params_grammar(struct params *p, struct engine *e, struct err_info *info);

/* Fields of the chat or the completion table, for tests and docs checks; NULL beyond the last. */
const struct field *params_field(bool is_chat, int i);

#endif
