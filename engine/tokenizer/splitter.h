/* Cutting text by regular expressions that run one after the other, each on the pieces that the one before left: what
 * tokenizer.json calls a Sequence of Split pre-tokenizers with behaviour Isolated. A match is a piece and so is the
 * text between two matches; an empty match only cuts. The expressions run through PCRE2, compiled to machine code where
 * that is allowed, and never far beyond what they look at (splitter.c), so that the time is linear in the text.
 *
 * Threads: a splitter is read-only and may be shared; a splitting belongs to one thread. */
#ifndef INFCGI_TOKENIZER_SPLITTER_H
#define INFCGI_TOKENIZER_SPLITTER_H

#include "engine/base/err.h"
#include "engine/tokenizer/budget.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPLITTER_MAX_STAGES = 8, SPLITTER_MAX_PATTERN = 64 << 10 /* bytes of all, as rewritten for PCRE2 */ };

struct splitter;

/* Compiles n_patterns (0 .. SPLITTER_MAX_STAGES; 0: the text is one word) expressions in Oniguruma's syntax. `key`
 * names them in messages. ERR_UNSUPPORTED_PRETOKENIZER (with the expression and the place in it), ERR_NOMEM. */
MUST_CHECK enum err splitter_new(const char *const *patterns, size_t n_patterns, const char *key, struct splitter **out,
                                 struct err_info *info);
void splitter_free(struct splitter **p);

/* Where the work stands in one of the pieces. Private to splitter.c. */
struct splitter_level {
    size_t from, to;             /* the piece, in the text */
    size_t at;                   /* what was given out ends here */
    size_t match_from, match_to; /* a match found ahead; match_to 0: none */
    size_t search;               /* no match begins before */
    size_t run_from, run_to, run_left;
    bool run_ends_word;
};

/* One text being cut. */
struct splitting {
    const struct splitter *p;
    const char *s; /* valid UTF-8 */
    struct budget *budget;
    void *match;  /* OPTIONAL pcre2_match_data */
    void *limits; /* OPTIONAL pcre2_match_context */
    /* Expressions that are slow without PCRE2 telling. */
    uint64_t since_ns, used_ns; /* when the clocks were read, that of the thread for the last time n_timed ago */
    uint64_t n_timed;           /* attempts */
    unsigned n_slow;            /* times that the clocks told of slow ones */
    unsigned metering;          /* attempts that are yet to be counted step by step */
    size_t depth;
    struct splitter_level level[SPLITTER_MAX_STAGES];
};

/* Begins a text s[0..n), valid UTF-8, which must stay until splitting_end, as must the budget. ERR_NOMEM. */
MUST_CHECK enum err splitting_begin(struct splitting *c, const struct splitter *p, const char *s, size_t n,
                                    struct budget *budget);

/* *end: where the next word ends; call while the last one ended before n. ERR_PATTERN_LIMIT when the expressions want
 * more work than the budget has; ERR_CANCELLED (budget.h), ERR_NOMEM. */
MUST_CHECK enum err splitting_next(struct splitting *c, size_t *end);
void splitting_end(struct splitting *c);

#endif
