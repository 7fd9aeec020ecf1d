/* Unix sockets by path: the server's socket and the admin socket. Threads: safe anywhere, but a file that another
 * thread creates at the same time can get a narrower mode. */
#ifndef INFCGI_FCGI_UNIX_SOCKET_H
#define INFCGI_FCGI_UNIX_SOCKET_H

#include "engine/base/err.h"

/* Listens at `path` with that mode (0660) and backlog. Replaces a stale socket at the path. The caller owns *fd. Errors
 * name `option`: ERR_CONFIG (the path is too long), ERR_ADDRESS_IN_USE (another process listens there), ERR_IO. */
MUST_CHECK enum err unix_socket_listen(const char *path, unsigned mode, int backlog, const char *option, int *fd,
                                       struct err_info *info);

/* Connects to `path`. Returns the descriptor, or -1 with errno (ENAMETOOLONG: the path can never work). */
int unix_socket_connect(const char *path);

#endif
