/* Finds the k-th largest score byte by byte [Knuth 1998, 5.2.5: radix], in the order of its bits. */
#include "engine/backend/choose_positions.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Returns a number in the order of scores. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    float plain = score + 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &plain, sizeof bits);
    if (isnan(score)) {
        return UINT32_MAX;
    }
    return (bits & UINT32_C(0x80000000)) != 0 ? ~bits : bits | UINT32_C(0x80000000);
}

/* Returns the order of the k-th largest score; *n_equal: how many of this order are among the k. */
static uint32_t find_least(const float *scores, int32_t n, int32_t k, int32_t *n_equal)
{
    uint32_t prefix = 0, mask = 0;
    *n_equal = k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int32_t counts[256] = {0};
        for (int32_t i = 0; i < n; i++) {
            uint32_t order = order_of(scores[i]);
            if ((order & mask) == prefix) {
                counts[order >> shift & 255]++;
            }
        }
        uint32_t byte = 255;
        for (; counts[byte] < *n_equal; byte--) { /* all counts together are at least *n_equal */
            *n_equal -= counts[byte];
        }
        prefix |= byte << shift;
        mask |= UINT32_C(255) << shift;
    }
    return prefix;
}

void choose_positions(const float *scores, int32_t n, int32_t k, float *out)
{
    if (n <= k) {
        for (int32_t i = 0; i < k; i++) {
            out[i] = i < n ? (float)i : -1.0f;
        }
        return;
    }
    int32_t n_equal, at = 0;
    uint32_t least = find_least(scores, n, k, &n_equal);
    for (int32_t i = 0; at < k; i++) {
        uint32_t order = order_of(scores[i]);
        bool is_equal = order == least && n_equal > 0;
        if (order > least || is_equal) {
            out[at++] = (float)i;
            n_equal -= is_equal;
        }
    }
}
