/* Chooses the positions that attention reads, identically for every back end. Threads: pure function. */
#ifndef INFCGI_BACKEND_CHOOSE_POSITIONS_H
#define INFCGI_BACKEND_CHOOSE_POSITIONS_H

#include <stdint.h>

/* Writes to out[k], as floats and ascending, the positions of the k largest of scores[n], the lower ones of equal scores;
 * NaNs are largest, and -0 is 0. If n is at most k, scores are not read, and out has all positions, then -1. k >= 1, n <=
 * 2^24. */
void choose_positions(const float *scores, int32_t n, int32_t k, float *out);

#endif
