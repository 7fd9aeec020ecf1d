/* FastCGI through libfcgi; only fastcgi.c includes its header. Each request has a thread. A poller accepts connections,
 * waits for their first bytes and reports clients that left: nginx then closes the connection and sends no abort
 * [measured: docs/internals/fastcgi.md].
 *
 * Threads: a request belongs to the thread of its handler. fastcgi_stop can be called from any thread. */
#ifndef INFCGI_FCGI_FASTCGI_H
#define INFCGI_FCGI_FASTCGI_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Memory of a connection that mem.h does not count: its thread's stack and guard page; libfcgi's buffers and the
 * request's parameters, which are bounded (records.h); the thread's part in the kernel. */
enum { FASTCGI_STACK_BYTES = 512 << 10, FASTCGI_CONNECTION_BYTES = FASTCGI_STACK_BYTES + (192 << 10) };

struct fastcgi_request;
typedef void (*fastcgi_handler)(struct fastcgi_request *r, void *arg);

/* Opens a listening unix socket at `path`, mode 0660. Replaces a stale socket; fails with ERR_ADDRESS_IN_USE if a
 * process listens there. path NULL: uses descriptor 0, which must be a listening socket (spawn-fcgi, systemd), else
 * ERR_CONFIG. */
MUST_CHECK enum err fastcgi_listen(const char *path, int *fd, struct err_info *info);

/* Time in ms that an incomplete request can be silent before it is aborted. Tests set it before fastcgi_start. */
extern int fastcgi_silence_ms;

/* Time in ms after which a thread without a request exits; the last few threads stay. Tests set it before
 * fastcgi_start. */
extern int fastcgi_idle_ms;

/* Starts serving on fd with at most max_connections threads. ERR_INTERNAL: threads cannot be started. */
MUST_CHECK enum err fastcgi_start(int fd, int max_connections, fastcgi_handler handler, void *arg,
                                  struct err_info *info);

/* Limits connections to n from now on, if n is below max_connections. Further clients wait in the backlog. */
void fastcgi_limit(int n);

/* Stops accepting connections, so clients wait in the backlog (is_held), or accepts all that wait there. Can be called
 * before fastcgi_start. */
void fastcgi_hold(bool is_held);

/* Stops accepting and closes the socket. Running requests continue. An open connection can still become a request if it
 * sends data within 2 s. */
void fastcgi_stop(void);

/* Returns whether only this process and its master use the socket. False if another living process made it listen, such
 * as systemd or multiwatch: clients that connect can then wait for the next process that it starts. */
bool fastcgi_is_alone(void);

/* Returns the number of requests in progress. After fastcgi_stop it includes connections that can still become
 * requests. */
int fastcgi_n_active(void);

/* Returns a parameter of the request, borrowed, or NULL. */
const char *fastcgi_param(const struct fastcgi_request *r, const char *name);

/* Appends the whole body. ERR_TOO_LARGE beyond limit_bytes, ERR_NOMEM, ERR_CANCELLED (cut off), ERR_INVALID_VALUE (the
 * length differs from CONTENT_LENGTH). */
MUST_CHECK enum err fastcgi_read_body(struct fastcgi_request *r, size_t limit_bytes, struct buf *out);

/* Queues bytes; fastcgi_flush sends them. Both return false once the client has left: nothing more will reach it. */
bool fastcgi_write(struct fastcgi_request *r, const void *data, size_t n);
bool fastcgi_flush(struct fastcgi_request *r);

/* Registers gone(arg), which is called once when the client has left: from the poller's thread, or from this call if
 * the client has already left. Call it after the body is read. NULL ends the watch: after the return, gone is not
 * running and will not run. */
void fastcgi_watch(struct fastcgi_request *r, void (*gone)(void *arg), void *arg);

/* Returns a flag that becomes true once the client has left, for work that has nothing to cancel yet. Call it after the
 * body is read. The connection is watched from the first call until the end of fastcgi_watch or of the request. */
const atomic_bool *fastcgi_has_left(struct fastcgi_request *r);

/* Cancels the request as if its client had left: sets the flag of fastcgi_has_left and calls `gone`, now or once it is
 * registered. Written bytes still reach the client. Can be called from any thread while the request is handled. */
void fastcgi_abandon(struct fastcgi_request *r);
bool fastcgi_is_abandoned(struct fastcgi_request *r);

/* Connections since the start, and current ones. */
struct fastcgi_counts {
    uint64_t accepted, full;         /* accepted; times that acceptance paused because all slots were taken */
    int n_open, most_open, max_open; /* current, highest so far, capacity */
    int n_threads, n_idle;           /* serving threads; of these, without a request */
};
void fastcgi_get_counts(struct fastcgi_counts *out);

#endif
