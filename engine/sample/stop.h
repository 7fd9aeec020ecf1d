/* Stop strings over a stream of text pieces: which bytes can be shown, and where a match begins. Holds back only text
 * that can still become a match. Threads: a matcher belongs to one thread. */
#ifndef INFCGI_SAMPLE_STOP_H
#define INFCGI_SAMPLE_STOP_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { STOP_MAX = 16 };

/* Zero-initialise, fill in strings, and call buf_init for `held`. */
struct stop {
    const char *strings[STOP_MAX];
    size_t lens[STOP_MAX]; /* 1 or more */
    size_t n;
    struct buf held; /* text not yet released */
};

/* Appends text[0..n). *releasable: bytes at the start of s->held that can be shown. Returns true if a stop string
 * begins right after them; *which is its index. It is the string that is complete first (of those complete at the same
 * byte the longest, then the first in the list). So the result does not depend on where pieces end, and held text never
 * contains a whole stop string. Allocation failures stick in s->held. */
bool stop_push(struct stop *s, const char *text, size_t n, size_t *releasable, size_t *which);

/* Drops the first n bytes of s->held, which were shown. */
void stop_release(struct stop *s, size_t n);

#endif
