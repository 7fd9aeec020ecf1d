/* A worker: a process that `infcgi serve --master` started (fcgi/cmd/master.h), with the listening socket on descriptor 0 and a
 * socket to the master on WORKER_STATUS_FD, over which it says how it is (notify.h). INFCGI_WORKER says why it was started.
 * Threads: worker_find before any other starts; then any. */
#ifndef INFCGI_FCGI_WORKER_H
#define INFCGI_FCGI_WORKER_H

#include "engine/base/err.h"

#include <stdbool.h>

enum { WORKER_STATUS_FD = 3 };

enum worker_role {
    WORKER_NONE,  /* no worker: nobody started this process as one */
    WORKER_FIRST, /* accepts at once, and answers that its model is loading */
    WORKER_AGAIN, /* in place of one that died: who connects should find no trace of that, if the model is loaded soon */
    WORKER_ANEW, /* in place of some that could not load the model: it accepts at once, and answers for a while if it cannot either */
    WORKER_NEXT, /* takes over from one that serves: accepts once its model is loaded */
    WORKER_ROLE_COUNT
};

/* "first"; NULL for WORKER_NONE. */
const char *worker_role_name(enum worker_role role);

/* Finds out what this process is, and keeps the socket from programs that it starts. ERR_CONFIG: INFCGI_WORKER is set, but no master
 * started the process. */
MUST_CHECK enum err worker_find(enum worker_role *role, struct err_info *info);

enum worker_role worker_role(void); /* what worker_find found */

/* Asks the master for a worker with options and model read anew, in place of this one. ERR_CONFIG: there is no master. */
MUST_CHECK enum err worker_ask_reload(struct err_info *info);

#endif
