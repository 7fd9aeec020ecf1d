/* The table of endpoints, and the APIs that they belong to. Threads: constant. */
#ifndef INFCGI_FCGI_ROUTES_H
#define INFCGI_FCGI_ROUTES_H

#include "fcgi/wire/call.h"

extern const struct route routes_table[];
extern const int routes_n;

/* The dialects, NULL-terminated; the last one serves URLs that none of the others names. */
extern const struct dialect *const *const routes_dialects;

#endif
