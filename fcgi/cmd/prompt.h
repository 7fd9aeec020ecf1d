/* Lines that a person types, with editing and history (libedit), or that a file holds. Threads: main's. */
#ifndef INFCGI_CMD_PROMPT_H
#define INFCGI_CMD_PROMPT_H

#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct prompt;

/* Opens standard input. history: OPTIONAL, a file whose lines can be recalled and that lines typed are added to; on a terminal only.
 * ERR_NOMEM, ERR_IO (the terminal). */
MUST_CHECK enum err prompt_open(const char *history, struct prompt **out, struct err_info *info);
void prompt_close(struct prompt **p);

/* Does a person type? */
bool prompt_is_typed(const struct prompt *p);

/* The next line without its newline, borrowed until the next call; `text` is shown before it when a person types. NULL: there is no
 * further one. *was_interrupted: Ctrl-C came instead, and the line is "". */
const char *prompt_line(struct prompt *p, const char *text, bool *was_interrupted);

/* Waits up to timeout_ms for a key of the terminal, Ctrl-C (3) too; 0 = none came, -1 = there is no terminal any more. */
int prompt_key(int timeout_ms);

#endif
