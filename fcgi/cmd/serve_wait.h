/* What main does while the process serves: it waits for signals, and once a second looks whether the scheduler gets on (pulse.h), of
 * which /health and the service manager's watchdog are told (notify.h).
 *
 * SIGHUP reads anew what may change while requests are served, SIGUSR1 opens logs anew: each has a table in serve_wait.c, to which who
 * has such a file adds a function. Threads: main's. */
#ifndef INFCGI_CMD_SERVE_WAIT_H
#define INFCGI_CMD_SERVE_WAIT_H

#include "engine/engine.h"
#include "fcgi/wire/server.h"

/* Blocks the signals, before any thread starts, so that all inherit it. argv: of the subcommand, to read options anew. */
void serve_wait_init(struct server *server, int argc, char **argv);

/* Logs which variables of the environment override the --config file, if any do. */
void serve_wait_log_overrides(const struct conf *conf);

/* Reads options and keys anew, as SIGHUP does. */
void serve_wait_reread(void);

/* The engine serves: from now on it is looked at. NULL: no more. */
void serve_wait_watch(struct engine *e);

/* Waits for at most so long, does what is due and what signals ask for, and returns the signal that shall end the process, or 0: SIGTERM,
 * SIGINT, SIGQUIT; of a worker SIGUSR2, with which another has taken over. What comes within a second after the first of them is the
 * same wish, told twice: a terminal and a service manager signal whole groups of processes. */
int serve_wait(int ms);

#endif
