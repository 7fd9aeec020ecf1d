/* Counts drafted tokens, and those that came true, by their source and by their position among the drafts of a sequence
 * in a step. Threads: one at a time per struct. */
#ifndef INFCGI_SCHED_DRAFT_COUNTS_H
#define INFCGI_SCHED_DRAFT_COUNTS_H

#include <stdint.h>

/* Where a drafted token comes from. */
enum draft_source {
    DRAFT_FORCED, /* a grammar that leaves no choice */
    DRAFT_LOOKUP, /* repeated text */
    DRAFT_HEAD,   /* the prediction head */
    DRAFT_MODEL,  /* a draft model */
    DRAFT_SOURCES
};

enum {
    DRAFT_POSITIONS = 8, /* groups of positions: 1 to 7, and one for 8 and above */
    DRAFT_HALF = 1024,   /* drafts of a source that halve the weight of those before them (struct draft_recent) */
};

/* Returns "forced", "lookup", "head" or "model". */
const char *draft_source_name(enum draft_source source);

/* Returns the name of the i-th group of positions, from 0: "1" to "7", then "8+". */
const char *draft_position_name(int i);

struct draft_count {
    uint64_t drafted, accepted; /* tokens computed; those of them that came true */
};

/* Zeroed: none. */
struct draft_counts {
    struct draft_count at[DRAFT_SOURCES][DRAFT_POSITIONS];
};

/* Adds the n drafts of a sequence in a step, of which the first n_true came true. sources: [n] enum draft_source. */
void draft_counts_add(struct draft_counts *c, const uint8_t *sources, int32_t n, int32_t n_true);

/* Adds the counts of *more. */
void draft_counts_merge(struct draft_counts *c, const struct draft_counts *more);

/* Returns the counts of all positions. */
struct draft_count draft_counts_of(const struct draft_counts *c, enum draft_source source);

/* Counts in which recent drafts have more weight: it is 1 for a new one, and halves with every DRAFT_HALF further drafts of
 * its source, so a source's weights sum to less than 2 DRAFT_HALF plus the drafts of one step. Zeroed: none. */
struct draft_recent {
    struct draft_weight {
        double drafted, accepted;
    } at[DRAFT_SOURCES][DRAFT_POSITIONS];
};

/* Adds the counts of a step. */
void draft_recent_add(struct draft_recent *r, const struct draft_counts *step);

/* Returns the share of recent drafts of a source that came true, 0..1, in the i-th group of positions, or with
 * DRAFT_POSITIONS in all; NaN: none was drafted. */
double draft_recent_share(const struct draft_recent *r, enum draft_source source, int i);

#endif
