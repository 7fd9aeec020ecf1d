/* A summary of the process's state, for the status page and the admin socket. Threads: safe anywhere. */
#ifndef INFCGI_FCGI_STATUS_H
#define INFCGI_FCGI_STATUS_H

#include "engine/base/clock.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

#include <jansson.h>

struct status {
    /* "loading"; "ok"; "draining": exits after its requests; "lost": the back end was lost, and the process exits;
     * "file_cut": the model file was truncated; "stuck": the current step takes too long. */
    const char *state;
    char start_time[CLOCK_UTC_BYTES]; /* ISO 8601, UTC */
    int64_t up_s;
    struct fastcgi_counts conn;
    struct sched_stats sched;         /* 0 while the model loads */
    uint64_t errors, slow;            /* requests that ended with an error; requests that --slow-log logged */
    int64_t max_running, max_waiting; /* values of --parallel and --queue-max, or their defaults */
    struct err_info lost;             /* "lost", "file_cut": the reason */
};

/* Fills *out. e OPTIONAL: NULL while the model loads. */
void status_get(struct server *s, const struct engine *e, struct status *out);

/* Appends the JSON of v, and with write_json a newline. A failure persists in the buffer. */
void status_put_json(const json_t *v, struct buf *out);
void status_write_json(const json_t *v, struct buf *out);

/* Returns an array of the requests in progress, without their texts. The caller owns it; NULL: out of memory. */
json_t *status_requests(void);

#endif
