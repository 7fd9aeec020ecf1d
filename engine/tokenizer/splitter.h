/* Splits text by regular expressions that run in sequence, each on the pieces of the previous one: tokenizer.json's
 * Sequence of Split pre-tokenizers with behavior Isolated. A match is a piece, and so is the text between two matches;
 * an empty match only splits. The expressions run through PCRE2, compiled to machine code if allowed, and see little
 * more than the text they examine (splitter.c), so the time is linear in the text.
 *
 * Threads: a splitter is read-only and can be shared; a splitting belongs to one thread. */
#ifndef INFCGI_TOKENIZER_SPLITTER_H
#define INFCGI_TOKENIZER_SPLITTER_H

#include "engine/base/err.h"
#include "engine/tokenizer/budget.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPLITTER_MAX_STAGES = 8, SPLITTER_MAX_PATTERN = 64 << 10 /* bytes of all patterns, rewritten for PCRE2 */ };

struct splitter;

/* Compiles n_patterns (0 .. SPLITTER_MAX_STAGES; 0: the text is one word) expressions in Oniguruma's syntax. `key`
 * names them in messages. ERR_UNSUPPORTED_PRETOKENIZER (with the expression and the offset in it), ERR_NOMEM. */
MUST_CHECK enum err splitter_new(const char *const *patterns, size_t n_patterns, const char *key, struct splitter **out,
                                 struct err_info *info);
void splitter_free(struct splitter **splitter);

/* The position within one of the pieces. Private to splitter.c. */
struct splitter_level {
    size_t from, to;             /* the piece, in the text */
    size_t at;                   /* the end of the returned pieces */
    size_t match_from, match_to; /* a match found ahead; match_to 0: none */
    size_t search;               /* no match begins before this */
    size_t run_from, run_to, run_left;
    bool run_ends_word;
};

/* State while one text is split. */
struct splitting {
    const struct splitter *p;
    const char *s; /* valid UTF-8 */
    struct budget *budget;
    void *match;  /* OPTIONAL pcre2_match_data */
    void *limits; /* OPTIONAL pcre2_match_context */
    /* Finds expressions whose slowness PCRE2 does not report. */
    uint64_t since_ns, used_ns; /* time of the last clock readings; the thread's was n_timed attempts ago */
    uint64_t n_timed;           /* attempts */
    unsigned n_slow;            /* times that the clocks found slow attempts */
    unsigned metering;          /* attempts still to be metered */
    size_t depth;
    struct splitter_level level[SPLITTER_MAX_STAGES];
};

/* Begins to split s[0..n), valid UTF-8. The text and the budget must stay until splitting_end. ERR_NOMEM. */
MUST_CHECK enum err splitting_begin(struct splitting *c, const struct splitter *p, const char *s, size_t n,
                                    struct budget *budget);

/* *end: the end of the next word; call it until *end is n. ERR_PATTERN_LIMIT if the expressions need more work than the
 * budget has; ERR_CANCELLED (budget.h), ERR_NOMEM. */
MUST_CHECK enum err splitting_next(struct splitting *c, size_t *end);
void splitting_end(struct splitting *c);

#endif
