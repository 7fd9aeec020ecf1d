/* `infcgi serve --master`: holds the listening socket and no model, and starts the program again as a worker (fcgi/wire/worker.h) that has
 * both. docs/internals/process.md has the picture.
 *
 *   a worker died            another is started at once, later and later (to 30 s) where they live less than 10 s; the socket stays open
 *   the first one cannot do  an option, the model or the back end is wrong: the master ends with the same status
 *   SIGUSR2                  another is started beside the one that serves; once it is ready it takes over, and the other drains
 *   SIGHUP, SIGUSR1          handed on
 *   SIGTERM, SIGINT, SIGQUIT handed on as SIGTERM; the master ends when no worker is left. Once more: handed on, and they end at once
 *   a worker hangs           it says so, or nothing any more: it is killed, and has died
 *   the master dies          the kernel kills the workers with it
 *
 * One thread, no heap memory, and no work but this. */
#ifndef INFCGI_CMD_MASTER_H
#define INFCGI_CMD_MASTER_H

#include "fcgi/conf/conf.h"

/* Until it is told to end; the exit status. argv: of the subcommand, with which workers are started. */
int master_run(const struct conf *conf, int argc, char **argv);

#endif
