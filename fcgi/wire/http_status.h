/* How HTTP and OpenAI's API name an error. Threads: pure functions. */
#ifndef INFCGI_WIRE_HTTP_STATUS_H
#define INFCGI_WIRE_HTTP_STATUS_H

#include "engine/base/err.h"

#include <stdbool.h>

/* Returns the status of an answer with that error: 400. 500 for errors without a row. */
int http_status(enum err code);

/* Returns OpenAI's type of the error: "invalid_request_error". "server_error" for errors without a row. Static. */
const char *http_status_type(enum err code);

#endif
