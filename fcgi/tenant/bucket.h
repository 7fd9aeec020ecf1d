/* Token buckets: so much a minute, which comes back evenly, and a minute's worth at once at most. Threads: plain
 * structs, the caller's. */
#ifndef INFCGI_FCGI_BUCKET_H
#define INFCGI_FCGI_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct bucket {
    double capacity; /* a minute's; 0 = no limit */
    double level;    /* at at_ns; below 0 when more was taken than was there */
    uint64_t at_ns;
};

/* From now on so much a minute, 0 = no limit; what was taken stays taken. */
void bucket_set(struct bucket *b, double per_minute, uint64_t now_ns);

/* What is there. */
double bucket_level(const struct bucket *b, uint64_t now_ns);

/* Time until n are there: 0 = they are, or there is no limit; UINT64_MAX = they never will be. */
uint64_t bucket_wait_ns(const struct bucket *b, double n, uint64_t now_ns);

/* Takes n, whatever is there; n < 0 gives some back, up to what fits. */
void bucket_take(struct bucket *b, double n, uint64_t now_ns);

#endif
