/* How the process says how it is, in the words of sd_notify(3): a datagram of lines `NAME=value` to the master that started it as a
 * worker (worker.h), else to the service manager, whose socket $NOTIFY_SOCKET names, else to nobody. docs/adr/0011-sd-notify.md has
 * why there is no library for it.
 *
 * Threads: notify_open before any other starts; then any. Nothing here waits or fails: what cannot be said now is not said. */
#ifndef INFCGI_FCGI_NOTIFY_H
#define INFCGI_FCGI_NOTIFY_H

#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NOTIFY_BYTES = 512 }; /* of a datagram; what is longer is cut */

/* fd: the master's, borrowed; -1: there is none. */
void notify_open(int fd);

/* Is somebody there who listens? */
bool notify_is_open(void);

/* Says `fields` ("READY=1\nEXTEND_TIMEOUT_USEC=1000", "" for none) and, unless fmt is NULL, STATUS= with that text, in which control
 * characters become blanks. */
void notify_say(const char *fields, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Begins what ends with READY=1: RELOADING=1 and the time, as the service manager wants it. */
void notify_reloading(void);

/* How often the service manager wants to hear WATCHDOG=1 at least; 0: not at all. */
uint64_t notify_watchdog_ns(void);

/* The value of field `name` ("STATUS") in a datagram of n bytes: sets *n to its length; NULL: it is not there. */
const char *notify_field(const char *datagram, const char *name, size_t *n);

#endif
