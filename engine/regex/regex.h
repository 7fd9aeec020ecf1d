/* Regular expressions over bytes, with intersection, complement and counted repeats, and the automaton of each, which
 * is built on use. A state is an expression; the next state is its derivative by a byte [Brzozowski 1964; Owens 2009,
 * "Regular-expression derivatives re-examined"]. Each expression is stored once, so equal ones have equal ids; ids stay
 * valid as long as the set.
 *
 * The set keeps the first error, as a buf does: later calls return REGEX_NONE, and regex_ok returns the error. No
 * function recurses. The set's limit bounds the number of nodes. Threads: a set belongs to one thread at a time. */
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
    REGEX_EMPTY = 1, /* matches only the empty string */
    REGEX_ALL = 2,   /* matches every string of bytes */
    REGEX_MAX_NODES = 1 << 18,
};
#define REGEX_UNBOUNDED UINT32_MAX

/* Code points first .. last, without surrogates. */
struct regex_range {
    uint32_t first, last;
};

/* Creates a set. max_nodes: 0 = REGEX_MAX_NODES. ERR_NOMEM. */
MUST_CHECK enum err regex_set_new(size_t max_nodes, struct regex_set **out);
void regex_set_free(struct regex_set **s);

/* Returns ERR_OK, ERR_NOMEM or ERR_GRAMMAR_LIMIT: too many nodes. */
MUST_CHECK enum err regex_ok(const struct regex_set *s);

/* Makes the set fail with err, unless it has already failed. */
void regex_fail(struct regex_set *s, enum err err);

regex_id regex_bytes(struct regex_set *s, const char *bytes, size_t n); /* these bytes */
/* Returns these bytes followed by `after`; faster than a concatenation. */
regex_id regex_bytes_before(struct regex_set *s, const char *bytes, size_t n, regex_id after);
regex_id regex_byte_class(struct regex_set *s,
                          const uint64_t bits[4]); /* one byte of them: bit b % 64 of bits[b / 64] */
regex_id regex_byte(struct regex_set *s, unsigned char byte);
regex_id regex_byte_range(struct regex_set *s, unsigned first, unsigned last);
/* Returns one UTF-8 character of the ranges, which must be sorted and must not overlap. */
regex_id regex_code_points(struct regex_set *s, const struct regex_range *ranges, size_t n);
regex_id regex_any_character(struct regex_set *s); /* one UTF-8 character; not a surrogate */
regex_id regex_concat(struct regex_set *s, regex_id a, regex_id b);
regex_id regex_or(struct regex_set *s, regex_id a, regex_id b);
regex_id regex_or_all(struct regex_set *s, const regex_id *ids, size_t n); /* faster than one by one */

/* Returns one of the words, which are sorted in place. Common prefixes and suffixes are shared. (regex_words.c) */
struct regex_word {
    const char *bytes;
    size_t n;
};
regex_id regex_words(struct regex_set *s, struct regex_word *words, size_t n);
regex_id regex_and(struct regex_set *s, regex_id a, regex_id b);
regex_id regex_not(struct regex_set *s, regex_id a);                                /* all other strings of bytes */
regex_id regex_repeat(struct regex_set *s, regex_id a, uint32_t min, uint32_t max); /* max: or REGEX_UNBOUNDED */

/* Numbers that are integer multiples of m / 10^places, from a digit on. (regex_multiple.c) */
struct regex_steps {
    uint64_t m;      /* 1 .. REGEX_MAX_STEP */
    unsigned places; /* 0 .. REGEX_MAX_PLACES; 0 if is_whole */
    bool is_whole;   /* no fraction is allowed */
};
#define REGEX_MAX_STEP ((uint64_t)1 << 40)
enum { REGEX_MAX_PLACES = 500, REGEX_MAX_DIGITS = 4096 };

/* Returns the continuation after digits of the whole part with the remainder `left` modulo m: min .. max more digits,
 * then, unless is_whole, an optional fraction. min and max: up to REGEX_MAX_DIGITS, max also REGEX_UNBOUNDED.
 * REGEX_NONE: none. */
regex_id regex_multiple_whole(struct regex_set *s, const struct regex_steps *of, uint64_t left, uint32_t min,
                              uint32_t max);

/* Returns the continuation after the first digits of a fraction, which together with the whole part have the remainder
 * `left` modulo m. `places` more digits count; all later digits are 0. REGEX_NONE: none. */
regex_id regex_multiple_fraction(struct regex_set *s, const struct regex_steps *of, uint64_t left, unsigned places);

/* Returns an upper bound for the states of the automaton of such numbers with up to `digits` digits in the whole part;
 * 0: any number of digits. SIZE_MAX: more than `most`. */
size_t regex_multiple_states(const struct regex_steps *of, size_t digits, size_t most);

/* Returns the contents of JSON strings that encode a string of r. Control characters, quote and backslash are escaped;
 * other ASCII can be escaped; characters beyond ASCII are unescaped. [RFC 8259 section 7] (regex_json.c) */
regex_id regex_json_escaped(struct regex_set *s, regex_id r);

/* Returns whether each matched string is a concatenation of strings of the expression's classes; a complement's strings
 * need not be. The expression then matches whole characters if its parts do. */
bool regex_is_whole(const struct regex_set *s, regex_id r);

/* Returns whether it matches the empty string. */
bool regex_is_nullable(const struct regex_set *s, regex_id r);

/* Finds whether it matches no string. ERR_GRAMMAR_LIMIT: unknown, because finding out takes more than `budget`
 * states. */
MUST_CHECK enum err regex_is_none(struct regex_set *s, regex_id r, size_t budget, bool *none);

/* Returns the rest to match after one byte; REGEX_NONE: no match begins with it. With intersections and complements the
 * rest can match nothing without being REGEX_NONE: see regex_is_none. */
regex_id regex_next(struct regex_set *s, regex_id r, unsigned char byte);

/* Returns the class of each byte, [256]. Bytes that no expression of the set distinguishes share a class, 0 .. n-1,
 * until expressions with other bytes are created. *n (OPTIONAL): number of classes. */
const unsigned char *regex_byte_classes(struct regex_set *s, int *n);

/* Splits groups of byte classes, groups[class] of 0 .. *n_groups - 1, until all bytes of a group have the same
 * derivative of r [Owens 2009, section 4.2]. */
void regex_split_groups(struct regex_set *s, regex_id r, unsigned char *groups, int *n_groups);

/* Returns an expression that distinguishes strings of at most `bytes` bytes like r. Many r whose repeats differ only in
 * large counts yield the same one. */
regex_id regex_near(struct regex_set *s, regex_id r, uint32_t bytes);

/* 128 bits that are equal for expressions of the same form in all sets of this process. */
struct regex_hash {
    uint64_t a, b;
};
struct regex_hash regex_hash(const struct regex_set *s, regex_id r);

/* Returns the work so far, in steps of about 20 ns: nodes that were looked up and created, derivatives, sorted parts,
 * and regex_spend's. From the limit on, which is initially unlimited, the set has failed with ERR_GRAMMAR_LIMIT. */
size_t regex_work(const struct regex_set *s);
void regex_limit_work(struct regex_set *s, size_t most);
bool regex_spend(struct regex_set *s, size_t work); /* false: s has failed */

/* Returns the bytes that the set uses. */
size_t regex_set_bytes(const struct regex_set *s);

#endif
