/* Declarations shared by the files of the matcher. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_MATCHER_H
#define INFCGI_GRAMMAR_GRAMMAR_MATCHER_H

#include "engine/grammar/grammar_internal.h"

/* A rule that began in column `origin` and is read up to a slot. count: of a repeat the iterations, without a maximum
 * counted up to the minimum; of a set, an id of grammar_sets.c for the members so far. */
struct matcher_item {
    uint32_t slot, origin, count;
};

/* Items of one position in the text, in matcher.items. */
struct matcher_column {
    uint32_t first, n;
    bool may_end, has_tokens; /* has_tokens: some items wait for a special token */
};

/* A lexeme that began in a column, and its rest when its base was built. */
struct matcher_scan {
    uint32_t column, lexeme;
    regex_id left;
};

/* Scans that continue in parallel, in matcher.scans: one per part of their lexer states. column: built with it. */
struct matcher_base {
    uint32_t first, n, column;
};

struct matcher_place {
    uint32_t state, base;
};

/* What a token changes and a rollback restores. */
struct matcher_state {
    struct matcher_place at;
    bool has_column; /* the base's column is of this position, not of an earlier one */
    uint32_t n_items, n_columns, n_scans, n_bases;
};

/* A result of matcher_begin_column, while a mask is built. */
struct matcher_memo {
    uint64_t of; /* the lexer state, or its ending parts if by_ends */
    uint32_t base;
    bool keeps, by_ends;
    struct matcher_place to;
    uint32_t round; /* of another mask: free */
};
enum { MATCHER_MEMO = 512 };

/* A node on the path from the root of a trie, and the lexer state there. */
struct matcher_step {
    uint32_t node, state;
};

/* A lexer state and its row (lexer_state.next). */
struct matcher_row {
    uint32_t state, row;
};

/* An item of the column with this stamp; another stamp: free. */
struct matcher_seen {
    uint32_t item, stamp;
};

/* Sets of members that occurred: a number of words for each. */
struct matcher_sets {
    uint64_t *words;
    uint32_t n_words, cap_words;
    uint32_t *firsts; /* [n_sets] of words */
    uint32_t n_sets, cap_firsts;
    struct table table; /* of sets by their words; the first is 0, not 1 */
};

struct grammar_matcher {
    struct grammar *g;
    struct grammar_vocab *v;
    struct matcher_state now;
    struct matcher_item *items;
    struct matcher_column *columns;
    struct matcher_scan *scans;
    struct matcher_base *bases;
    uint32_t cap_items, cap_columns, cap_scans, cap_bases;
    struct matcher_state marks[GRAMMAR_MAX_ROLLBACK]; /* before each token; a ring */
    int n_marks;
    struct matcher_memo *memo; /* [MATCHER_MEMO] */
    uint32_t round;
    struct matcher_place *depths; /* scratch of walks */
    struct matcher_row *rows;
    struct matcher_step *path; /* scratch: to a node */
    struct matcher_seen *seen; /* [n_seen] items of the newest column, if it has many */
    uint32_t n_seen, n_noted;
    uint32_t stamp;  /* of the newest column; never 0 */
    uint32_t *begun; /* [n_lexemes] stamp of the last column in which the lexeme began */
    uint64_t work;   /* for this token */
    struct matcher_sets sets;
};

/* Returns whether the item waits for its slot's symbol; false for a repeat after all its iterations. */
bool matcher_waits(const struct grammar_matcher *m, const struct matcher_item *item);

/* Builds a column of the lexemes that end at `at`, and a base of those that begin there; with keeps also of those that
 * continue. */
MUST_CHECK enum err matcher_begin_column(struct grammar_matcher *m, struct matcher_place at, bool keeps,
                                         struct matcher_place *out);

/* Take one byte, or a special token; *taken: it is allowed. If not, or after an error, the caller must restore
 * m->now. */
MUST_CHECK enum err matcher_take_byte(struct grammar_matcher *m, unsigned char byte, bool *taken);
MUST_CHECK enum err matcher_take_token(struct grammar_matcher *m, int32_t id, bool *taken);

/* grammar_sets.c: members of the rule, a set, that occurred. SETS_NONE: none. */
enum { SETS_NONE = 0 };
void matcher_sets_fini(struct matcher_sets *s);
/* *out: the set with the i-th member added. ERR_NOMEM, ERR_GRAMMAR_LIMIT. */
MUST_CHECK enum err matcher_set_add(struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i,
                                    uint32_t *out);
bool matcher_set_may_add(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set, uint32_t i);
bool matcher_set_may_go_on(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set); /* any */
bool matcher_set_may_end(const struct grammar_matcher *m, const struct grammar_rule *r, uint32_t set);

/* Counts the work of a mask or a token, in visited items and nodes; ERR_GRAMMAR_LIMIT: too much. The result does not
 * depend on the content of caches. */
MUST_CHECK enum err matcher_spend(struct grammar_matcher *m, uint64_t work);

#endif
