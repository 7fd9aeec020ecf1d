#include "engine/base/machine.h"

#include "engine/base/compiler.h"
#include "engine/base/io.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CPU_TEXT_BYTES = 2048 }; /* the name is in the first lines */

size_t machine_number_in(const char *path)
{
    char text[32];
    size_t v = 0, i = 0;
    io_read_start(path, text, sizeof text);
    for (; text[i] >= '0' && text[i] <= '9'; i++) {
        if (v > (SIZE_MAX - 9) / 10) {
            return SIZE_MAX;
        }
        v = v * 10 + (size_t)(text[i] - '0');
    }
    return i > 0 ? v : SIZE_MAX;
}

size_t machine_memory_bytes(void)
{
    /* In a container the process's control group is the root of what it sees. Version 2, then 1. */
    size_t group = MIN_OF(machine_number_in("/sys/fs/cgroup/memory.max"),
                          machine_number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return MIN_OF(pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX, group);
}

uint64_t machine_disk_bytes(void)
{
    struct rusage r;
    return getrusage(RUSAGE_THREAD, &r) == 0 ? (uint64_t)r.ru_inblock * 512 : 0; /* in sectors [Linux, getrusage(2)] */
}

void machine_cpu_name(char *out, size_t cap)
{
    static const char key[] = "model name\t: "; /* [Linux, arch/x86/kernel/cpu/proc.c] */
    char text[CPU_TEXT_BYTES];
    io_read_start("/proc/cpuinfo", text, sizeof text);
    const char *at = strstr(text, key);
    at = at != NULL ? at + sizeof key - 1 : "";
    snprintf(out, cap, "%.*s", (int)strcspn(at, "\n"), at);
}
