/* Heap allocation, so that memory can be counted by purpose, limited, and made to fail by tests. No other module uses
 * the heap. Small objects come from mem_alloc; large ones (weights, KV, scratch) from mem_map, which asks for huge
 * pages; objects with a common lifetime from an arena. Threads: mem_* are safe from any; an arena belongs to one
 * thread. */
#ifndef INFCGI_BASE_MEM_H
#define INFCGI_BASE_MEM_H

#include "engine/base/compiler.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* What memory is used for; shown by mem_live_of and in /metrics. */
enum mem_purpose {
    MEM_GENERAL,
    MEM_MODEL,   /* metadata, plan, tokenizer */
    MEM_WEIGHTS, /* packed weights */
    MEM_KV,      /* KV cache */
    MEM_SCRATCH, /* activations and per-thread scratch */
    MEM_REQUEST, /* one request: body, prompt, output */
    MEM_GRAMMAR, /* grammars of requests, kept for later requests of the same form */
    MEM_PURPOSE_COUNT
};

/* Returns an uninitialised / zeroed block of `bytes` (0 counts as 1), aligned for any type; NULL if memory is out or a
 * test made it fail. The caller frees it with mem_free. */
MUST_CHECK void *mem_alloc(size_t bytes, enum mem_purpose purpose);
MUST_CHECK void *mem_zalloc(size_t bytes, enum mem_purpose purpose);

/* Returns a zeroed array of n elements of `size` bytes; NULL also if n * size overflows. */
MUST_CHECK void *mem_zalloc_array(size_t n, size_t size, enum mem_purpose purpose);

/* Grows or shrinks p (OPTIONAL) from mem_alloc, keeping its purpose (without p: `purpose`). On failure returns NULL,
 * and p stays valid. */
MUST_CHECK void *mem_realloc(void *p, size_t bytes, enum mem_purpose purpose);

/* Makes room for one more element after the first n of an array of *cap elements of `size` bytes. array: address of the
 * pointer to it, NULL at first. Without room, replaces it by a block of twice the elements, 64 at first, as mem_realloc
 * does, and sets *cap. ERR_NOMEM: array and *cap stay valid. */
MUST_CHECK enum err mem_grow(void *array, size_t n, size_t *cap, size_t size, enum mem_purpose purpose);

/* Frees p; ignores NULL. */
void mem_free(void *p);

/* Returns a NUL-terminated copy of s[0..n); NULL if memory is out. The caller frees it with mem_free. */
MUST_CHECK char *mem_dup(const char *s, size_t n, enum mem_purpose purpose);

/* Returns zeroed pages from the system, aligned to 64 bytes (in fact to a page), with transparent huge pages requested;
 * NULL if the system refuses. The caller frees them with mem_unmap and the same `bytes`. */
MUST_CHECK void *mem_map(size_t bytes, enum mem_purpose purpose);
void mem_unmap(void *p, size_t bytes, enum mem_purpose purpose);

/* Prefaults the whole system pages in p[0..bytes) of a mapping; contents are kept. Failure is ignored. */
void mem_populate(void *p, size_t bytes);

/* Return the bytes now held: in all (heap and maps), or for one purpose. */
size_t mem_live(void);
size_t mem_live_of(enum mem_purpose purpose);
const char *mem_purpose_name(enum mem_purpose purpose);

/* For tests: makes the n-th allocation from now on (0: the next) return NULL, once; n < 0 switches that off.
 * mem_fault_fired returns whether it happened. */
void mem_fail_at(long n);
/* Like mem_fail_at, for allocations of threads other than the caller's; is_lasting: all later ones fail,
 * too. */
void mem_fail_elsewhere(long n, bool is_lasting);
bool mem_fault_fired(void);

/* --- arena: bump allocation, one free for all ------------------------------------------------------------------- */

struct arena_chunk;

/* arena_init initialises it. Fields are private. */
struct arena {
    struct arena_chunk *head;
    size_t chunk_bytes;
    size_t limit_bytes;
    size_t used_bytes; /* handed out in all */
    bool has_failed;
    bool is_full; /* it failed because of its limit */
    enum mem_purpose purpose;
};

/* Initialises an arena. chunk_bytes: size of blocks taken from the heap. limit_bytes: arena_alloc fails beyond it (0:
 * no limit). */
void arena_init(struct arena *a, size_t chunk_bytes, size_t limit_bytes, enum mem_purpose purpose);

/* Returns a 16-byte aligned, uninitialised / zeroed block that lives until arena_reset/fini; NULL if the limit is
 * reached or memory is out. */
MUST_CHECK void *arena_alloc(struct arena *a, size_t bytes);
MUST_CHECK void *arena_zalloc(struct arena *a, size_t bytes);
MUST_CHECK char *arena_dup(struct arena *a, const char *s, size_t n); /* adds a NUL */

/* Returns a zeroed array of n elements of `size` bytes; NULL also if n * size overflows. */
MUST_CHECK void *arena_zalloc_array(struct arena *a, size_t n, size_t size);

/* Returns ERR_NOMEM if any of the functions above returned NULL, so that callers can check several allocations
 * together. */
MUST_CHECK enum err arena_ok(const struct arena *a);

/* Returns whether an allocation failed because of the limit and not for lack of memory. */
bool arena_is_full(const struct arena *a);

/* Frees every block but keeps one chunk for reuse / frees everything. */
void arena_reset(struct arena *a);
void arena_fini(struct arena *a);

#endif
