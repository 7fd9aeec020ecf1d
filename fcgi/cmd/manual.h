/* Formats the tables of commands and options for --help and for the pages that `make docs` writes. Threads: pure
 * functions. */
#ifndef INFCGI_CMD_MANUAL_H
#define INFCGI_CMD_MANUAL_H

#include "engine/base/buf.h"
#include "fcgi/cmd/cmd.h"

/* Returns the name of the i-th form of the manual, "man"; NULL beyond the last. */
const char *manual_format_name(int i);

/* Appends the manual in that form: a list of commands, a Markdown table of options, a page for man(7), completion for
 * bash, a line for each route and each request field. Check with buf_ok. */
void manual_print(const struct program *p, const char *format, struct buf *out);

/* Appends the --help text of a command. */
void manual_of(const struct program *p, const struct cmd *c, struct buf *out);

#endif
