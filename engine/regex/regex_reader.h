/* A position in a written pattern or grammar, and the characters of a class that is being read. Shared by the readers of
 * ECMA-262 patterns (regex_parse.h), GBNF and Lark (engine/grammar). Threads: a reader belongs to one thread, and so
 * does its set. */
#ifndef INFCGI_REGEX_REGEX_READER_H
#define INFCGI_REGEX_REGEX_READER_H

#include "engine/regex/regex.h"

/* Ranges of code points in any order; they can overlap. All zero: none. The owner frees `list` with mem_free. */
struct regex_ranges {
    struct regex_range *list; /* [cap], of which n are used */
    size_t n, cap;
};

/* The caller sets `set`, `pattern` and `n`, which are borrowed, and leaves the rest zero. At the end it frees
 * ranges.list. */
struct regex_reader {
    struct regex_set *set;
    const char *pattern;        /* [n] valid UTF-8 */
    size_t n, at;               /* in bytes; at: the next one */
    struct err_info *info;      /* OPTIONAL: receives errors */
    struct regex_ranges ranges; /* characters of the class that is being read */
    size_t n_wide;              /* ranges beyond ASCII so far: each costs microseconds */
    size_t n_properties;        /* \p{..} etc. so far */
    unsigned flags;             /* of regex_parse; regex_reader_class uses REGEX_ANY_CASE */
    regex_id dot;               /* expression of `.`, after its first use; else REGEX_NONE */
};

/* Consumes c if it is next, and returns whether it was. */
bool regex_reader_takes(struct regex_reader *r, char c);

/* Consumes and returns the next code point. r->at must be at the begin of a character, not at the end of the text. */
uint32_t regex_reader_character(struct regex_reader *r);

/* Consumes n hexadecimal digits, up to 8. Returns false and consumes nothing if they are missing; *value is undefined
 * then. */
bool regex_reader_takes_hex(struct regex_reader *r, size_t n, uint32_t *value);

/* Consumes decimal digits. Larger numbers than REGEX_UNBOUNDED - 1 become that. Returns false if there is no digit;
 * *value is 0 then. */
bool regex_reader_takes_number(struct regex_reader *r, uint32_t *value);

/* Consumes the counts n}, n,} or n,m} after a brace. Returns false and consumes nothing if there are none. max: or
 * REGEX_UNBOUNDED; it can be below min. */
bool regex_reader_takes_counts(struct regex_reader *r, uint32_t *min, uint32_t *max);

/* Returns why the last piece cannot be repeated min .. max times; NULL: it can. can_repeat: there is a piece. */
const char *regex_reader_repeat_fault(bool can_repeat, uint32_t min, uint32_t max);

/* Appends the code points first .. last; surrogates among them are ignored later. ERR_NOMEM. */
MUST_CHECK enum err regex_ranges_add(struct regex_ranges *to, uint32_t first, uint32_t last);

/* *out: the expression of one character of r->ranges, in UTF-8; others: of one outside them. Empties r->ranges, also on
 * failure. ERR_NOMEM; ERR_GRAMMAR_LIMIT, with the offset in r->info: too many ranges beyond ASCII
 * (REGEX_PARSE_MAX_WIDE), or the set's limits. */
MUST_CHECK enum err regex_reader_class(struct regex_reader *r, bool others, regex_id *out);

#endif
