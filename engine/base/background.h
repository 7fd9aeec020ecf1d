/* Work that yields to other threads of the process. Threads: each call affects the calling thread. */
#ifndef INFCGI_BASE_BACKGROUND_H
#define INFCGI_BASE_BACKGROUND_H

/* Lowers the calling thread's priority until background_end: it does not preempt other threads when it wakes
 * (SCHED_BATCH). If the system lets a thread return to its old nice value, it also gets a tenth of the time of a thread
 * that shares its CPU. That takes CAP_SYS_NICE or a sufficient RLIMIT_NICE (LimitNICE= of systemd), which is tried
 * once. Does nothing if the process has another policy than SCHED_OTHER. Ignores failures. Pairs do not nest. */
void background_begin(void);
void background_end(void);

#endif
