/* Work that yields to other threads of the process. Threads: each call is about the calling thread. */
#ifndef INFCGI_BASE_BACKGROUND_H
#define INFCGI_BASE_BACKGROUND_H

/* Lowers the calling thread's priority until background_end: it does not preempt others when it wakes (SCHED_BATCH), and, if
 * the system lets a thread return to its old nice value, it gets a tenth of the time of a thread that it shares a CPU with.
 * The system lets it with CAP_SYS_NICE or a sufficient RLIMIT_NICE (LimitNICE= of systemd), which is tried once. Nothing
 * changes where the process has another policy than SCHED_OTHER. Failure is ignored. Pairs do not nest. */
void background_begin(void);
void background_end(void);

#endif
