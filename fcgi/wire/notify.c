/* The protocol is a datagram [sd_notify(3), "Standalone Implementations"]. */
#include "fcgi/wire/notify.h"

#include "engine/base/clock.h"
#include "fcgi/conf/conf.h"
#include "fcgi/ground/number.h"
#include "fcgi/ground/words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
    int fd; /* 0: no receiver; the socket never has the number of a standard stream */
    bool is_connected;
    struct sockaddr_un address;
    socklen_t n_address;
} to;

void notify_open(int fd)
{
    const char *path = conf_variable("NOTIFY_SOCKET");
    if (fd >= 0) {
        to.fd = fd;
        to.is_connected = true;
        return;
    }
    size_t n = path != NULL ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.address.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    to.address.sun_family = AF_UNIX;
    memcpy(to.address.sun_path, path, n);
    to.address.sun_path[0] = path[0] == '@' ? '\0' : '/'; /* an abstract socket has no file */
    to.n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    to.fd = s > 0 ? s : 0;
}

bool notify_is_open(void) { return to.fd > 0; }

void notify_say(const char *fields, const char *fmt, ...)
{
    char text[NOTIFY_BYTES];
    if (to.fd <= 0) {
        return;
    }
    int n = snprintf(text, sizeof text, "%s", fields);
    if (fmt != NULL) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%sSTATUS=", n > 0 ? "\n" : "");
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
        va_end(args);
        words_flatten(text + n); /* a model's name can hold newlines */
    }
    const struct sockaddr *address = to.is_connected ? NULL : (const struct sockaddr *)&to.address;
    (void)!sendto(to.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, address, to.is_connected ? 0 : to.n_address);
}

void notify_reloading(void)
{
    char fields[64];
    snprintf(fields, sizeof fields, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / 1000u);
    notify_say(fields, NULL);
}

uint64_t notify_watchdog_ns(void)
{
    const char *usec = conf_variable("WATCHDOG_USEC"), *pid = conf_variable("WATCHDOG_PID");
    int64_t every = 0, whose = getpid();
    bool is_ours = pid == NULL || (number_parse(pid, &whose) && whose == getpid());
    bool is_asked = is_ours && usec != NULL && number_parse(usec, &every) && every > 0 && every < INT64_MAX / 1000;
    return is_asked ? (uint64_t)every * 1000u : 0;
}

const char *notify_field(const char *datagram, const char *name, size_t *n)
{
    size_t n_name = strlen(name);
    for (const char *line = datagram; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > n_name && strncmp(line, name, n_name) == 0 && line[n_name] == '=') {
            *n = length - n_name - 1;
            return line + n_name + 1;
        }
        line += length + (line[length] == '\n');
    }
    return NULL;
}
