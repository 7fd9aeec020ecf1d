#include "engine/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* else a thread that reads a truncated file kills the process without an explanation */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    if (rc == 0 && name != NULL) {
        (void)pthread_setname_np(*thread, name);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void thread_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec thread_until(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}
