/* Unicode normalization of text before it is cut into words, in time linear in the text whatever it holds.
 * [Unicode Standard Annex 15; data: utf8proc] Threads: pure functions. */
#ifndef INFCGI_TOKENIZER_NORMALIZER_H
#define INFCGI_TOKENIZER_NORMALIZER_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum normalizer_form { NORMALIZER_NONE, NORMALIZER_NFC, NORMALIZER_NFD, NORMALIZER_NFKC, NORMALIZER_NFKD };

/* Brings s[0..n) to a form, not NORMALIZER_NONE. When that changes it, *changed is true and *out, which is emptied
 * first, holds the result; else *out is of no use. Bytes that are no UTF-8 stay as they are. ERR_NOMEM. */
MUST_CHECK enum err normalizer_run(enum normalizer_form form, const char *s, size_t n, struct buf *out, bool *changed);

enum { NORMALIZER_MAX_DECOMPOSED = 18 };

/* Canonical decomposition of cp into out[NORMALIZER_MAX_DECOMPOSED]; returns the number of code points, 1 or more. */
size_t normalizer_decompose(uint32_t cp, int32_t *out);

enum { NORMALIZER_MAX_LOWERED = 2 };

/* Lower case of cp, which does not hang on what stands around it, into out[NORMALIZER_MAX_LOWERED]; returns the number
 * of code points. [Unicode UnicodeData.txt, SpecialCasing.txt] */
size_t normalizer_lower(uint32_t cp, uint32_t *out);

/* s[0..n) in lower case into *out, which is emptied first. Bytes that are no UTF-8 stay as they are. ERR_NOMEM. */
MUST_CHECK enum err normalizer_lower_all(const char *s, size_t n, struct buf *out);

#endif
