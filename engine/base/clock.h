/* Time. Durations come from the monotonic clock, so setting the wall clock ends no request early. Threads: pure
 * reads. */
#ifndef INFCGI_BASE_CLOCK_H
#define INFCGI_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void);      /* monotonic, with an arbitrary start */
uint64_t clock_thread_ns(void);   /* CPU time of the calling thread; a system call, unlike clock_now_ns */
int64_t clock_unix_seconds(void); /* wall clock, for "created" fields and logs */
int64_t clock_unix_ms(void);      /* wall clock in milliseconds */

enum { CLOCK_UTC_BYTES = 32 };

/* Writes seconds since 1970 as "2026-11-28T09:00:00Z" [RFC 3339] to text, and returns text. */
const char *clock_utc(int64_t unix_seconds, char text[CLOCK_UTC_BYTES]);

#endif
