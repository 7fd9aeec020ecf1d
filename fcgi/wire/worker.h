/* A worker: a process started by `infcgi serve --master` (fcgi/cmd/service/master.h). It has the listening socket on descriptor
 * 0 and a socket to the master on WORKER_STATUS_FD, over which it reports its state (notify.h). INFCGI_WORKER is the
 * reason for its start. Threads: call worker_find before any other thread starts; then any. */
#ifndef INFCGI_FCGI_WORKER_H
#define INFCGI_FCGI_WORKER_H

#include "engine/base/err.h"

enum { WORKER_STATUS_FD = 3 };

enum worker_role {
    WORKER_NONE,  /* not a worker */
    WORKER_FIRST, /* accepts immediately and answers that its model is loading */
    WORKER_AGAIN, /* replaces a worker that died: holds clients back, so that they do not notice if the model loads soon */
    WORKER_ANEW, /* after workers that could not load the model: accepts immediately, and answers for a while if it fails too */
    WORKER_NEXT, /* takes over from a serving worker: accepts once its model is loaded */
    WORKER_ROLE_COUNT
};

/* Returns the name of a role, "first"; NULL for WORKER_NONE. */
const char *worker_role_name(enum worker_role role);

/* Determines this process's role and hides the socket from programs that it starts. ERR_CONFIG: INFCGI_WORKER is set,
 * but no master started the process. */
MUST_CHECK enum err worker_find(struct err_info *info);

enum worker_role worker_role(void); /* role found by worker_find */

/* Asks the master to replace this worker with one that rereads options and model. ERR_CONFIG: there is no master. */
MUST_CHECK enum err worker_ask_reload(struct err_info *info);

#endif
