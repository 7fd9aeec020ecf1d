/* FastCGI through libfcgi: the only file that includes its header. A thread a request; a poller accepts, waits until a
 * connection says something, and tells when a client has gone, because nginx then closes the connection and sends
 * nothing [measured: docs/internals/fastcgi.md].
 *
 * Threads: a request belongs to the thread its handler runs in; fastcgi_stop may come from any. */
#ifndef INFCGI_FCGI_FASTCGI_H
#define INFCGI_FCGI_FASTCGI_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* What a connection takes beside the memory that mem.h counts: its thread's stack and guard page; libfcgi's buffers
 * and a request's parameters, which are bounded (records.h); the kernel's part of the thread. */
enum { FASTCGI_STACK_BYTES = 512 << 10, FASTCGI_CONNECTION_BYTES = FASTCGI_STACK_BYTES + (192 << 10) };

struct fastcgi_request;
typedef void (*fastcgi_handler)(struct fastcgi_request *r, void *arg);

/* Opens a listening unix socket at `path`, mode 0660; a stale socket there is replaced, a live one refused
 * (ERR_ADDRESS_IN_USE). path NULL: descriptor 0 must be a listening socket (spawn-fcgi, systemd); ERR_CONFIG otherwise.
 */
MUST_CHECK enum err fastcgi_listen(const char *path, int *fd, struct err_info *info);

/* ms that a request may be silent in its middle before it is given up. Tests set it before fastcgi_start. */
extern int fastcgi_silence_ms;

/* ms after which a thread without a request ends, but for the last few. Tests set it before fastcgi_start. */
extern int fastcgi_idle_ms;

/* Starts serving on fd with at most max_connections threads. ERR_INTERNAL when threads cannot be started. */
MUST_CHECK enum err fastcgi_start(int fd, int max_connections, fastcgi_handler handler, void *arg,
                                  struct err_info *info);

/* At most n connections from now on, if n is below max_connections: others wait in the backlog. */
void fastcgi_limit(int n);

/* From now on nothing is accepted, and who connects waits in the backlog; or all that waits there is taken. May come before
 * fastcgi_start. */
void fastcgi_hold(bool is_held);

/* Accepts nothing more and closes the socket. Requests go on, and connections may still become some, if they say so
 * within two seconds. */
void fastcgi_stop(void);

/* Is this process, with the master that started it, alone with its socket? Not when the one that made it listen is another that still
 * lives, such as systemd or multiwatch: who connects then may wait for the next process that it starts. */
bool fastcgi_is_alone(void);

/* Requests being handled now; once stopped, with the connections that may still become some. */
int fastcgi_n_active(void);

/* A parameter of the request, or NULL; borrowed. */
const char *fastcgi_param(const struct fastcgi_request *r, const char *name);

/* Appends the whole body. ERR_TOO_LARGE beyond limit_bytes, ERR_NOMEM, ERR_CANCELLED (cut off),
 * ERR_INVALID_VALUE (as many bytes as CONTENT_LENGTH says did not come). */
MUST_CHECK enum err fastcgi_read_body(struct fastcgi_request *r, size_t limit_bytes, struct buf *out);

/* Queues bytes / sends what is queued. False once the client has gone: nothing more will reach it. */
bool fastcgi_write(struct fastcgi_request *r, const void *data, size_t n);
bool fastcgi_flush(struct fastcgi_request *r);

/* Calls gone(arg), once, when the client has gone: from the poller's thread, or from this one if that is known already. Call
 * after the body is read. With NULL the watch ends: when this returns, gone is not running and will not run. */
void fastcgi_watch(struct fastcgi_request *r, void (*gone)(void *arg), void *arg);

/* For work before there is something to cancel: becomes true once the client has gone. Call after the body is read; it
 * is watched from the first call on until fastcgi_watch's end, or the request's. */
const atomic_bool *fastcgi_has_left(struct fastcgi_request *r);

/* Ends the request as if its client had gone: fastcgi_has_left says so, and `gone` is called, now or once it is watched.
 * What is written still reaches the client. From any thread, while the request is being handled. */
void fastcgi_abandon(struct fastcgi_request *r);
bool fastcgi_is_abandoned(struct fastcgi_request *r);

/* Connections since the start, and now. */
struct fastcgi_counts {
    uint64_t accepted, full;         /* taken; times that no further one was taken for want of room */
    int n_open, most_open, max_open; /* now, the most at a time, and what there is room for */
    int n_threads, n_idle;           /* that serve them; of these without a request */
};
void fastcgi_get_counts(struct fastcgi_counts *out);

#endif
