/* The body of one call of a tool as a model wrote it, read into a name and arguments; chat_parts.h has the forms.
 * Threads: pure functions. */
#ifndef INFCGI_ENGINE_CHAT_CALL_H
#define INFCGI_ENGINE_CHAT_CALL_H

#include "engine/base/buf.h"

#include <jansson.h>

/* Reads body[0..n): *name as it stands, *arguments the JSON object (both are initialised, empty, and the caller's).
 * tools OPTIONAL: says which values without quotes are strings. False: it is no call, or there was no memory, which
 * buf_ok tells. */
MUST_CHECK bool chat_call_read(const char *body, size_t n, const json_t *tools, struct buf *name,
                               struct buf *arguments);

#endif
