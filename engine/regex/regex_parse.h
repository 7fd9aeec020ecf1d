/* Translates patterns of ECMA-262 with flag u (ECMAScript 2024, section 22.2.1) to expressions of regex.h over UTF-8.
 *
 * Supported: alternatives, groups (named or not), classes and \d \w \s \D \W \S, `.`, escapes of characters, * + ? {n}
 * {n,} {n,m} (a ? after them does not change the set of matches), ^ and $, \b and \B, look-ahead (?=..) and (?!..)
 * anywhere, and properties \p{..} and \P{..} as in regex_property.h.
 *
 * As without flag u, because schemas use it: a backslash before any ASCII punctuation means that character, and { } ]
 * without a special meaning are literal. As in PCRE and Python: (?P<name>..), \pL, \p{^L}, loose names of properties.
 *
 * Rejected, each reported with its offset: back references, look-behind, flags and other kinds of groups, lone
 * surrogates. Recursion depth does not depend on the pattern. Time and memory depend on its length, and with look-ahead
 * and \b on the limit of regex_limit_work. */
#ifndef INFCGI_REGEX_REGEX_PARSE_H
#define INFCGI_REGEX_REGEX_PARSE_H

#include "engine/regex/regex.h"

enum {
    REGEX_PARSE_MAX_BYTES = 1 << 16,  /* per pattern */
    REGEX_PARSE_MAX_DEPTH = 128,      /* of nested groups */
    REGEX_PARSE_MAX_PROPERTIES = 256, /* \p and \P per pattern */
    REGEX_PARSE_MAX_WIDE = 8192, /* ranges beyond ASCII of all classes. A range of over 64 characters counts as four; a
                                  * class of many ranges counts once, even if it is repeated */
};

/* Without REGEX_SEARCH the match is the whole string; with it the match can be anywhere, as in JSON Schema's `pattern`,
 * and ^ and $ anchor it. */
enum {
    REGEX_SEARCH = 1,
    REGEX_ANY_CASE = 2,    /* ASCII letters match in both cases; patterns with characters beyond ASCII are rejected */
    REGEX_DOT_LINE = 4,    /* `.` matches all except \n, as in Python and Rust .. */
    REGEX_DOT_ALL = 8,     /* .. or all */
    REGEX_NO_ANCHORS = 16, /* ^, $, \b, \B and look-ahead are rejected */
    /* With REGEX_SEARCH: any bytes can follow the match, not only whole characters. The caller must intersect the
     * expression, or its complement, with whole characters. After the match nothing is left to check, so a complement
     * ends there, without a search to find it empty. */
    REGEX_OPEN = 32
};

struct regex_pattern {
    const char *text; /* [n] */
    size_t n;
    unsigned flags;
};

/* Parses the pattern to *out, which matches valid UTF-8 only, unless REGEX_OPEN is set. ERR_INVALID_GRAMMAR,
 * ERR_GRAMMAR_LIMIT, ERR_NOMEM: then *out is REGEX_NONE; info (OPTIONAL): the error with its offset in the pattern. */
MUST_CHECK enum err regex_parse(struct regex_set *s, const struct regex_pattern *pattern, regex_id *out,
                                struct err_info *info);

#endif
