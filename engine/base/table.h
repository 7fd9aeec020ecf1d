/* Hash tables with open addressing. A struct table maps a key to an index; keys and values stay in the caller's arrays.
 * At most half of the slots are used, so a search ends after a few. Tables with entries in their slots use only
 * table_probe.
 *
 * The caller hashes: the low bits of a hash must depend on the whole key. Callbacks are inlined into each call.
 * Threads: as the caller's arrays. */
#ifndef INFCGI_BASE_TABLE_H
#define INFCGI_BASE_TABLE_H

#include "engine/base/compiler.h"
#include "engine/base/err.h"
#include "engine/base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_NONE UINT32_MAX /* no index */

/* Returns whether the search ends at slot `at`: it is free, or holds the key. */
typedef bool (*table_stops_fn)(const void *key, size_t at);

/* Returns the slot at which the search for a key ends, of mask + 1 slots, a power of two. At least one slot is free. */
static ALWAYS_INLINE size_t table_probe(size_t mask, uint64_t hash, table_stops_fn stops, const void *key)
{
    size_t at = (size_t)hash & mask;
    while (!stops(key, at)) {
        at = (at + 1) & mask;
    }
    return at;
}

/* All zero: an empty table without memory. */
struct table {
    uint32_t *slots; /* [mask + 1] an index plus 1; 0: free. NULL: none yet */
    size_t mask;
    size_t n; /* number of indexes in it */
};

/* Returns whether index i has the key. */
typedef bool (*table_same_fn)(const void *key, uint32_t i);

/* Returns the hash of the key that index i has. */
typedef uint64_t (*table_hash_fn)(const void *all, uint32_t i);

struct table_search {
    const uint32_t *slots;
    table_same_fn same;
    const void *key;
};

static ALWAYS_INLINE bool table_search_stops(const void *search, size_t at)
{
    const struct table_search *s = search;
    return s->slots[at] == 0 || s->same(s->key, s->slots[at] - 1);
}

/* Returns the index that has the key, or TABLE_NONE. */
static ALWAYS_INLINE uint32_t table_find(const struct table *t, uint64_t hash, table_same_fn same, const void *key)
{
    if (t->slots == NULL) {
        return TABLE_NONE;
    }
    struct table_search search = {t->slots, same, key};
    return t->slots[table_probe(t->mask, hash, table_search_stops, &search)] - 1; /* 0 - 1 is TABLE_NONE */
}

static ALWAYS_INLINE bool table_is_free(const void *slots, size_t at) { return ((const uint32_t *)slots)[at] == 0; }

/* Adds an index whose key is not in the table. table_reserve made room. */
static inline void table_add(struct table *t, uint64_t hash, uint32_t i)
{
    t->slots[table_probe(t->mask, hash, table_is_free, t->slots)] = i + 1;
    t->n++;
}

/* Returns how many indexes the table can hold before it must grow. */
static inline size_t table_room(const struct table *t) { return t->slots != NULL ? (t->mask + 1) / 2 : 0; }

/* Makes room for n indexes in all; table_reserve's slow part. */
MUST_CHECK enum err table_grow(struct table *t, size_t n, table_hash_fn hash, const void *all,
                               enum mem_purpose purpose);

/* Makes room for n indexes in all. all: passed to hash, which is called for each index in the table if it grows; NULL will do for
 * an empty table. ERR_NOMEM: the table is as before. */
MUST_CHECK static inline enum err table_reserve(struct table *t, size_t n, table_hash_fn hash, const void *all,
                                                enum mem_purpose purpose)
{
    return n <= table_room(t) ? ERR_OK : table_grow(t, n, hash, all, purpose);
}

/* Makes an empty table of n_slots slots, a power of two, in zeroed memory of the caller. It holds up to n_slots / 2
 * indexes, never grows, and needs no table_fini. */
static inline void table_use(struct table *t, uint32_t *slots, size_t n_slots)
{
    *t = (struct table){.slots = slots, .mask = n_slots - 1};
}

/* Removes index i, which is in the table and has this hash. hash and all: as table_reserve; i is still valid for them. */
void table_remove(struct table *t, uint64_t hash, uint32_t i, table_hash_fn hash_of, const void *all);

/* The key of index `from`, which is in the table and has this hash, has index `to` from now on. */
void table_renumber(struct table *t, uint64_t hash, uint32_t from, uint32_t to);

/* Removes all indexes and keeps the memory. */
void table_clear(struct table *t);

/* Returns the bytes of the slots. */
static inline size_t table_bytes(const struct table *t)
{
    return t->slots != NULL ? (t->mask + 1) * sizeof *t->slots : 0;
}

/* Frees the slots; the table is empty then. */
void table_fini(struct table *t);

#endif
