/* Time. Durations come from the monotonic clock, so setting the wall clock ends no request early.
 * Threads: pure reads. */
#ifndef INFCGI_BASE_CLOCK_H
#define INFCGI_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void);      /* monotonic, from an arbitrary start */
uint64_t clock_thread_ns(void);   /* that the calling thread has run; a system call, where clock_now_ns is none */
int64_t clock_unix_seconds(void); /* wall clock, for "created" fields and logs */
int64_t clock_unix_ms(void);      /* the same in milliseconds */

#endif
