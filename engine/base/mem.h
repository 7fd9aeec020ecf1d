/* The only door to the heap, so that memory can be counted by purpose, limited, and told to fail.
 *
 * Small objects come from mem_alloc; large ones (weights, KV, scratch) from mem_map, which asks for huge pages; things
 * that live and die together from an arena. Threads: mem_* are safe anywhere; an arena belongs to one thread. */
#ifndef INFCGI_BASE_MEM_H
#define INFCGI_BASE_MEM_H

#include "engine/base/compiler.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What memory is for; shown by mem_live_of and in /metrics. */
enum mem_purpose {
    MEM_GENERAL,
    MEM_MODEL,   /* metadata, plan, tokenizer */
    MEM_WEIGHTS, /* packed weights */
    MEM_KV,      /* KV cache */
    MEM_SCRATCH, /* activations and per-thread scratch */
    MEM_REQUEST, /* one request: body, prompt, output */
    MEM_GRAMMAR, /* what answers are held to; of requests, and kept for others of the same form */
    MEM_PURPOSE_COUNT
};

/* Uninitialised / zeroed block of `bytes` (0 is treated as 1), aligned for any type. NULL when out of memory or told to
 * fail. Free with mem_free. */
MUST_CHECK void *mem_alloc(size_t bytes, enum mem_purpose purpose);
MUST_CHECK void *mem_zalloc(size_t bytes, enum mem_purpose purpose);

/* Zeroed array of n elements of `size` bytes; NULL also when n * size overflows. */
MUST_CHECK void *mem_zalloc_array(size_t n, size_t size, enum mem_purpose purpose);

/* Grows or shrinks p (OPTIONAL) from mem_alloc, keeping purpose (of p, else `purpose`). NULL on failure, p stays valid.
 */
MUST_CHECK void *mem_realloc(void *p, size_t bytes, enum mem_purpose purpose);

/* Frees p; NULL is ignored. */
void mem_free(void *p);

/* Length-counted copy of s[0..n) with a NUL behind it; NULL when out of memory. Free with mem_free. */
MUST_CHECK char *mem_dup(const char *s, size_t n, enum mem_purpose purpose);

/* Zeroed pages straight from the system, 64-byte (in fact page) aligned, transparent huge pages asked for.
 * NULL when the system refuses. Free with mem_unmap and the same `bytes`. */
MUST_CHECK void *mem_map(size_t bytes, enum mem_purpose purpose);
void mem_unmap(void *p, size_t bytes, enum mem_purpose purpose);

/* Takes memory for the whole system pages in p[0..bytes) of a map now, not when they are first written; what stands there stays.
 * A hint. */
void mem_populate(void *p, size_t bytes);

/* Bytes now held: in all (heap and maps), or for one purpose. */
size_t mem_live(void);
size_t mem_live_of(enum mem_purpose purpose);
const char *mem_purpose_name(enum mem_purpose purpose);

/* Tests: makes the n-th allocation from now on (0 = the next) return NULL, once; n < 0 switches it off.
 * mem_fault_fired tells whether it did. */
void mem_fail_at(long n);
/* The same for allocations of other threads than the caller's; is_lasting: for that one and all behind it. */
void mem_fail_elsewhere(long n, bool is_lasting);
bool mem_fault_fired(void);

/* --- arena: bump allocation, one free for all ------------------------------------------------------------------- */

struct arena_chunk;

/* Zero-initialise by arena_init. Fields are private. */
struct arena {
    struct arena_chunk *head;
    size_t chunk_bytes;
    size_t limit_bytes;
    size_t used_bytes; /* handed out in all */
    bool has_failed;
    bool is_full; /* it has failed for its limit */
    enum mem_purpose purpose;
};

/* chunk_bytes: how much is taken from the heap at a time. limit_bytes: arena_alloc fails beyond it (0 = no limit). */
void arena_init(struct arena *a, size_t chunk_bytes, size_t limit_bytes, enum mem_purpose purpose);

/* 16-byte aligned, uninitialised / zeroed; NULL when the limit or memory is reached. Lives until arena_reset/fini. */
MUST_CHECK void *arena_alloc(struct arena *a, size_t bytes);
MUST_CHECK void *arena_zalloc(struct arena *a, size_t bytes);
MUST_CHECK char *arena_dup(struct arena *a, const char *s, size_t n); /* adds a NUL */

/* Zeroed array of n elements of `size` bytes; NULL also when n * size overflows. */
MUST_CHECK void *arena_zalloc_array(struct arena *a, size_t n, size_t size);

/* ERR_NOMEM when any of the above has given NULL, so that many can be asked for and looked at once. */
MUST_CHECK enum err arena_ok(const struct arena *a);

/* Was it the limit that made one of them fail, and not the memory? */
bool arena_is_full(const struct arena *a);

/* Frees every block but keeps one chunk for reuse / frees everything. */
void arena_reset(struct arena *a);
void arena_fini(struct arena *a);

#endif
