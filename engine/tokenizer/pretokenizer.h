/* Pre-tokenizers: cutting text into words before the merges run. Model files name them; a name is a row in
 * pretokenizer.c with the regular expressions that the original tokenizer.json holds. The common ones are linear
 * scanners of our own, the others go through splitter.h. Threads: pure functions. */
#ifndef INFCGI_TOKENIZER_PRETOKENIZER_H
#define INFCGI_TOKENIZER_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

enum { PRETOKENIZER_MAX_PATTERNS = 6 };

enum pretokenizer_flag {
    PRE_IGNORES_MERGES = 1, /* a word that is a vocabulary entry is taken whole ("ignore_merges") */
    PRE_ADDS_BOS = 2,       /* when the file does not say */
    PRE_NFC = 4,            /* text is brought to NFC first */
    PRE_SPELT = 8,          /* the vocabulary is no byte alphabet: text is spelt as SentencePiece does */
    PRE_CUTS_SPACES = 16,   /* with PRE_SPELT: each U+2581 begins a word */
    PRE_DROPS_SPACES = 32,  /* with PRE_SPELT: white space only divides words, and they are spelt as they are */
};

struct pretokenizer {
    const char *name; /* as in tokenizer.ggml.pre */
    /* One after the other, in Oniguruma's syntax, NULL behind the last; with PRE_SPELT only where
     * PRE_DROPS_SPACES is. */
    const char *patterns[PRETOKENIZER_MAX_PATTERNS + 1];
    size_t (*next)(const char *s, size_t n); /* OPTIONAL: the scanner that stands for all patterns */
    unsigned flags;                          /* enum pretokenizer_flag */
};

/* NULL when the name is not known. */
const struct pretokenizer *pretokenizer_find(const char *name, size_t n);

/* The first row with a scanner for these patterns (NULL behind the last); NULL when there is none. */
const struct pretokenizer *pretokenizer_of_patterns(const char *const *patterns);

/* i-th row of the table; NULL beyond the last. */
const struct pretokenizer *pretokenizer_at(size_t i);

/* Bytes of the first word of s[0..n), n >= 1: 1 .. n. Bytes that are no UTF-8 count as characters of no class. What
 * comes before s does not matter; all that comes behind it must be there (patterns look one character ahead). Only with
 * a scanner. */
static inline size_t pretokenizer_next(const struct pretokenizer *p, const char *s, size_t n) { return p->next(s, n); }

#endif
