/* Unix sockets by their path: the server's own and the admin socket. Threads: safe anywhere, but the mode of a file that is made
 * meanwhile may be narrower. */
#ifndef INFCGI_FCGI_UNIX_SOCKET_H
#define INFCGI_FCGI_UNIX_SOCKET_H

#include "engine/base/err.h"

/* Listens at `path` with that mode (0660) and backlog; a stale socket there is replaced. *fd is the caller's. `option` is named when it
 * fails: ERR_CONFIG (the path is too long), ERR_ADDRESS_IN_USE (somebody listens there), ERR_IO. */
MUST_CHECK enum err unix_socket_listen(const char *path, unsigned mode, int backlog, const char *option, int *fd,
                                       struct err_info *info);

/* Connects to `path`; -1 with errno when that cannot be (ENAMETOOLONG: nor ever). */
int unix_socket_connect(const char *path);

#endif
