/* Why and for how long a sequence was left out of the computed batch. One list defines the enum and the names in the
 * log and in /metrics. */
#ifndef INFCGI_SCHED_SCHED_WAIT_H
#define INFCGI_SCHED_SCHED_WAIT_H

#include <stdint.h>

/* X(enum, name) */
#define SCHED_WAIT_LIST(X)                                                                                             \
    X(SCHED_WAIT_SEAT, "seat")     /* all slots are taken, or it is another sequence's turn */                         \
    X(SCHED_WAIT_PAGES, "pages")   /* no KV page is free, or another sequence computes shared ones */                  \
    X(SCHED_WAIT_STATE, "state")   /* the same for recurrent states */                                                 \
    X(SCHED_WAIT_DISK, "disk")     /* its prefix is read from the disk */                                              \
    X(SCHED_WAIT_READER, "reader") /* the client does not read its output */                                           \
    X(SCHED_WAIT_BUDGET, "budget") /* others use the step's rows or time */

enum sched_wait {
#define SCHED_WAIT_ENUM(name, text) name,
    SCHED_WAIT_LIST(SCHED_WAIT_ENUM)
#undef SCHED_WAIT_ENUM
        SCHED_WAIT_COUNT, /* also: it does not wait */
};

/* Times by reason. */
struct sched_waits {
    uint64_t ns[SCHED_WAIT_COUNT];
};

const char *sched_wait_name(enum sched_wait w);

/* Raises each time of *longest to that of *w if that is longer. */
void sched_waits_raise(struct sched_waits *longest, const struct sched_waits *w);

/* Writes the reasons of a millisecond or more, "seat:120,reader:4", or "none"; returns out. */
enum { SCHED_WAITS_BYTES = SCHED_WAIT_COUNT * 32 };
const char *sched_waits_text(const struct sched_waits *w, char out[SCHED_WAITS_BYTES]);

#endif
