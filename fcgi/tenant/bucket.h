/* Token buckets: a rate per minute that refills evenly, with one minute's worth as the burst limit. Threads: plain
 * structs, owned by the caller. */
#ifndef INFCGI_FCGI_BUCKET_H
#define INFCGI_FCGI_BUCKET_H

#include <stdint.h>

struct bucket {
    double capacity; /* per minute; 0: no limit */
    double level;    /* at at_ns; negative after taking more than was available */
    uint64_t at_ns;
};

/* Sets the rate per minute, 0: no limit. Does not reset the amount already taken. */
void bucket_set(struct bucket *b, double per_minute, uint64_t now_ns);

/* Returns the available amount. */
double bucket_level(const struct bucket *b, uint64_t now_ns);

/* Returns the time until n are available. 0: available now, or no limit; UINT64_MAX: n exceeds the capacity. */
uint64_t bucket_wait_ns(const struct bucket *b, double n, uint64_t now_ns);

/* Takes n even if less is available. n < 0 returns tokens, up to the capacity. */
void bucket_take(struct bucket *b, double n, uint64_t now_ns);

#endif
