/* How long a model may think: counts tokens of thinking, and once there were enough says which must come, those that end it. It
 * looks for the format's marks in the text of tokens, as chat_parts.h does, so that it does not matter into which tokens a model
 * cuts them.
 *
 * Where calls are read, a call that the model makes while it thinks ends the thinking too. Tokens count until it is certain that
 * a call follows its mark (chat_parts.h); a mark without a call remains thinking. A character, or a mark, that has begun when the
 * budget is spent may become whole first, within CHAT_BUDGET_LATE tokens, and what may be a call within CHAT_BUDGET_LATE_CALL.
 * Answers in channels may think again later, with what is left.
 * Threads: one budget belongs to one thread at a time. */
#ifndef INFCGI_CHAT_CHAT_BUDGET_H
#define INFCGI_CHAT_CHAT_BUDGET_H

#include "engine/chat/chat_format.h"
#include "engine/tokenizer/tokenizer.h"

enum { CHAT_BUDGET_LATE = 8, CHAT_BUDGET_LATE_CALL = 64, CHAT_BUDGET_TAIL = 64 /* longer than any mark */ };

/* Fields are private. Before the first token it holds only pointers to what lives as long as an engine, so its bytes, of which there
 * are chat_budget_bytes, may be copied. Each copy that takes tokens needs chat_budget_fini. */
struct chat_budget {
    const struct tokenizer *tokenizer;
    const struct chat_format *format;
    enum { CHAT_BUDGET_BEFORE, CHAT_BUDGET_IN, CHAT_BUDGET_OVER } state;
    int32_t left;           /* tokens that may still be of thinking */
    int32_t n_late;         /* came when there were none */
    size_t n_space, n_mark; /* BEFORE: white space, and bytes of the mark so far */
    bool reads_calls;
    struct chat_split *calls;    /* IN: reads the thinking from the first mark of a call on; NULL before it */
    char tail[CHAT_BUDGET_TAIL]; /* the last bytes of what is looked at */
    size_t n_tail;
    size_t i_end, n_end; /* of the tokens that must come, so many came */
    int32_t end[];       /* [n_end] */
};

size_t chat_budget_bytes(size_t n_end);

/* At the beginning of an answer, within chat_budget_bytes(n_end). n_tokens: 0 = thinking ends at once; end[n_end]: ids of the tokens
 * that end it, copied; has_begun: the prompt has begun the thinking; reads_calls: calls in the answer are read. format and tokenizer
 * are borrowed. */
void chat_budget_init(struct chat_budget *b, const struct chat_format *format, const struct tokenizer *tokenizer,
                      int32_t n_tokens, bool has_begun, bool reads_calls, const int32_t *end, size_t n_end);

/* Frees what b holds, but not b. May be called more than once, and from any thread that alone has b. */
void chat_budget_fini(struct chat_budget *b);

/* The token that must come now; TOKENIZER_NO_TOKEN: any may. */
int32_t chat_budget_next(const struct chat_budget *b);

/* A token came. Another than must leaves the rest of the answer alone. */
void chat_budget_take(struct chat_budget *b, int32_t id);

#endif
