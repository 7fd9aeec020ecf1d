/* Writes structured log lines to stderr or a file, never with prompt or completion text. Lines pass through a bounded
 * ring to a writer thread, so a blocked stderr never blocks a request. Lines that do not fit are counted as dropped.
 * Threads: safe anywhere. */
#ifndef INFCGI_FCGI_LOG_H
#define INFCGI_FCGI_LOG_H

#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LOG_LINES = 1024 /* capacity of the ring */,
    LOG_LINE_BYTES = 512 /* with newline and NUL; longer lines are cut */
};

/* Starts and stops the writer. ERR_INTERNAL: the system provides no thread. log_stop writes queued lines for up to 1 s;
 * the rest is lost. Before log_start lines go directly to stderr; after log_stop they do so if stderr can take them. */
MUST_CHECK enum err log_start(struct err_info *info);
void log_stop(void);

/* Starts each stderr line with the syslog priority of its level, "<3>", if stderr is the journal stream that
 * `journal_stream` names (JOURNAL_STREAM of systemd.exec(5): "DEVICE:INODE"; NULL: none) [sd-daemon(3)]. log_priority
 * returns the priority prefix of a level for a line printed without log_line, or "". */
void log_find_journal(const char *journal_stream);
const char *log_priority(const char *level);

/* Redirects stderr of this process and of the processes that it starts to the file. Each line is appended by one write.
 * Creates the file with mode 0640 if it does not exist. path must outlive the log. ERR_CONFIG: the file cannot be
 * opened. */
MUST_CHECK enum err log_to_file(const char *path, struct err_info *info);

/* Reopens the file of log_to_file after it was moved. On failure keeps the open file and logs the reason. */
void log_reopen(void);

/* Waits up to `ms` until all lines logged so far are on stderr. Used before asking another process to kill this one. */
void log_flush(unsigned ms);

/* Logs one line: time, level ("info", "warn", "error"), then fmt, which should be `event key=value ...`. */
void log_line(const char *level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Like log_line, but appends to a file that is opened for each call, so the file can be moved at any time. Returns
 * false if the line could not be written. */
bool log_line_to(const char *path, const char *level, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The log level: 0 "error", 1 "warn", 2 "info" (initial). Lines of a higher number are not written. log_level_name
 * returns NULL beyond the last. */
const char *log_level_name(int i);
int log_level(void);
void log_set_level(int i);

/* Copies the line with number *at, or the oldest line still kept, and advances *at. Returns false if no such line
 * exists yet. Lines are numbered from 0 since log_start. log_n_lines returns the number of the next line. */
bool log_read(uint64_t *at, char line[LOG_LINE_BYTES]);
uint64_t log_n_lines(void);

/* Returns the number of lines lost because the ring was full or a write failed. */
uint64_t log_dropped(void);

#endif
