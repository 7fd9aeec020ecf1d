/* Grammars that were made before, by the text they were made of, so that a form that comes again is not made again. What is kept
 * is bounded in number and bytes; the one that was not asked for the longest goes first. A grammar that has grown large as it was
 * walked, or has met a limit or an end of memory, is made anew: it shall not fail for what others have left in it.
 * Threads: safe anywhere. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_CACHE_H
#define INFCGI_GRAMMAR_GRAMMAR_CACHE_H

#include "engine/grammar/grammar.h"

struct grammar_cache;

enum { GRAMMAR_CACHE_ENTRIES = 64, GRAMMAR_CACHE_BYTES = 32 << 20 };

struct grammar_cache_stats {
    uint64_t n_made, n_found; /* grammars put there; asked for and there */
    size_t n_entries, n_bytes;
};

/* At most so many entries, 1 at least, and bytes, keys included; no more than an eighth of what requests may hold
 * (mem_account.h). ERR_NOMEM. */
MUST_CHECK enum err grammar_cache_new(size_t max_entries, size_t max_bytes, struct grammar_cache **out);
void grammar_cache_free(struct grammar_cache **c);

/* The grammar of key[0..n), the caller's to unref; NULL: it is not there. */
struct grammar *grammar_cache_get(struct grammar_cache *c, const char *key, size_t n);

/* Keeps a reference to g, unless it is too large, there is no memory, or one of the key is there. Counts it as made. */
void grammar_cache_put(struct grammar_cache *c, const char *key, size_t n, struct grammar *g);

void grammar_cache_get_stats(struct grammar_cache *c, struct grammar_cache_stats *out);

#endif
