/* Regular expressions over bytes, with intersection, complement and counted repeats, and the automaton of each, which is built
 * as it is walked: a state is an expression, and what a byte makes of it is its derivative [Brzozowski 1964; Owens 2009,
 * "Regular-expression derivatives re-examined"]. Expressions are kept once each, so equal ones have equal ids, and ids stay
 * valid as long as the set.
 *
 * What goes wrong while expressions are made is kept in the set, as in a buf: every call gives REGEX_NONE from then on, and
 * regex_ok says what it was. Nothing recurses; nodes are bounded by the limit that the set was made with.
 * Threads: a set belongs to one thread at a time. */
#ifndef INFCGI_REGEX_REGEX_H
#define INFCGI_REGEX_REGEX_H

#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regex_set;
typedef uint32_t regex_id;

enum {
    REGEX_NONE = 0,  /* matches no string */
    REGEX_EMPTY = 1, /* matches the empty one alone */
    REGEX_ALL = 2,   /* matches every string of bytes */
    REGEX_MAX_NODES = 1 << 18,
};
#define REGEX_UNBOUNDED UINT32_MAX

/* Code points first .. last, without surrogates. */
struct regex_range {
    uint32_t first, last;
};

/* max_nodes: 0 = REGEX_MAX_NODES. ERR_NOMEM. */
MUST_CHECK enum err regex_set_new(size_t max_nodes, struct regex_set **out);
void regex_set_free(struct regex_set **s);

/* ERR_OK, ERR_NOMEM or ERR_GRAMMAR_LIMIT: too many nodes. */
MUST_CHECK enum err regex_ok(const struct regex_set *s);

/* From now on the set has failed with err, unless it has failed before. */
void regex_fail(struct regex_set *s, enum err err);

regex_id regex_bytes(struct regex_set *s, const char *bytes, size_t n); /* these bytes */
/* These bytes, and then `behind`: quicker than to put one behind the other. */
regex_id regex_bytes_before(struct regex_set *s, const char *bytes, size_t n, regex_id behind);
regex_id regex_byte_class(struct regex_set *s,
                          const uint64_t bits[4]); /* one byte of them: bit b % 64 of bits[b / 64] */
regex_id regex_byte(struct regex_set *s, unsigned char byte);
regex_id regex_byte_range(struct regex_set *s, unsigned first, unsigned last);
/* One UTF-8 character of the ranges, which are in order and do not overlap. */
regex_id regex_code_points(struct regex_set *s, const struct regex_range *ranges, size_t n);
regex_id regex_concat(struct regex_set *s, regex_id a, regex_id b);
regex_id regex_or(struct regex_set *s, regex_id a, regex_id b);
regex_id regex_or_all(struct regex_set *s, const regex_id *ids, size_t n); /* quicker than one by one */

/* One of the words, which are put in order: what many begin or end with is one expression. (regex_words.c) */
struct regex_word {
    const char *bytes;
    size_t n;
};
regex_id regex_words(struct regex_set *s, struct regex_word *words, size_t n);
regex_id regex_and(struct regex_set *s, regex_id a, regex_id b);
regex_id regex_not(struct regex_set *s, regex_id a);                                /* every other string of bytes */
regex_id regex_repeat(struct regex_set *s, regex_id a, uint32_t min, uint32_t max); /* max: or REGEX_UNBOUNDED */

/* Numbers that are whole multiples of m / 10^places, from some digit on. (regex_multiple.c) */
struct regex_steps {
    uint64_t m;      /* 1 .. REGEX_MAX_STEP */
    unsigned places; /* 0 .. REGEX_MAX_PLACES; 0 if is_whole */
    bool is_whole;   /* no fraction is allowed */
};
#define REGEX_MAX_STEP ((uint64_t)1 << 40)
enum { REGEX_MAX_PLACES = 500, REGEX_MAX_DIGITS = 4096 };

/* What can follow digits of the whole part that leave `left` of m: min .. max more digits, and then, unless is_whole, an
 * optional fraction. min and max: up to REGEX_MAX_DIGITS, max also REGEX_UNBOUNDED. REGEX_NONE: nothing can. */
regex_id regex_multiple_whole(struct regex_set *s, const struct regex_steps *of, uint64_t left, uint32_t min,
                              uint32_t max);

/* What can follow the first digits of a fraction, which with those of the whole part leave `left` of m, if `places` more
 * digits count; all digits after these are 0. REGEX_NONE: nothing can. */
regex_id regex_multiple_fraction(struct regex_set *s, const struct regex_steps *of, uint64_t left, unsigned places);

/* At most this many states has the automaton of such numbers with up to `digits` digits in the whole part; 0: any number of
 * digits. SIZE_MAX: more than `most`. */
size_t regex_multiple_states(const struct regex_steps *of, size_t digits, size_t most);

/* Strings that stand between the quotes of a JSON string and say a string of r: control characters, quote and backslash are
 * escaped, other ASCII may be, and beyond it characters stand for themselves. [RFC 8259 section 7] (regex_json.c) */
regex_id regex_json_escaped(struct regex_set *s, regex_id r);

/* Is it made without intersections and complements? */
bool regex_is_plain(const struct regex_set *s, regex_id r);

/* Does each string that it matches consist of strings of its classes of bytes, as those of no complement do? Then it has whole
 * characters where its parts have. */
bool regex_is_whole(const struct regex_set *s, regex_id r);

/* Does it match the empty string? */
bool regex_is_nullable(const struct regex_set *s, regex_id r);

/* Is there a string that it matches? In doubt, which takes more than `budget` states, ERR_GRAMMAR_LIMIT. */
MUST_CHECK enum err regex_is_none(struct regex_set *s, regex_id r, size_t budget, bool *none);

/* What is left to match behind one byte; REGEX_NONE: nothing begins so. With intersections and complements it may be one that
 * matches nothing without being REGEX_NONE: see regex_is_none. */
regex_id regex_next(struct regex_set *s, regex_id r, unsigned char byte);

/* Bytes that no expression of the set tells apart have one class, 0 .. n-1; so until expressions with other bytes are made.
 * *n (OPTIONAL): how many there are. [256] */
const unsigned char *regex_byte_classes(struct regex_set *s, int *n);

/* Takes groups of byte classes apart, groups[class] of 0 .. *n_groups - 1, until bytes of one group have the same derivative of
 * r [Owens 2009, section 4.2]. */
void regex_split_groups(struct regex_set *s, regex_id r, unsigned char *groups, int *n_groups);

/* An expression that tells strings of at most `bytes` bytes apart just as r does; the same for many r whose repeats differ
 * far away. */
regex_id regex_near(struct regex_set *s, regex_id r, uint32_t bytes);

/* 128 bits that are the same for expressions of the same form in any set of this process. */
struct regex_hash {
    uint64_t a, b;
};
struct regex_hash regex_hash(const struct regex_set *s, regex_id r);

/* What was done so far, in steps of some 20 ns: nodes that were asked for and made, derivatives that were found, parts that were
 * put in order, and what others spent. From the limit on, which is none at first, the set has failed with ERR_GRAMMAR_LIMIT. */
size_t regex_work(const struct regex_set *s);
void regex_limit_work(struct regex_set *s, size_t most);
bool regex_spend(struct regex_set *s, size_t work); /* false: s has failed */

/* Bytes that the set holds. */
size_t regex_set_bytes(const struct regex_set *s);

#endif
