/* Properties of characters, as \p{..} names them in patterns: general categories (L, Lu, Letter, General_Category=..), scripts
 * (Script=Greek, sc=.., scx=.., Greek) and binary properties (Alphabetic, Emoji, ID_Start ..) [ECMA-262 section 22.2.2.9; Unicode
 * Character Database]. PCRE2 knows them; a process asks it for each once, and keeps the last few hundred. */
#ifndef INFCGI_REGEX_REGEX_PROPERTY_H
#define INFCGI_REGEX_REGEX_PROPERTY_H

#include "engine/regex/regex_parse_internal.h"

/* Adds the characters of the property name[0..n) to a list, in order and without two ranges that touch; upper and lower case,
 * spaces, - and _ make no difference in the name. *was_kept: PCRE2 was not asked, which takes 1 to 2 ms.
 * ERR_INVALID_GRAMMAR: there is no property of this name. ERR_NOMEM. Threads: any. */
MUST_CHECK enum err regex_property_add(struct regex_ranges *to, const char *name, size_t n, bool *was_kept);

#endif
