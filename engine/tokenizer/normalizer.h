/* Unicode normalization of text before it is split into words, in time linear in any text. [Unicode Standard Annex 15;
 * data: utf8proc] Threads: pure functions. */
#ifndef INFCGI_TOKENIZER_NORMALIZER_H
#define INFCGI_TOKENIZER_NORMALIZER_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum normalizer_form { NORMALIZER_NONE, NORMALIZER_NFC, NORMALIZER_NFD, NORMALIZER_NFKC, NORMALIZER_NFKD };

/* Normalizes s[0..n) to a form other than NORMALIZER_NONE. If the text changes, *changed is true and *out, which is
 * emptied first, has the result; otherwise *out is undefined. Invalid UTF-8 bytes are kept. ERR_NOMEM. */
MUST_CHECK enum err normalizer_run(enum normalizer_form form, const char *s, size_t n, struct buf *out, bool *changed);

enum { NORMALIZER_MAX_DECOMPOSED = 18 };

/* Writes the canonical decomposition of cp to out[NORMALIZER_MAX_DECOMPOSED]; returns the number of code points, at
 * least 1. */
size_t normalizer_decompose(uint32_t cp, int32_t *out);

enum { NORMALIZER_MAX_LOWERED = 2 };

/* Writes the lower case of cp, independent of its context, to out[NORMALIZER_MAX_LOWERED]; returns the number of code
 * points. [Unicode UnicodeData.txt, SpecialCasing.txt] */
size_t normalizer_lower(uint32_t cp, uint32_t *out);

/* Writes s[0..n) in lower case to *out, which is emptied first. Invalid UTF-8 bytes are kept. ERR_NOMEM. */
MUST_CHECK enum err normalizer_lower_all(const char *s, size_t n, struct buf *out);

#endif
