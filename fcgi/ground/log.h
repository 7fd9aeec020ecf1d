/* Structured log lines on stderr or in a file, never holding prompt or completion text. Lines go through a bounded ring and a writer
 * thread, so that a blocked stderr never blocks a request; lines that do not fit are counted. Threads: safe anywhere.
 */
#ifndef INFCGI_FCGI_LOG_H
#define INFCGI_FCGI_LOG_H

#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOG_LINES = 1024 /* that are kept */, LOG_LINE_BYTES = 512 /* with newline and NUL; what is longer is cut */ };

/* Starts / stops the writer; ERR_INTERNAL: the system gives no thread. Stopping writes what is queued for as long as stderr takes
 * it: behind a second the rest is lost. Before, lines go straight to stderr, and after, where it has room. */
MUST_CHECK enum err log_start(struct err_info *info);
void log_stop(void);

/* Lines to stderr begin with the syslog priority of their level, "<3>", from now on if stderr is the stream of the journal that
 * `journal_stream` names (JOURNAL_STREAM of systemd.exec(5): "DEVICE:INODE"; NULL: there is none) [sd-daemon(3)].
 * log_priority: that of a level, for a line that is printed without log_line, or "". */
void log_find_journal(const char *journal_stream);
const char *log_priority(const char *level);

/* Makes the file stderr, so that all of this process and of the processes it starts is added to it, each line by one write.
 * Made with mode 0640 if it is not there. path must outlive the log. ERR_CONFIG: it cannot be opened. */
MUST_CHECK enum err log_to_file(const char *path, struct err_info *info);

/* Opens the file of log_to_file again, after it was moved away; keeps the open one, and logs why, if that fails. */
void log_reopen(void);

/* Waits until what was logged so far is on stderr, at most `ms`: before another process is asked to kill this one. */
void log_flush(unsigned ms);

/* One line: time, level ("info", "warn", "error"), then fmt, which should be `event key=value ...`. */
void log_line(const char *level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The same at the end of a file, which is opened for it, so that it may be moved away at any time; false: it could not be. */
bool log_line_to(const char *path, const char *level, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Lines of a level behind this one are not written: 0 "error", 1 "warn", 2 "info", as at the start. NULL beyond the last. */
const char *log_level_name(int i);
int log_level(void);
void log_set_level(int i);

/* Copies the line of that number, or the oldest that is still kept, and steps to the next; false: there is none yet. Lines are
 * counted from 0 on, from log_start on. log_n_lines: the number that the next line will have. */
bool log_read(uint64_t *at, char line[LOG_LINE_BYTES]);
uint64_t log_n_lines(void);

/* Lines lost: the ring was full, as stderr took none, or writing to it failed. */
uint64_t log_dropped(void);

#endif
