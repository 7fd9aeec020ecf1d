/* Eight lanes, each a chain of "xor a word in, fold, multiply". Every step is a bijection of the lane and of the word,
 * so the effect of a changed word cannot vanish. Eight chains keep the multiplier busy while each waits for its
 * result. */
#include "engine/base/hash.h"

#include "engine/base/compiler.h"

#include <string.h>

enum { LANES = 8 };

/* Odd, with bits spread over the word: the golden ratio's fraction and splitmix64's first multiplier [Steele 2014]. */
#define STEP_FACTOR   0x9E3779B97F4A7C15u
#define FINISH_FACTOR 0xBF58476D1CE4E5B9u

static inline uint64_t step(uint64_t h, uint64_t word)
{
    h ^= word;
    h ^= h >> 32; /* a product spreads bits only upwards; without this, two flips of high bits could cancel */
    return h * STEP_FACTOR;
}

static uint64_t finish(uint64_t h)
{
    h = (h ^ h >> 30) * FINISH_FACTOR;
    return h ^ h >> 31;
}

uint64_t hash64(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *at = p;
    uint64_t lane[LANES], word;
    for (int i = 0; i < LANES; i++) {
        lane[i] = seed + (uint64_t)i;
    }
    size_t left = n;
    for (; left >= sizeof lane; left -= sizeof lane, at += sizeof lane) {
        UNROLL_FULLY
        for (int i = 0; i < LANES; i++) {
            memcpy(&word, at + 8 * i, sizeof word);
            lane[i] = step(lane[i], word);
        }
    }
    for (int i = 0; left > 0; i++) {
        size_t k = MIN_OF(left, sizeof word);
        word = 0;
        memcpy(&word, at, k);
        lane[i] = step(lane[i], word);
        at += k;
        left -= k;
    }
    uint64_t h = finish(step(seed, n));
    for (int i = 0; i < LANES; i++) {
        h = finish(step(h, lane[i]));
    }
    return h;
}
