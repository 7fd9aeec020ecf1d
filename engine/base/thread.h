/* Starting threads, and conditions that wait until a time of clock_now_ns. Threads: any. */
#ifndef INFCGI_BASE_THREAD_H
#define INFCGI_BASE_THREAD_H

#include "engine/base/compiler.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Starts a thread in which all signals except SIGBUS are blocked; tools such as top show its name (OPTIONAL). Returns 0 or an
 * errno. */
MUST_CHECK int thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg);

/* Initialises a condition for pthread_cond_timedwait with thread_until(clock_now_ns() + ...). */
void thread_cond_init(pthread_cond_t *cond);
struct timespec thread_until(uint64_t ns);

#endif
