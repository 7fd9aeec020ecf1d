/* The table of endpoints and their APIs. Threads: constant. */
#ifndef INFCGI_FCGI_ROUTES_H
#define INFCGI_FCGI_ROUTES_H

#include "fcgi/wire/call.h"

extern const struct route routes_table[];
extern const int routes_n;

/* The dialects, NULL-terminated. The last one serves URLs that belong to no other dialect. */
extern const struct dialect *const *const routes_dialects;

#endif
