/* The main loop of a serving process. It waits for signals and checks once per second whether the scheduler makes
 * progress (pulse.h). /health and the service manager's watchdog (notify.h) report the result.
 *
 * SIGHUP rereads live settings; SIGUSR1 reopens logs. Each signal has a table of functions in serve_wait.c, to which a
 * module with such a file adds its function. Threads: main's. */
#ifndef INFCGI_CMD_SERVICE_SERVE_WAIT_H
#define INFCGI_CMD_SERVICE_SERVE_WAIT_H

#include "engine/engine.h"
#include "fcgi/wire/server.h"

/* Blocks the signals. Call before any thread starts, so that all inherit it. */
void serve_wait_init(struct server *server);

/* Logs the environment variables that override the --config file, if any. */
void serve_wait_log_overrides(const struct conf *conf);

/* Starts monitoring the engine. NULL: stops it. */
void serve_wait_watch(struct engine *e);

/* Waits up to ms, does periodic work and handles signals. Returns the signal that ends the process, or 0: SIGTERM,
 * SIGINT, SIGQUIT; for a worker also SIGUSR2, after another worker took over. Ignores repetitions within 1 s after the
 * first, because terminals and service managers signal whole process groups. */
int serve_wait(int ms);

#endif
