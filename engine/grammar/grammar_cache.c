/* A short list with linear search: a search takes less than a microsecond and saves milliseconds. */
#include "engine/grammar/grammar_cache.h"

#include "engine/base/hash.h"
#include "engine/grammar/grammar_internal.h"

#include <stdint.h>
#include <string.h>

/* A grammar can use this part of all bytes. Larger ones are not kept, and grammars that have grown larger are
 * removed. */
enum { LARGE_PART = 4 };
enum { BUDGET_PART = 8 }; /* all can use this part of the requests' memory limit */

struct entry {
    uint64_t hash; /* of the key; saves comparisons */
    char *key;     /* NULL: free */
    size_t n;
    struct grammar *g;
    size_t n_bytes; /* as of its last use, including its key */
    uint64_t used;  /* cache.n_uses at the last use */
};

struct grammar_cache {
    pthread_mutex_t lock;  /* guards all following fields */
    struct entry *entries; /* [max_entries] */
    size_t max_entries, max_bytes;
    uint64_t n_uses;
    struct grammar_cache_stats stats;
};

enum err grammar_cache_new(size_t max_entries, size_t max_bytes, struct grammar_cache **out)
{
    struct grammar_cache *c = *out = mem_zalloc(sizeof *c, MEM_GENERAL);
    TRY_MEM(c != NULL);
    c->entries = mem_zalloc_array(max_entries, sizeof *c->entries, MEM_GENERAL);
    if (c->entries == NULL) {
        mem_free(c);
        *out = NULL;
        return ERR_NOMEM;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->max_entries = max_entries;
    c->max_bytes = max_bytes;
    return ERR_OK;
}

/* Returns the limit for all entries. */
static size_t most_bytes(const struct grammar_cache *c)
{
    size_t budget = mem_account_budget();
    return budget != 0 ? MIN_OF(c->max_bytes, budget / BUDGET_PART) : c->max_bytes;
}

static void drop(struct grammar_cache *c, struct entry *e)
{
    c->stats.n_entries--;
    c->stats.n_bytes -= e->n_bytes;
    mem_free(e->key); /* before the grammar, which frees the account of its memory */
    grammar_unref(&e->g);
    *e = (struct entry){0};
}

void grammar_cache_free(struct grammar_cache **cache)
{
    struct grammar_cache *c = *cache;
    if (c != NULL) {
        for (size_t i = 0; i < c->max_entries; i++) {
            if (c->entries[i].key != NULL) {
                drop(c, &c->entries[i]);
            }
        }
        pthread_mutex_destroy(&c->lock);
        mem_free(c->entries);
        mem_free(c);
    }
    *cache = NULL;
}

static struct entry *find(const struct grammar_cache *c, uint64_t hash, const char *key, size_t n)
{
    for (size_t i = 0; i < c->max_entries; i++) {
        struct entry *e = &c->entries[i];
        if (e->key != NULL && e->hash == hash && e->n == n && memcmp(e->key, key, n) == 0) {
            return e;
        }
    }
    return NULL;
}

/* Returns the least recently used entry, or NULL. */
static struct entry *oldest(const struct grammar_cache *c)
{
    struct entry *best = NULL;
    for (size_t i = 0; i < c->max_entries; i++) {
        struct entry *e = &c->entries[i];
        best = e->key != NULL && (best == NULL || e->used < best->used) ? e : best;
    }
    return best;
}

/* Checks whether the grammar is as good as a new one. */
static bool is_fit(struct grammar *g, size_t most, size_t *n_bytes)
{
    pthread_mutex_lock(&g->lock);
    *n_bytes = grammar_bytes(g);
    bool is_whole = regex_ok(g->lexer.set) == ERR_OK;
    pthread_mutex_unlock(&g->lock);
    return is_whole && *n_bytes <= most;
}

static void count_bytes(struct grammar_cache *c, struct entry *e, size_t n_bytes)
{
    c->stats.n_bytes += n_bytes - e->n_bytes;
    e->n_bytes = n_bytes;
    e->used = ++c->n_uses;
}

struct grammar *grammar_cache_get(struct grammar_cache *c, const char *key, size_t n)
{
    struct grammar *found = NULL;
    size_t n_bytes;
    uint64_t hash = hash64(key, n, 0);
    pthread_mutex_lock(&c->lock);
    struct entry *e = find(c, hash, key, n);
    if (e != NULL && is_fit(e->g, most_bytes(c) / LARGE_PART, &n_bytes)) {
        count_bytes(c, e, n_bytes + n);
        c->stats.n_found++;
        found = grammar_ref(e->g);
    } else if (e != NULL) {
        drop(c, e);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

void grammar_cache_put(struct grammar_cache *c, const char *key, size_t n, struct grammar *g)
{
    size_t n_bytes;
    struct mem_account *before = mem_account_begin_other(g->account);
    char *copy = mem_dup(key, n, MEM_GRAMMAR);
    mem_account_end_other(before);
    uint64_t hash = hash64(key, n, 0);
    bool is_good = copy != NULL && is_fit(g, most_bytes(c) / LARGE_PART, &n_bytes);
    pthread_mutex_lock(&c->lock);
    c->stats.n_made++;
    if (is_good && find(c, hash, key, n) == NULL) {
        while (c->stats.n_entries > 0 &&
               (c->stats.n_entries == c->max_entries || c->stats.n_bytes + n_bytes + n > most_bytes(c))) {
            drop(c, oldest(c));
        }
        struct entry *e = c->entries;
        while (e->key != NULL) {
            e++;
        }
        *e = (struct entry){.hash = hash, .key = copy, .n = n, .g = grammar_ref(g)};
        c->stats.n_entries++;
        count_bytes(c, e, n_bytes + n);
        copy = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    mem_free(copy);
}

void grammar_cache_get_stats(struct grammar_cache *c, struct grammar_cache_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}
