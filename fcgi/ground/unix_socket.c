#include "fcgi/ground/unix_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool set_address(const char *path, struct sockaddr_un *out)
{
    size_t n = strlen(path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n >= sizeof out->sun_path) {
        return false;
    }
    memcpy(out->sun_path, path, n + 1);
    return true;
}

int unix_socket_connect(const char *path)
{
    struct sockaddr_un address;
    if (!set_address(path, &address)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int reason = errno;
        close(fd);
        errno = reason;
        fd = -1;
    }
    return fd;
}

/* Returns whether a process listens at the path. */
static bool is_live(const char *path)
{
    int probe = unix_socket_connect(path);
    if (probe >= 0) {
        close(probe);
    }
    return probe >= 0;
}

enum err unix_socket_listen(const char *path, unsigned mode, int backlog, const char *option, int *fd,
                            struct err_info *info)
{
    struct sockaddr_un address;
    if (!set_address(path, &address)) {
        return err_set(info, ERR_CONFIG, option, "%s: expected a path of at most %zu bytes, found %zu", option,
                       sizeof address.sun_path - 1, strlen(path));
    }
    if (is_live(path)) {
        return err_set(info, ERR_ADDRESS_IN_USE, option, "%s: another process listens on %s", option, path);
    }
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(path);
    }
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t mask = umask(0777 & ~(mode_t)mode);
    bool ok = s >= 0 && bind(s, (const struct sockaddr *)&address, sizeof address) == 0 && listen(s, backlog) == 0;
    int reason = errno;
    umask(mask);
    if (!ok) {
        if (s >= 0) {
            close(s);
        }
        return err_set(info, reason == EADDRINUSE ? ERR_ADDRESS_IN_USE : ERR_IO, option, "cannot listen on %s: %s",
                       path, strerror(reason));
    }
    *fd = s;
    return ERR_OK;
}
