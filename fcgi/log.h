/* Structured log lines on stderr, never holding prompt or completion text. Lines go through a bounded ring and a writer
 * thread, so that a blocked stderr never blocks a request; lines that do not fit are counted. Threads: safe anywhere.
 */
#ifndef INFCGI_FCGI_LOG_H
#define INFCGI_FCGI_LOG_H

#include "engine/base/err.h"

#include <stdint.h>

/* Starts / stops the writer; stopping writes what is queued. Before and after, lines go straight to stderr. */
MUST_CHECK enum err log_start(void);
void log_stop(void);

/* One line: time, level ("info", "warn", "error"), then fmt, which should be `event key=value ...`. */
void log_line(const char *level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Lines lost because the ring was full. */
uint64_t log_dropped(void);

#endif
