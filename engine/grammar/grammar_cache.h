/* Caches grammars by their source text, so that a repeated form is not built again. The cache is bounded in entries and
 * bytes and removes the least recently used entry. A grammar that has grown large while it was walked, reached a limit
 * or ran out of memory is built again: it must not fail because of other sequences. Threads: safe in any thread. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_CACHE_H
#define INFCGI_GRAMMAR_GRAMMAR_CACHE_H

#include "engine/grammar/grammar.h"

struct grammar_cache;

enum { GRAMMAR_CACHE_ENTRIES = 64, GRAMMAR_CACHE_BYTES = 32 << 20 };

struct grammar_cache_stats {
    uint64_t n_made, n_found; /* grammars added; lookups that found one */
    size_t n_entries, n_bytes;
};

/* max_entries: at least 1; max_bytes: keys included, and at most an eighth of the requests' memory limit
 * (mem_account.h). ERR_NOMEM. */
MUST_CHECK enum err grammar_cache_new(size_t max_entries, size_t max_bytes, struct grammar_cache **out);
void grammar_cache_free(struct grammar_cache **c);

/* Returns the grammar of key[0..n), which the caller must unref; NULL: not found. */
struct grammar *grammar_cache_get(struct grammar_cache *c, const char *key, size_t n);

/* Keeps a reference to g unless it is too large, memory is out, or the key is present. Counts it as made. */
void grammar_cache_put(struct grammar_cache *c, const char *key, size_t n, struct grammar *g);

void grammar_cache_get_stats(struct grammar_cache *c, struct grammar_cache_stats *out);

#endif
