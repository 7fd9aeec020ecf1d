/* All words over {a, b} of at most WORDS_LONGEST letters as bits of a number, to compute languages by hand. */
#ifndef INFCGI_TESTS_WORDS_H
#define INFCGI_TESTS_WORDS_H

#include <stdint.h>

enum { WORDS_LONGEST = 5, N_WORDS = 63 };

/* Writes word i: a letter for each bit of i + 1 after its first one, a for 0 and b for 1. Returns its length. */
static inline int word_at(int i, char out[WORDS_LONGEST + 1])
{
    int n = 0;
    for (int v = i + 1; v > 1; v >>= 1) {
        n++;
    }
    for (int k = 0; k < n; k++) {
        out[k] = (i + 1) >> (n - 1 - k) & 1 ? 'b' : 'a';
    }
    out[n] = '\0';
    return n;
}

/* Returns the number of the word x y; -1: too long. */
static inline int word_join(int x, int y)
{
    char unused[WORDS_LONGEST + 1];
    int nx = word_at(x, unused), ny = word_at(y, unused);
    return nx + ny > WORDS_LONGEST ? -1 : ((x + 1) << ny | ((y + 1) & ((1 << ny) - 1))) - 1;
}

static inline uint64_t words_concat(uint64_t x, uint64_t y)
{
    uint64_t out = 0;
    for (int i = 0; i < N_WORDS; i++) {
        for (int k = 0; (x >> i & 1) != 0 && k < N_WORDS; k++) {
            int joined = word_join(i, k);
            out |= (y >> k & 1) != 0 && joined >= 0 ? (uint64_t)1 << joined : 0;
        }
    }
    return out;
}

static const uint64_t words_empty = 1, words_a = 2, words_b = 4, words_all = ((uint64_t)1 << N_WORDS) - 1;

static inline uint64_t words_repeat(uint64_t x, uint32_t min, uint32_t max)
{
    uint64_t turn = words_empty, out = 0;
    for (uint32_t i = 0; i <= 12 && i <= max; i++) { /* more repetitions than letters add only the empty word */
        out |= i >= min || (x & words_empty) != 0 ? turn : 0;
        turn = words_concat(turn, x);
    }
    return out;
}

#endif
