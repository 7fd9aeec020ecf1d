/* Calls of tools as a model wrote them, read into names and arguments; chat_format.h has the forms.
 * Threads: pure functions. */
#ifndef INFCGI_ENGINE_CHAT_CALL_H
#define INFCGI_ENGINE_CHAT_CALL_H

#include "engine/base/buf.h"
#include "engine/chat/chat_format.h"

#include <jansson.h>

/* Reads body[0..n), what stands between the marks of the format, and appends each call to *out: its name and its arguments,
 * a JSON object, each with a NUL behind it. tools OPTIONAL: says which values without quotes are strings. How many; 0: it
 * holds none, not even one, or there was no memory, which buf_ok of *out tells. */
size_t chat_calls_read(const struct chat_format *format, const char *body, size_t n, const json_t *tools,
                       struct buf *out);

#endif
