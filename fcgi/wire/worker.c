#include "fcgi/wire/worker.h"

#include "fcgi/conf/conf.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const names[WORKER_ROLE_COUNT] = {NULL, "first", "again", "anew", "next"};
static enum worker_role found;

const char *worker_role_name(enum worker_role role) { return names[role]; }

enum worker_role worker_role(void) { return found; }

/* Returns whether the descriptor is an end of a socket pair that the parent made. */
static bool is_of_parent(int fd)
{
    struct ucred who = {0};
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.pid > 0 && who.pid == getppid();
}

enum err worker_find(struct err_info *info)
{
    const char *name = conf_environment("worker");
    found = WORKER_NONE;
    if (name == NULL) {
        return ERR_OK;
    }
    for (int i = WORKER_FIRST; i < WORKER_ROLE_COUNT; i++) {
        found = strcmp(name, names[i]) == 0 ? (enum worker_role)i : found;
    }
    if (found == WORKER_NONE || !is_of_parent(WORKER_STATUS_FD)) {
        found = WORKER_NONE;
        return err_set(
            info, ERR_CONFIG, "worker",
            "INFCGI_WORKER: expected to be set by a master that starts this process, found '%.16s' from elsewhere",
            name);
    }
    (void)fcntl(WORKER_STATUS_FD, F_SETFD, FD_CLOEXEC);
    return ERR_OK;
}

enum err worker_ask_reload(struct err_info *info)
{
    if (found == WORKER_NONE || kill(getppid(), SIGUSR2) != 0) {
        return err_set(
            info, ERR_CONFIG, "master",
            "expected a process that `infcgi serve --master` started, which can start another in its place, found none");
    }
    return ERR_OK;
}
