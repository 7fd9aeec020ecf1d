/* Philox4x32-10; constants from the paper's reference implementation (Random123). */
#include "engine/base/rng.h"

#include "engine/base/clock.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <sys/types.h>

enum { ROUNDS = 10 };
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0       0x9E3779B9u
#define WEYL_1       0xBB67AE85u

void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double rng_uniform(uint64_t seed, uint32_t stream, uint64_t position)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, 0};
    uint32_t r[4];
    rng_philox(key, counter, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11; /* 53 bits */
    return (double)bits * 0x1p-53;
}

static uint64_t mix_clock(void)
{
    static atomic_uint_fast64_t calls;
    uint64_t n = atomic_fetch_add(&calls, 1);
    uint64_t now = clock_now_ns();
    const uint32_t key[2] = {(uint32_t)now, (uint32_t)(now >> 32)};
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32), 0x5EEDu, 1};
    uint32_t r[4];
    rng_philox(key, counter, r);
    return (uint64_t)r[0] << 32 | r[1];
}

uint64_t rng_fresh_seed(void)
{
    uint64_t seed;
    return getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed ? seed : mix_clock();
}
