/* A 64-bit hash at the speed of memory, to detect accidental changes. It is neither a signature nor safe for keys that
 * an adversary can choose. A change within one aligned 8-byte word always changes the hash, other changes with
 * probability 1 - 2^-64. Values are equal on machines of one byte order. Threads: pure functions. */
#ifndef INFCGI_BASE_HASH_H
#define INFCGI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns the hash of p[0..n), continued from `seed`: 0, or the hash of the bytes before. */
uint64_t hash64(const void *p, size_t n, uint64_t seed);

/* Returns the hash of one number. */
static inline uint64_t hash64_u64(uint64_t v, uint64_t seed) { return hash64(&v, sizeof v, seed); }

#endif
