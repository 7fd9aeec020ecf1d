/* Clocks that a test sets while a program runs: preloaded, it adds the seconds that stand in the file $SET_CLOCK, as an int64_t, to
 * what the program reads of the wall clock, and those of $SET_STEADY_CLOCK to what a master, or a server without one, reads of
 * CLOCK_MONOTONIC. Other clocks, and those of the kernel, go on as they are: what is waited for until a time of CLOCK_MONOTONIC, as all
 * conditions here are that have one, is waited for until the kernel's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int wall = -1, steady = -1;
static int (*read_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *of_wall = getenv("SET_CLOCK"), *of_steady = getenv("SET_STEADY_CLOCK");
    read_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    wall = of_wall != NULL ? open(of_wall, O_RDONLY | O_CLOEXEC) : -1;
    steady = of_steady != NULL && getenv("INFCGI_WORKER") == NULL ? open(of_steady, O_RDONLY | O_CLOEXEC) : -1;
}

static int64_t shift(int fd)
{
    int64_t s = 0;
    return pread(fd, &s, sizeof s, 0) == sizeof s ? s : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = read_clock(clock, t);
    bool is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    t->tv_sec += rc == 0 && (is_wall || clock == CLOCK_MONOTONIC) ? shift(is_wall ? wall : steady) : 0;
    return rc;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
    struct timespec of_kernel = {at->tv_sec - shift(steady), at->tv_nsec};
    return pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &of_kernel);
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    *t = (struct timeval){at.tv_sec, at.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return t != NULL ? (*t = at.tv_sec) : at.tv_sec;
}
