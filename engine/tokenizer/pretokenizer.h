/* Pre-tokenizers: cutting text into words before the merges run. Each is a linear scanner of our own for a pattern that
 * model files name; a new one is a function and a row in pretokenizer.c. Threads: pure functions. */
#ifndef INFCGI_TOKENIZER_PRETOKENIZER_H
#define INFCGI_TOKENIZER_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer {
    const char *name;    /* as in tokenizer.ggml.pre */
    const char *pattern; /* the regular expression the scanner stands for; the tests run it through PCRE2 */
    bool ignores_merges; /* a word that is a vocabulary entry is taken whole */
    bool adds_bos;       /* when the file does not say */
    size_t (*next)(const char *s, size_t n);
};

/* NULL when the name is not known. */
const struct pretokenizer *pretokenizer_find(const char *name, size_t n);

/* i-th row of the table; NULL beyond the last. */
const struct pretokenizer *pretokenizer_at(size_t i);

/* Bytes of the first word of s[0..n), n >= 1: 1 .. n. Bytes that are no UTF-8 count as characters of no class. What
 * comes before s does not matter; all that comes behind it must be there (patterns look one character ahead). */
static inline size_t pretokenizer_next(const struct pretokenizer *p, const char *s, size_t n) { return p->next(s, n); }

#endif
