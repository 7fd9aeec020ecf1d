/* Pre-tokenizers split text into words before the merges run. Model files name them. Each name is a row in
 * pretokenizer.c with the regular expressions of the original tokenizer.json. The common ones are linear scanners of
 * infcgi, the others run through splitter.h. Threads: pure functions. */
#ifndef INFCGI_TOKENIZER_PRETOKENIZER_H
#define INFCGI_TOKENIZER_PRETOKENIZER_H

#include <stddef.h>

enum { PRETOKENIZER_MAX_PATTERNS = 6 };

enum pretokenizer_flag {
    PRE_IGNORES_MERGES = 1, /* a word that is a vocabulary entry becomes one token ("ignore_merges") */
    PRE_ADDS_BOS = 2,       /* default if the file does not say */
    PRE_NFC = 4,            /* text is normalized to NFC first */
    PRE_SPELT = 8,          /* the vocabulary has no byte alphabet: text is spelled as in SentencePiece */
    PRE_CUTS_SPACES = 16,   /* with PRE_SPELT: each U+2581 begins a word */
    PRE_DROPS_SPACES = 32,  /* with PRE_SPELT: white space only separates words, and words are not respelled */
};

struct pretokenizer {
    const char *name; /* as in tokenizer.ggml.pre */
    /* Run in sequence; Oniguruma's syntax, NULL after the last. With PRE_SPELT only together with PRE_DROPS_SPACES. */
    const char *patterns[PRETOKENIZER_MAX_PATTERNS + 1];
    /* OPTIONAL: the scanner that replaces all patterns. Returns the length in bytes of the first word of s[0..n), n >= 1:
     * 1 .. n. Invalid UTF-8 bytes count as characters of no class. The text before s does not matter; all text after the
     * word must be present, because patterns look one character ahead. */
    size_t (*next)(const char *s, size_t n);
    unsigned flags; /* enum pretokenizer_flag */
};

/* Returns NULL if the name is unknown. */
const struct pretokenizer *pretokenizer_find(const char *name, size_t n);

/* Returns the first row with a scanner for these patterns (NULL after the last), or NULL. */
const struct pretokenizer *pretokenizer_of_patterns(const char *const *patterns);

/* Returns the i-th row of the table; NULL after the last. */
const struct pretokenizer *pretokenizer_at(size_t i);

#endif
