/* Counter-based random numbers: Philox4x32-10 [Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011].
 * The n-th number of a (seed, stream) pair is a function of these three values. So a sampled token depends only on its
 * seed, sequence and position, and not on anything that ran before. Threads: pure functions. */
#ifndef INFCGI_BASE_RNG_H
#define INFCGI_BASE_RNG_H

#include <stdint.h>

/* Computes a Philox4x32-10 block: key (2 words), counter (4 words) -> out (4 words). */
void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/* Returns a uniform number in [0, 1) with 53 random bits. seed: the request's; stream: the sequence of the request (its
 * choice index); position: of the token in it. */
double rng_uniform(uint64_t seed, uint32_t stream, uint64_t position);

/* Returns an unpredictable number from getrandom(2): the seed of a request without one, and parts of ids. Without
 * getrandom, mixes the monotonic clock and a process-wide counter. */
uint64_t rng_fresh_seed(void);

#endif
