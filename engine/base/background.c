#include "engine/base/background.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

enum { LOWER_BY = 10 /* Linux: weight 110 instead of 1024 */ };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_normal;  /* the policy is SCHED_OTHER; another one, chosen when the process was started, stays */
static bool can_return; /* to the earlier nice value */
static int normal;      /* nice value */

/* On Linux a nice value belongs to a thread; 0 means the calling one. */
static bool set_nice(int nice) { return setpriority(PRIO_PROCESS, 0, nice) == 0; }

/* Runs in a separate thread, which possibly cannot return to its old value. */
static void *probe(void *arg)
{
    (void)arg;
    errno = 0;
    normal = getpriority(PRIO_PROCESS, 0);
    can_return = errno == 0 && set_nice(normal + LOWER_BY) && set_nice(normal);
    return NULL;
}

static void find_policy(void)
{
    pthread_t thread;
    is_normal = sched_getscheduler(0) == SCHED_OTHER;
    if (is_normal && pthread_create(&thread, NULL, probe, NULL) == 0) {
        (void)pthread_join(thread, NULL);
    }
}

void background_begin(void)
{
    const struct sched_param none = {0};
    pthread_once(&once, find_policy);
    if (is_normal) {
        (void)sched_setscheduler(0, SCHED_BATCH, &none);
    }
    if (can_return) {
        (void)set_nice(normal + LOWER_BY);
    }
}

void background_end(void)
{
    const struct sched_param none = {0};
    if (can_return) {
        (void)set_nice(normal);
    }
    if (is_normal) {
        (void)sched_setscheduler(0, SCHED_OTHER, &none);
    }
}
