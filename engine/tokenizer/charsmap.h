/* The map of a SentencePiece normalizer (precompiled_charsmap): a double-array trie from short texts to their
 * replacements [Darts-clone; sentencepiece, src/normalizer.cc]. It comes from a file, so every index is checked.
 * Threads: read-only. */
#ifndef INFCGI_TOKENIZER_CHARSMAP_H
#define INFCGI_TOKENIZER_CHARSMAP_H

#include "engine/base/err.h"

#include <stddef.h>

struct charsmap {
    const unsigned char *units; /* [n_units] u32, little-endian, not aligned; NULL: no map */
    size_t n_units;
    const char *texts; /* [n_texts] replacements, each with its NUL */
    size_t n_texts;
};

/* Initializes the map from data[0..n), borrowed: size of the trie in bytes as u32, the trie, the replacements. Looks up
 * every code point once. ERR_BAD_CHARSMAP. */
MUST_CHECK enum err charsmap_init(struct charsmap *m, const unsigned char *data, size_t n, struct err_info *info);

/* Returns the replacement of the shortest text in the map that s[0..n) begins with, or NULL. */
const char *charsmap_find(const struct charsmap *m, const char *s, size_t n);

#endif
