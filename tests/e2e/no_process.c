/* A system that gives no thread or no process, when a test says so. Preloaded, it refuses the n-th and all later of pthread_create's calls,
 * n from $NO_THREAD_FROM, counted from 0; and all of pthread_create's and fork's while there is a file $NO_PROCESS_WHILE. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_refused(void)
{
    const char *path = getenv("NO_PROCESS_WHILE");
    return path != NULL && access(path, F_OK) == 0;
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr, void *(*run)(void *),
                   void *restrict arg)
{
    static atomic_int n_calls;
    const char *from = getenv("NO_THREAD_FROM");
    int n = atomic_fetch_add(&n_calls, 1);
    if (is_refused() || (from != NULL && n >= atoi(from))) {
        return EAGAIN;
    }
    typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return ((create *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attr, run, arg);
}

pid_t fork(void)
{
    if (is_refused()) {
        errno = EAGAIN;
        return -1;
    }
    return ((pid_t(*)(void))dlsym(RTLD_NEXT, "fork"))();
}
