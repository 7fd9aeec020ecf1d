/* What the files of regex_parse share: where the reader stands, and sets of code points. */
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
    regex_id dot;               /* what `.` is, once it is known; else REGEX_NONE */
};

/* ERR_INVALID_GRAMMAR: this, at that offset. */
MUST_CHECK enum err regex_reader_bad(struct regex_reader *r, size_t at, const char *what);

/* Takes c if it is next. */
bool regex_reader_takes(struct regex_reader *r, char c);

/* The character at r->at, which is not the end; r->at goes behind it. The pattern is valid UTF-8. */
uint32_t regex_reader_character(struct regex_reader *r);

/* The two below begin behind what told them apart, a backslash or a [, and give one character's expression. */
MUST_CHECK enum err regex_read_escape(struct regex_reader *r, regex_id *out);
MUST_CHECK enum err regex_read_class(struct regex_reader *r, regex_id *out);

/* What `.` matches: all but ends of lines. */
regex_id regex_any_but_line_ends(struct regex_set *s);
regex_id regex_any_character(struct regex_set *s);

#endif
