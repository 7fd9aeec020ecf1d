#include "engine/base/clock.h"

#include <time.h>

static struct timespec read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t;
}

static uint64_t read_ns(clockid_t clock)
{
    struct timespec t = read_clock(clock);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void) { return read_ns(CLOCK_MONOTONIC); }
uint64_t clock_thread_ns(void) { return read_ns(CLOCK_THREAD_CPUTIME_ID); }
int64_t clock_unix_seconds(void) { return read_clock(CLOCK_REALTIME).tv_sec; }

int64_t clock_unix_ms(void)
{
    struct timespec t = read_clock(CLOCK_REALTIME);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *clock_utc(int64_t unix_seconds, char text[CLOCK_UTC_BYTES])
{
    time_t at = (time_t)unix_seconds;
    struct tm tm;
    if (gmtime_r(&at, &tm) == NULL) { /* a year beyond int */
        tm = (struct tm){.tm_year = 70, .tm_mday = 1};
    }
    strftime(text, CLOCK_UTC_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return text;
}
