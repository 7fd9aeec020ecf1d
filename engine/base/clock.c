#include "engine/base/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void) { return read_ns(CLOCK_MONOTONIC); }
uint64_t clock_thread_ns(void) { return read_ns(CLOCK_THREAD_CPUTIME_ID); }

int64_t clock_unix_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec;
}

int64_t clock_unix_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
