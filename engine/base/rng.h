/* Counter-based random numbers: Philox4x32-10 [Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011].
 * The n-th number of a (seed, stream) pair is a function of the three values alone, so a sampled token depends on its
 * seed, sequence and position and on nothing that ran before. Threads: pure functions. */
#ifndef INFCGI_BASE_RNG_H
#define INFCGI_BASE_RNG_H

#include <stdint.h>

/* Philox4x32-10 block: key (2 words), counter (4 words) -> out (4 words). */
void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/* Uniform in [0, 1), 53 random bits. seed: the request's; stream: which sequence of the request (choice index);
 * position: token position within it. */
double rng_uniform(uint64_t seed, uint32_t stream, uint64_t position);

/* A number that nobody can guess, from getrandom(2): the seed of a request that named none, and parts of ids. If the system has no
 * getrandom, it mixes the monotonic clock and a process-wide counter. */
uint64_t rng_fresh_seed(void);

#endif
