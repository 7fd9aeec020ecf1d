/* Sends one command to the admin socket and reads its answer (docs/internals/admin.md). Threads: safe anywhere. */
#ifndef INFCGI_CMD_SERVICE_CTL_CLIENT_H
#define INFCGI_CMD_SERVICE_CTL_CLIENT_H

#include "engine/base/buf.h"

#include <stdbool.h>

/* Sends the words and appends the body of the answer, or the reason of a rejection, to *out. live: OPTIONAL, called
 * with each part of an answer of unknown length; returning false ends it. Returns the exit status: CMD_OK, CMD_REFUSED,
 * CMD_USAGE, CMD_LOST (no server answers), CMD_DENIED. */
int ctl_ask(const char *socket, bool as_json, const char *const *words, int n_words,
            bool (*live)(const char *text, size_t n), struct buf *out);

#endif
