/* Parts of `infcgi ctl`. Threads: main's. */
#ifndef INFCGI_CMD_SERVICE_CTL_H
#define INFCGI_CMD_SERVICE_CTL_H

#include "engine/base/buf.h"

#include <stdbool.h>

/* A command for the admin socket (docs/internals/admin.md). */
struct ctl_question {
    const char *socket; /* path */
    bool as_json;
    const char *const *words; /* [n_words] */
    int n_words;
    bool (*live)(const char *text,
                 size_t n); /* OPTIONAL: gets each part of an answer of unknown length; false ends it */
};

/* Sends the words and appends the body of the answer, or the reason of a rejection, to *out. Returns the exit status:
 * CMD_OK, CMD_REFUSED, CMD_USAGE, CMD_LOST (no server answers), CMD_DENIED. */
int ctl_ask(const struct ctl_question *q, struct buf *out);

/* Draws status and requests until the user presses q or the server stops. Prints one picture if no terminal is attached.
 * Returns the exit status. */
int ctl_top(const char *socket);

#endif
