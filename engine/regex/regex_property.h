/* Properties of characters, as \p{..} names them in patterns [ECMA-262 section 22.2.2.9; Unicode Character Database]:
 * - general categories (L, Lu, Letter, General_Category=..);
 * - scripts (Script=Greek, sc=.., scx=.., Greek);
 * - binary properties (Alphabetic, Emoji, ID_Start ..).
 * They come from PCRE2; the process caches the last few hundred. */
#ifndef INFCGI_REGEX_REGEX_PROPERTY_H
#define INFCGI_REGEX_REGEX_PROPERTY_H

#include "engine/regex/regex_reader.h"

/* Adds the characters of the property name[0..n) to a list, sorted and without adjacent ranges. Case, spaces, - and _
 * in the name are ignored. *was_kept: the property was cached; otherwise the call takes 1 to 2 ms. ERR_INVALID_GRAMMAR:
 * no property has this name. ERR_NOMEM. Threads: any. */
MUST_CHECK enum err regex_property_add(struct regex_ranges *to, const char *name, size_t n, bool *was_kept);

#endif
