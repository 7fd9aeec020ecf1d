/* Rewrites regular expressions of tokenizer.json files, in Oniguruma's Ruby syntax, for PCRE2, so that they match the
 * same text. Threads: pure function. */
#ifndef INFCGI_TOKENIZER_ONIGURUMA_H
#define INFCGI_TOKENIZER_ONIGURUMA_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stddef.h>

/* Appends to *out the PCRE2 expression (options UTF, UCP, MULTILINE) that matches the same text as s[0..n) in Oniguruma
 * syntax. Rewrites the differences: \s \S \w \W \h \H \v \u, {,n}, (?m), and classes within classes, with && between
 * them. ERR_UNSUPPORTED_PRETOKENIZER names the part without a counterpart; ERR_NOMEM. [Oniguruma 6.9, doc/RE;
 * pcre2pattern(3), 10.42] */
MUST_CHECK enum err oniguruma_to_pcre2(const char *s, size_t n, struct buf *out, struct err_info *info);

#endif
