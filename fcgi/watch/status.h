/* What the process is doing, in short: for the status page and the admin socket. Threads: safe anywhere. */
#ifndef INFCGI_FCGI_STATUS_H
#define INFCGI_FCGI_STATUS_H

#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

#include <jansson.h>

struct status {
    /* "loading", "ok"; "draining": it ends once its requests have; "lost": so is its back end; "file_cut": the model's file is shorter
     * than it was; "stuck": no step was made for long. */
    const char *state;
    char start_time[32]; /* ISO 8601, UTC */
    int64_t up_s;
    struct fastcgi_counts conn;
    struct sched_stats sched;         /* all 0 while the model loads */
    uint64_t errors, slow;            /* requests that ended with an error; that --slow-log told of */
    int64_t max_running, max_waiting; /* what --parallel and --queue-max say, or their defaults */
    struct err_info lost;             /* "lost", "file_cut": why */
};

/* e OPTIONAL: NULL while the model loads. */
void status_get(struct server *s, const struct engine *e, struct status *out);

/* An array of the requests that are being handled, without any text of theirs; the caller's, NULL without memory. */
json_t *status_requests(void);

#endif
