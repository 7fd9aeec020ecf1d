/* Remainders of division by numbers of up to 40 bits. Threads: pure functions. */
#ifndef INFCGI_REGEX_RESIDUE_H
#define INFCGI_REGEX_RESIDUE_H

#include <stdint.h>

/* Returns a * b % m, for a, b < m <= 2^40. */
static inline uint64_t residue_mul(uint64_t a, uint64_t b, uint64_t m)
{
    uint64_t high = a * (b >> 20) % m, low = a * (b & 0xfffff) % m;
    return ((high << 20) % m + low) % m;
}

/* Returns 10^n % m, for m <= 2^40. */
static inline uint64_t residue_power_of_ten(uint64_t n, uint64_t m)
{
    uint64_t r = 1 % m, square = 10 % m;
    for (; n > 0; n >>= 1) {
        r = (n & 1) != 0 ? residue_mul(r, square, m) : r;
        square = residue_mul(square, square, m);
    }
    return r;
}

static inline uint64_t residue_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
