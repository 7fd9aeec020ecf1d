/* Prints untrusted text, from model files and file names, so that it cannot control a terminal. Threads: stdio's. */
#ifndef INFCGI_CMD_ESCAPE_H
#define INFCGI_CMD_ESCAPE_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdio.h>

/* Prints s[0..n) and escapes everything that is not plain text: control characters, line separators, changes of writing
 * direction, quotes, backslashes, bytes that are not UTF-8. */
void escape_print(FILE *out, const char *s, size_t n);

/* Like escape_print, but leaves quotes as they are. */
void escape_print_plain(FILE *out, const char *s, size_t n);

/* Like escape_print, but in quotes on stdout. A long text is cut and its length appended. */
void escape_print_quoted(const char *s, size_t n);

/* Prints `error: PATH: CODE at byte N: SENTENCE` on stderr. */
void escape_print_error(const char *path, const struct err_info *info);

#endif
