/* Why a sequence is not in the batch that is computed, and for how long it was not. One list gives the enum, and the
 * names in the log and in /metrics. */
#ifndef INFCGI_SCHED_SCHED_WAIT_H
#define INFCGI_SCHED_SCHED_WAIT_H

#include <stdint.h>

/* X(enum, name) */
#define SCHED_WAIT_LIST(X)                                                                                             \
    X(SCHED_WAIT_SEAT, "seat")     /* as many run as may, or it is not its turn */                                     \
    X(SCHED_WAIT_PAGES, "pages")   /* no KV page is free, or another sequence computes those that it shares */         \
    X(SCHED_WAIT_STATE, "state")   /* the same of recurrent states */                                                  \
    X(SCHED_WAIT_DISK, "disk")     /* its prefix is read from the disk */                                              \
    X(SCHED_WAIT_READER, "reader") /* nobody takes what it gave */                                                     \
    X(SCHED_WAIT_BUDGET, "budget") /* the rows or the time of the step are others' */

enum sched_wait {
#define SCHED_WAIT_ENUM(name, text) name,
    SCHED_WAIT_LIST(SCHED_WAIT_ENUM)
#undef SCHED_WAIT_ENUM
        SCHED_WAIT_COUNT, /* also: it does not wait */
};

/* By reason. */
struct sched_waits {
    uint64_t ns[SCHED_WAIT_COUNT];
};

const char *sched_wait_name(enum sched_wait w);

/* *longest becomes, reason by reason, the longer one. */
void sched_waits_raise(struct sched_waits *longest, const struct sched_waits *w);

/* Those of a millisecond or more, "seat:120,reader:4", or "none"; returns out. */
enum { SCHED_WAITS_BYTES = SCHED_WAIT_COUNT * 32 };
const char *sched_waits_text(const struct sched_waits *w, char out[SCHED_WAITS_BYTES]);

#endif
