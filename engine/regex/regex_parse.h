/* Patterns of ECMA-262 with flag u (ECMAScript 2024, section 22.2.1) as expressions of regex.h over UTF-8.
 *
 * Known: alternatives, groups (named and not), classes and \d \w \s \D \W \S, `.`, escapes of characters, * + ? {n} {n,} {n,m} (a ?
 * behind them changes nothing of what matches), ^ and $, \b and \B, look-ahead (?=..) and (?!..) anywhere, and properties \p{..}
 * and \P{..} as regex_property.h has them. As without flag u, as schemas are written: a backslash before any
 * ASCII punctuation gives that character, and { } ] where they mean nothing stand for themselves; and as in PCRE and Python:
 * (?P<name>..), \pL, \p{^L}, loose names of properties.
 * Refused, each named with its offset: back references, look-behind, flags and other kinds of groups, lone surrogates. Depth of
 * recursion does not go by the pattern; time and memory go by its length, and with look-ahead and \b by what regex_limit_work allows. */
#ifndef INFCGI_REGEX_REGEX_PARSE_H
#define INFCGI_REGEX_REGEX_PARSE_H

#include "engine/regex/regex.h"

enum {
    REGEX_PARSE_MAX_BYTES = 1 << 16,  /* of a pattern */
    REGEX_PARSE_MAX_DEPTH = 128,      /* of groups within groups */
    REGEX_PARSE_MAX_PROPERTIES = 256, /* \p and \P of a pattern */
    REGEX_PARSE_MAX_WIDE = 8192, /* ranges beyond ASCII of all classes; one of over 64 characters counts as four, but in
                                       * classes of many ranges, which count once wherever they come again */
};

/* pattern[0..n) -> *out. is_search: what it matches may stand anywhere, as JSON Schema's `pattern` has it, and ^ and $ hold it to
 * the ends; else it is the whole string. *out matches valid UTF-8 only. ERR_INVALID_GRAMMAR, ERR_GRAMMAR_LIMIT, ERR_NOMEM;
 * info (OPTIONAL): what is wrong, with its offset in the pattern. *out is REGEX_NONE then. */
MUST_CHECK enum err regex_parse(struct regex_set *s, const char *pattern, size_t n, bool is_search, regex_id *out,
                                struct err_info *info);

/* The same for patterns of other languages. Without REGEX_SEARCH it is the whole string. */
enum {
    REGEX_SEARCH = 1,
    REGEX_ANY_CASE = 2,    /* ASCII letters match in both cases; a pattern with others than ASCII is refused */
    REGEX_DOT_LINE = 4,    /* `.` matches all but \n, as in Python and Rust .. */
    REGEX_DOT_ALL = 8,     /* .. or all */
    REGEX_NO_ANCHORS = 16, /* ^, $, \b, \B and look-ahead are refused */
    REGEX_OPEN =
        32 /* With REGEX_SEARCH: any bytes may follow the match, not only whole characters. The caller intersects the
                            * expression, or its complement, with whole characters. After the match nothing is left to follow
                            * then, so a complement ends there, and no search has to find that it is empty. */
};
MUST_CHECK enum err regex_parse_with(struct regex_set *s, const char *pattern, size_t n, unsigned flags, regex_id *out,
                                     struct err_info *info);

#endif
