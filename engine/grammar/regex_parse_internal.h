/* What regex_parse and other readers of grammars share: where the reader stands, and sets of code points. */
#ifndef INFCGI_GRAMMAR_REGEX_PARSE_INTERNAL_H
#define INFCGI_GRAMMAR_REGEX_PARSE_INTERNAL_H

#include "engine/grammar/regex_parse.h"

/* Growing list of ranges in any order. */
struct regex_ranges {
    struct regex_range *list;
    size_t n, cap;
};

struct regex_reader {
    struct regex_set *set;
    const char *pattern;
    size_t n, at;
    struct err_info *info;
    struct regex_ranges ranges; /* scratch of one class */
    size_t n_wide;              /* ranges beyond ASCII so far: each takes microseconds */
    unsigned flags;             /* of regex_parse_with */
    regex_id dot;               /* what `.` is, once it is known; else REGEX_NONE */
};

/* ERR_INVALID_GRAMMAR: this, at that offset. */
MUST_CHECK enum err regex_reader_bad(struct regex_reader *r, size_t at, const char *what);

/* Takes c if it is next. */
bool regex_reader_takes(struct regex_reader *r, char c);

/* The character at r->at, which is not the end; r->at goes behind it. The pattern is valid UTF-8. */
uint32_t regex_reader_character(struct regex_reader *r);

/* `n` hexadecimal digits; false, with nothing taken, where they are not. */
bool regex_reader_takes_hex(struct regex_reader *r, size_t n, uint32_t *value);

/* n}, n,} or n,m} behind a brace; false, with nothing taken, where none is. max: or REGEX_UNBOUNDED. */
bool regex_reader_takes_counts(struct regex_reader *r, uint32_t *min, uint32_t *max);

MUST_CHECK enum err regex_ranges_add(struct regex_ranges *to, uint32_t first, uint32_t last);

/* One character of r->ranges, which are empty behind that, or of all others. */
MUST_CHECK enum err regex_reader_class(struct regex_reader *r, bool others, regex_id *out);

/* The two below begin behind what told them apart, a backslash or a [, and give one character's expression. */
MUST_CHECK enum err regex_read_escape(struct regex_reader *r, regex_id *out);
MUST_CHECK enum err regex_read_class(struct regex_reader *r, regex_id *out);

/* What `.` matches: all but ends of lines. */
regex_id regex_any_but_line_ends(struct regex_set *s);
regex_id regex_any_but_newline(struct regex_set *s);
regex_id regex_any_character(struct regex_set *s);

#endif
