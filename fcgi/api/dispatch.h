/* The checks before a request's handler runs: path, method, key, content type, limits, body, queue. Threads: the
 * request's. */
#ifndef INFCGI_API_DISPATCH_H
#define INFCGI_API_DISPATCH_H

#include "fcgi/wire/call.h"

/* Answers one FastCGI request. arg: the struct server, with its tables. */
void dispatch_request(struct fastcgi_request *r, void *arg);

/* Returns the row of s->routes for method and path, or NULL. Then *allow lists the methods of the path; "" for an unknown path.
 * r OPTIONAL: rows with a header count only for a request that has it. */
const struct route *dispatch_find(const struct server *s, const char *method, const char *path,
                                  const struct fastcgi_request *r, const char **allow);

/* Decodes %XX in a URI up to '?' into out[0..cap). Returns false if the result does not fit or is empty, or an escape
 * is malformed or NUL. */
bool dispatch_decode_path(const char *uri, char *out, size_t cap);

#endif
