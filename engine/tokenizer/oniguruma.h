/* Regular expressions as tokenizer.json files hold them, in Oniguruma's Ruby syntax, rewritten for PCRE2 so that they
 * match the same text. Threads: pure function. */
#ifndef INFCGI_TOKENIZER_ONIGURUMA_H
#define INFCGI_TOKENIZER_ONIGURUMA_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stddef.h>

/* Appends to *out the expression for PCRE2 (options UTF, UCP, MULTILINE) that matches what s[0..n), n bytes of
 * Oniguruma syntax, matches. What differs between the two and is rewritten: \s \S \w \W \h \H \v \u, {,n}, (?m), and
 * classes within classes, with && between them. ERR_UNSUPPORTED_PRETOKENIZER names what has no counterpart;
 * ERR_NOMEM. [Oniguruma 6.9, doc/RE; pcre2pattern(3), 10.42] */
MUST_CHECK enum err oniguruma_to_pcre2(const char *s, size_t n, struct buf *out, struct err_info *info);

#endif
