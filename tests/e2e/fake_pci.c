/* Preloaded, shows the folder that FAKE_PCI names in the place of /sys/bus/pci/devices, which libpciaccess has written into it. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char there[] = "/sys/bus/pci/devices";

static const char *redirect(const char *path, char room[4096])
{
    const char *fake = getenv("FAKE_PCI");
    if (fake == NULL || path == NULL || strncmp(path, there, sizeof there - 1) != 0) {
        return path;
    }
    snprintf(room, 4096, "%s%s", fake, path + sizeof there - 1);
    return room;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...)
{
    char room[4096];
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return REAL(open)(redirect(path, room), flags, mode);
}

int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags) { return open(path, flags); }

int access(const char *path, int mode)
{
    char room[4096];
    return REAL(access)(redirect(path, room), mode);
}

ssize_t readlink(const char *restrict path, char *restrict to, size_t n)
{
    char room[4096];
    return REAL(readlink)(redirect(path, room), to, n);
}

DIR *opendir(const char *path)
{
    char room[4096];
    return REAL(opendir)(redirect(path, room));
}

int scandir(const char *restrict path, struct dirent ***restrict names, int (*filter)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **))
{
    char room[4096];
    return REAL(scandir)(redirect(path, room), names, filter, compare);
}
