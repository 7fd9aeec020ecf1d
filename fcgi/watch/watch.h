/* The endpoints for operators and the description of the API. Threads: handlers run in the request's thread. */
#ifndef INFCGI_WATCH_H
#define INFCGI_WATCH_H

#include "fcgi/wire/call.h"

void api_health(struct call *c);
void api_metrics(struct call *c);
void api_status(struct call *c);
void api_openapi(struct call *c);

#endif
