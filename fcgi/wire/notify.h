/* Reports the state of the process in the format of sd_notify(3): datagrams of `NAME=value` lines. The receiver is the
 * master that started this worker (worker.h), else the service manager's socket $NOTIFY_SOCKET, else none.
 * docs/adr/0011-sd-notify.md explains why no library is used.
 *
 * Threads: call notify_open before any other thread starts; then any. No function waits or fails: a datagram that
 * cannot be sent now is dropped. */
#ifndef INFCGI_FCGI_NOTIFY_H
#define INFCGI_FCGI_NOTIFY_H

#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NOTIFY_BYTES = 512 }; /* of a datagram; longer text is cut */

/* Opens the channel. fd: socket to the master, borrowed; -1: none. */
void notify_open(int fd);

/* Returns whether a receiver exists. */
bool notify_is_open(void);

/* Sends `fields` ("READY=1\nEXTEND_TIMEOUT_USEC=1000", "" for none) and, unless fmt is NULL, STATUS= with that text, in
 * which control characters become blanks. */
void notify_say(const char *fields, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Reports the start of a reload, which READY=1 ends: sends RELOADING=1 and the time that the service manager
 * requires. */
void notify_reloading(void);

/* Returns the maximum interval in ns between WATCHDOG=1 messages that the service manager requires; 0: none. */
uint64_t notify_watchdog_ns(void);

/* Returns the value of field `name` ("STATUS") in a datagram of n bytes and sets *n to its length. NULL: the field is
 * missing. */
const char *notify_field(const char *datagram, const char *name, size_t *n);

#endif
