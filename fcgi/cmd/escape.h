/* Printing text that is not ours, from model files and file names, so that it cannot drive a terminal. Threads:
 * stdio's. */
#ifndef INFCGI_CMD_ESCAPE_H
#define INFCGI_CMD_ESCAPE_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdio.h>

/* s[0..n) with everything escaped that is not plain text: controls, line separators, changes of writing direction,
 * quotes, backslashes, bytes that are not UTF-8. */
void escape_print(FILE *out, const char *s, size_t n);

/* The same on stdout in quotes; of a long text the beginning, and then its length. */
void escape_print_quoted(const char *s, size_t n);

/* `error: PATH: CODE at byte N: SENTENCE` on stderr. */
void escape_print_error(const char *path, const struct err_info *info);

#endif
