/* Reads lines from a terminal, with editing and history (libedit), or from a file. Threads: main's. */
#ifndef INFCGI_CMD_PROMPT_H
#define INFCGI_CMD_PROMPT_H

#include "engine/base/err.h"

#include <stdbool.h>

struct prompt;

/* Opens standard input. history: OPTIONAL, file of recallable lines, to which typed lines are added; used only on a
 * terminal. ERR_NOMEM, ERR_IO (the terminal). */
MUST_CHECK enum err prompt_open(const char *history, struct prompt **out, struct err_info *info);
void prompt_close(struct prompt **p);

/* Returns whether input comes from a terminal. */
bool prompt_is_typed(const struct prompt *p);

/* Returns the next line without its newline, borrowed until the next call, or NULL after the last. On a terminal `text`
 * is shown as the prompt. Ctrl-C makes the line "". */
const char *prompt_line(struct prompt *p, const char *text);

/* Waits up to timeout_ms for a key on the terminal and returns it, Ctrl-C as 3. Returns 0 on a timeout, -1 if the
 * terminal is gone. */
int prompt_key(int timeout_ms);

#endif
