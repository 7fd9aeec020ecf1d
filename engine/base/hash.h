/* A 64-bit hash at the speed of memory, to notice bytes that changed by accident. Not for keys that an adversary may
 * choose, and no signature. Any change within one aligned 8-byte word changes the hash for certain; others with
 * probability 1 - 2^-64. Values are the same on machines of one byte order. Threads: pure functions. */
#ifndef INFCGI_BASE_HASH_H
#define INFCGI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash of p[0..n) that goes on from `seed`: 0, or the hash of what stands before. */
uint64_t hash64(const void *p, size_t n, uint64_t seed);

/* The same for one number. */
static inline uint64_t hash64_u64(uint64_t v, uint64_t seed) { return hash64(&v, sizeof v, seed); }

#endif
