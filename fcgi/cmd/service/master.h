/* `infcgi serve --master`: holds the listening socket, but no model, and starts the program again as a worker
 * (fcgi/wire/worker.h) with both. docs/internals/process.md has a diagram.
 *
 *   a worker died            a new one starts immediately, after repeated lives under 10 s with growing delays: to 0.4 s if it had served,
 *                            else to 30 s; the socket stays open
 *   the first worker fails   an option, the model or the back end is wrong: the master exits with the same status
 *   SIGUSR2                  a second worker starts; once it is ready it takes over, and the old one drains
 *   SIGHUP, SIGUSR1          are forwarded
 *   SIGTERM, SIGINT, SIGQUIT are forwarded as SIGTERM; the master exits after its last worker. A second one makes workers exit immediately
 *   a worker hangs           it reports so, or stops reporting: it is killed and counts as died
 *   the master dies          the kernel kills the workers
 *
 * The master has one thread, no heap memory and no other task. */
#ifndef INFCGI_CMD_SERVICE_MASTER_H
#define INFCGI_CMD_SERVICE_MASTER_H

#include "fcgi/conf/conf.h"

/* Runs until a signal ends it and returns the exit status. Workers get the arguments of conf->given. */
int master_run(const struct conf *conf);

#endif
