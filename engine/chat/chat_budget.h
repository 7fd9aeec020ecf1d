/* Limits how long a model thinks: counts tokens of thinking and, once the budget is spent, forces the tokens that end
 * it. It finds the format's marks in the text of tokens, as chat_parts.h does, so the model's tokenization does not
 * matter.
 *
 * If calls are read, a call that the model makes while it thinks also ends the thinking. Tokens count until it is
 * certain that a call follows its mark (chat_parts.h); a mark without a call remains thinking. When the budget is
 * spent, a character or mark that has begun can be completed within CHAT_BUDGET_LATE tokens, and a possible call within
 * CHAT_BUDGET_LATE_CALL. Answers in channels can think again later, with the remaining budget.
 *
 * Threads: one budget belongs to one thread at a time. */
#ifndef INFCGI_CHAT_CHAT_BUDGET_H
#define INFCGI_CHAT_CHAT_BUDGET_H

#include "engine/chat/chat_format.h"
#include "engine/tokenizer/tokenizer.h"

enum { CHAT_BUDGET_LATE = 8, CHAT_BUDGET_LATE_CALL = 64, CHAT_BUDGET_TAIL = 64 /* longer than any mark */ };

/* Fields are private. Before the first token the budget only has pointers to objects that live as long as an engine, so
 * its chat_budget_bytes bytes can be copied. Each copy that takes tokens needs chat_budget_fini. */
struct chat_budget {
    const struct tokenizer *tokenizer;
    const struct chat_format *format;
    enum { CHAT_BUDGET_BEFORE, CHAT_BUDGET_IN, CHAT_BUDGET_OVER } state;
    int32_t left;           /* tokens of thinking left */
    int32_t n_late;         /* tokens that came after the budget was spent */
    size_t n_space, n_mark; /* BEFORE: bytes of white space, and of the mark so far */
    bool reads_calls;
    struct chat_split *calls;    /* IN: reads the thinking from the first mark of a call on; NULL before that */
    char tail[CHAT_BUDGET_TAIL]; /* the last bytes to search for marks */
    size_t n_tail;
    size_t i_end, n_end; /* of the tokens that end the thinking: taken so far, and all */
    int32_t end[];       /* [n_end] */
};

size_t chat_budget_bytes(size_t n_end);

struct chat_budget_config {
    const struct chat_format *format;
    const struct tokenizer *tokenizer;
    int32_t n_tokens; /* 0 ends the thinking immediately */
    bool has_begun;   /* the prompt has begun the thinking */
    bool reads_calls; /* calls in the answer are read */
    const int32_t *end;
    size_t n_end; /* end[n_end]: ids of the tokens that end the thinking */
};

/* Initialises a budget at the beginning of an answer, within chat_budget_bytes(n_end). format and tokenizer are
 * borrowed, the ids are copied. */
void chat_budget_init(struct chat_budget *b, const struct chat_budget_config *config);

/* Frees what b owns, but not b. Can be called repeatedly, and from any thread that has b to itself. */
void chat_budget_fini(struct chat_budget *b);

/* Returns the token that must come now; TOKENIZER_NO_TOKEN: any can. */
int32_t chat_budget_next(const struct chat_budget *b);

/* Records a token. If it is not the required one, the budget leaves the rest of the answer alone. */
void chat_budget_take(struct chat_budget *b, int32_t id);

#endif
