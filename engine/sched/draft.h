/* Drafts tokens without a draft model ("prompt lookup"): if a sequence's last tokens occurred in it before, the tokens
 * that followed them are guessed to follow again. The step that computes the last token also computes the guessed ones
 * [Leviathan 2023, "Fast Inference from Transformers via Speculative Decoding"; Yang 2023, "Inference with Reference"].
 *
 * Three parts: an index that finds the longest earlier match, a record of the acceptance rate per match length, and the
 * measured cost of a step by its rows. From these draft_plan chooses how far ahead to guess, down to not at all if
 * drafts would not pay. A guess costs nothing to make, so the record continues while nothing is drafted: it notices
 * guesses that start to come true without a wasted row. Drafts never change a sequence's text. Threads: one at a time
 * per struct. */
#ifndef INFCGI_SCHED_DRAFT_H
#define INFCGI_SCHED_DRAFT_H

#include "engine/base/mem.h"
#include "engine/sched/draft_counts.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DRAFT_MAX = 31,        /* most tokens guessed ahead in a step: they reach into one more KV page, never two */
    DRAFT_MAX_MATCH = 32,  /* tokens of context that a match is compared over; 2 or more */
    DRAFT_LEVELS = 8,      /* groups of match lengths, each with its own record */
    DRAFT_CANDIDATES = 16, /* earlier positions checked for one guess */
    DRAFT_GUESSES = 8,     /* most tokens that a prediction head guesses ahead */
};

/* The state of a sequence's guesses. Zeroed: no index, never a guess. */
struct draft {
    int32_t *heads; /* [mask + 1] position where a pair of tokens with this hash last ended; 0: none */
    int32_t *prevs; /* [n_max] previous position with the same hash; 0: none */
    uint32_t mask;
    int32_t n_indexed;         /* pairs that end before this position are in the index */
    int32_t source;            /* position of the token guessed to come next; 0: no guess */
    int32_t n_match;           /* tokens before source that equal the sequence's last ones; 2 .. DRAFT_MAX_MATCH */
    float rates[DRAFT_LEVELS]; /* share of guesses that came true, 0..1 */
    int32_t n_seen[DRAFT_LEVELS];
    /* Guesses from a better source than the index, such as a grammar; they come first. Those from i_forced on are
     * left. */
    int32_t forced[DRAFT_MAX];
    int32_t i_forced, n_forced;
    float forced_rate; /* share of these that came true */
    int32_t n_forced_seen;
    /* Guesses of a prediction head or a draft model, which the caller sets. Those from i_guess on are left. */
    enum draft_source guesser; /* DRAFT_HEAD, initially, or DRAFT_MODEL */
    int32_t guesses[DRAFT_GUESSES];
    int32_t i_guess, n_guesses;
    int32_t n_before;                 /* forced guesses left that these follow */
    float guess_rates[DRAFT_GUESSES]; /* share of i-th guesses that came true after those before them */
    int32_t n_guess_seen[DRAFT_GUESSES];
};

/* Allocates in the arena for a sequence of n_max tokens: 6 to 8 bytes per token. n_max 0: nothing, there is no index.
 * ERR_NOMEM: then *d is all zero. */
MUST_CHECK enum err draft_init(struct draft *d, int32_t n_max, struct arena *a);

/* Indexes the pairs of tokens[0..n); the first n_indexed are unchanged. */
void draft_index(struct draft *d, const int32_t *tokens, int32_t n);

/* Looks for a guess after tokens[0..n) unless the last one still holds, and sets d->source. The tokens after the source
 * can follow too, including guessed ones that the caller has appended after tokens[n-1]. */
void draft_look(struct draft *d, const int32_t *tokens, int32_t n);

/* Records whether tokens[n-1], which has just arrived, was guessed, and advances the guess or drops it. */
void draft_learn(struct draft *d, const int32_t *tokens, int32_t n);

/* Moves guess_rates this part of the way back to their start values. */
void draft_relearn(struct draft *d, float part);

/* Returns the probability that the i-th guess (from 0) comes true if those before it do; 0 without a guess. */
double draft_rate(const struct draft *d, int32_t i);

/* Returns the number of forced guesses, and of those of the head. */
static inline int32_t draft_n_forced(const struct draft *d) { return d->n_forced - d->i_forced; }
static inline int32_t draft_n_guesses(const struct draft *d) { return d->n_guesses - d->i_guess; }

/* Returns whether the head's next guess is likelier to come true than the index's, and both are for the same position:
 * none is forced, or the head's follow the forced ones. is_ahead: the head has none yet, but would make one. */
bool draft_prefers_head(const struct draft *d, bool is_ahead);

/* Returns how many of d's guesses come before those of the index: the forced ones and the head's. */
int32_t draft_n_first(const struct draft *d);

/* Returns whether the match found in tokens[0..n) begins with the guesses that come first, so that it can continue
 * them. */
bool draft_agrees(const struct draft *d, const int32_t *tokens, int32_t n);

/* Returns the i-th guess after tokens[0..n); the caller has appended the guesses before it. */
int32_t draft_token(const struct draft *d, const int32_t *tokens, int32_t i);

/* Returns where the i-th guess comes from. */
enum draft_source draft_source_of(const struct draft *d, int32_t i);

/* What a model with experts reads: each row picks n_used of n_all. Zeroed: no experts. */
struct draft_experts {
    double part; /* of the weights' bytes that a step of one row reads: those of experts, 0..1 */
    uint32_t n_used, n_all;
};

/* Times of steps that only decode, by rows. Entries not seen for long are estimated from their neighbours: part of the
 * time is for reading weights, which rows share, except for experts that only one of them picks. */
struct draft_costs {
    struct draft_experts experts;
    double ns[DRAFT_MAX + 2]; /* moving average, following short times faster than long ones; 0: never seen */
    uint64_t seen_at[DRAFT_MAX + 2];
    uint64_t n_steps;
};
/* n_rows >= 1; ignores larger counts than the table has */
void draft_costs_note(struct draft_costs *c, int32_t n_rows, uint64_t ns);

/* Makes all known times shorter by this part, so that what seemed too slow is measured again. */
void draft_costs_fade(struct draft_costs *c, float part);

/* Fills ns[1 .. DRAFT_MAX + 1]; all 0 if no step was ever seen. */
void draft_costs_get(const struct draft_costs *c, double *ns);

struct draft_offer {
    const struct draft *draft;
    int32_t n_max; /* tokens it could guess ahead now, 0 or more */
    int32_t n;     /* out: tokens to draft */
};

/* Distributes draft rows among the sequences of a step that has n_offers rows without drafts, to maximise expected
 * tokens per time. Uses at most max_rows rows and, unless 0, max_ns. */
void draft_plan(const struct draft_costs *c, struct draft_offer *offers, int32_t n_offers, int32_t max_rows,
                uint64_t max_ns);

/* Returns how many tokens, 0 to DRAFT_GUESSES, the head should guess ahead for each of n sequences, to maximise expected
 * tokens per time. rates: [DRAFT_GUESSES] their mean guess_rates. head: times of the head's runs by rows; it runs once
 * per guess. */
int32_t draft_plan_guesses(const struct draft_costs *c, const struct draft_costs *head, int32_t n, const float *rates);

#endif
