/* A wall clock that a test sets while a program runs: preloaded, it adds the seconds that stand in the file $SET_CLOCK, as an int64_t, to
 * what the program reads of it. Other clocks, and those of the kernel, go on as they are. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int fd = -1;
static int (*read_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SET_CLOCK");
    read_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static int64_t shift(void)
{
    int64_t s = 0;
    return pread(fd, &s, sizeof s, 0) == sizeof s ? s : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = read_clock(clock, t);
    t->tv_sec += rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) ? shift() : 0;
    return rc;
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
