/* Drafts without a draft model: what followed a sequence's last tokens when they stood in it before is guessed to
 * follow again ("prompt lookup"), and the step that computes the last token computes the guessed ones behind it too
 * [Leviathan 2023, "Fast Inference from Transformers via Speculative Decoding"; Yang 2023, "Inference with Reference"].
 *
 * Three parts: an index that finds the longest earlier match, a record of how often guesses came true by length of
 * match, and the measured cost of a step by its rows. From these draft_plan chooses how far ahead to guess, which is
 * not at all where that would not pay. A guess costs nothing to make, so the record goes on while nothing is drafted:
 * one that starts to come true is noticed without a wasted row. Nothing here decides what a sequence says. Threads: one
 * at a time for each struct. */
#ifndef INFCGI_SCHED_DRAFT_H
#define INFCGI_SCHED_DRAFT_H

#include "engine/base/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DRAFT_MAX = 31,        /* tokens guessed ahead in a step, at most: they reach into one KV page more, never two */
    DRAFT_MAX_MATCH = 32,  /* tokens of context a match is compared over; 2 at least */
    DRAFT_LEVELS = 8,      /* groups of match lengths with a record each */
    DRAFT_CANDIDATES = 16, /* earlier places looked at for one guess */
};

/* What is known of a sequence's next tokens. Zeroed: no index, never a guess. */
struct draft {
    int32_t *heads; /* [mask + 1] position where a pair of tokens of this hash last ended; 0 = none */
    int32_t *prevs; /* [n_max] the position before with the same hash; 0 = none */
    uint32_t mask;
    int32_t n_indexed;         /* pairs that end before this position are in the index */
    int32_t source;            /* position of the token guessed to come next; 0 = no guess */
    int32_t n_match;           /* tokens in front of it that equal the sequence's last ones; 2 .. DRAFT_MAX_MATCH */
    float rates[DRAFT_LEVELS]; /* how many of the guesses came true, 0..1 */
    int32_t n_seen[DRAFT_LEVELS];
    /* Guesses of who knows better than the index, as a grammar does; they come first. Those from i_forced on are left. */
    int32_t forced[DRAFT_MAX];
    int32_t i_forced, n_forced;
    float forced_rate; /* and how many of them came true */
    int32_t n_forced_seen;
};

/* Room, in the arena, for a sequence of n_max tokens: 6 to 8 bytes for each. ERR_NOMEM: then *d is all zero. */
MUST_CHECK enum err draft_init(struct draft *d, int32_t n_max, struct arena *a);

/* Enters the pairs of tokens[0..n), of which the first n_indexed are unchanged. */
void draft_index(struct draft *d, const int32_t *tokens, int32_t n);

/* Looks for a guess behind tokens[0..n) unless the last one still holds: d->source, whose token may be followed by
 * those behind it, also by guessed ones the caller has put behind tokens[n-1]. */
void draft_look(struct draft *d, const int32_t *tokens, int32_t n);

/* tokens[n-1] has come: notes whether it was guessed, and moves the guess on or gives it up. */
void draft_learn(struct draft *d, const int32_t *tokens, int32_t n);

/* How likely the i-th token guessed ahead (from 0) comes true when those before it do; 0 without a guess. */
double draft_rate(const struct draft *d, int32_t i);

/* How many of the guesses are forced. */
static inline int32_t draft_n_forced(const struct draft *d) { return d->n_forced - d->i_forced; }

/* Does what is found in tokens[0..n) begin with the forced ones, so that it may be guessed to go on behind them? */
bool draft_agrees(const struct draft *d, const int32_t *tokens, int32_t n);

/* The i-th guess behind tokens[0..n); those before it stand there. */
static inline int32_t draft_token(const struct draft *d, const int32_t *tokens, int32_t i)
{
    return i < draft_n_forced(d) ? d->forced[d->i_forced + i] : tokens[d->source + i];
}

/* Time of steps that only decode, by rows; entries that were not seen for long are guessed from their neighbours. */
struct draft_costs {
    double ns[DRAFT_MAX + 2]; /* moving average, which follows short times faster than long ones; 0 = never seen */
    uint64_t seen_at[DRAFT_MAX + 2];
    uint64_t n_steps;
};
void draft_costs_note(struct draft_costs *c, int32_t n_rows, uint64_t ns); /* n_rows >= 1; too many are ignored */

/* Fills ns[1 .. DRAFT_MAX + 1]; all 0 when no step was ever seen. */
void draft_costs_get(const struct draft_costs *c, double *ns);

struct draft_offer {
    const struct draft *draft;
    int32_t n_max; /* tokens it could guess ahead now, 0 or more */
    int32_t n;     /* out: tokens to draft */
};

/* Shares out rows between the sequences of a step that has n_offers rows without drafts, so that the tokens it is
 * expected to give, over its time, are most: at most max_rows rows and, unless 0, max_ns. */
void draft_plan(const struct draft_costs *c, struct draft_offer *offers, int32_t n_offers, int32_t max_rows,
                uint64_t max_ns);

#endif
