/* Reads the system's limits and divides the available memory. */
#include "fcgi/wire/memory.h"

#include "engine/base/compiler.h"
#include "engine/base/io.h"
#include "engine/base/machine.h"
#include "fcgi/ground/number.h"
#include "fcgi/wire/fastcgi.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum {
    MACHINE_PART = 4, /* a quarter of the machine's memory is the default budget, */
    LEAST_MIB = 256,  /* but at least this on small ones, up to half of the machine's, */
    MOST_MIB = 8192,  /* and at most this on large ones */
    SHARE_PART = 4,   /* one request can take a quarter of the budget or, if more, this up to half of the budget: */
    SHARE_MIB = 256,  /* the tokenizer's tables for a text of 4 MiB, or 256 sequences */
    /* under an address-space limit: */
    SLACK_MIB = 32,           /* kept free next to all counted memory */
    USED_PART = 4,            /* a quarter of the memory left by connections is lost in gaps */
    BUDGET_LEAST_MIB = 16,    /* below it the server is useless */
    LOADING_CONNECTIONS = 16, /* while the model is loaded: /health */
    STAT_BYTES = 4096,
};

static size_t address_room(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return SIZE_MAX;
    }
    size_t used = machine_number_in("/proc/self/statm"), page = (size_t)sysconf(_SC_PAGESIZE);
    used = used > SIZE_MAX / page ? SIZE_MAX : used * page;
    return limit.rlim_cur > used ? (size_t)limit.rlim_cur - used : 0;
}

struct memory_found memory_look(void)
{
    return (struct memory_found){.machine_bytes = machine_memory_bytes(), .room_bytes = address_room()};
}

bool memory_has_room(void) { return address_room() >= SLACK_MIB * MIB / 2; }

enum err memory_plan(const struct conf *conf, const struct memory_found *found, bool is_loaded, struct memory_plan *out,
                     struct err_info *info)
{
    size_t asked = (size_t)conf->request_memory_mib * MIB;
    size_t machine = found->machine_bytes, least = MIN_OF(LEAST_MIB * MIB, machine / 2);
    size_t budget = asked != 0 ? asked : MIN_OF(MAX_OF(machine / MACHINE_PART, least), MOST_MIB * MIB);
    *out = (struct memory_plan){.n_connections = (int)conf->max_connections};
    if (found->room_bytes != SIZE_MAX && !is_loaded) {
        out->n_connections = (int)MIN_OF(conf->max_connections, (int64_t)LOADING_CONNECTIONS);
        budget = MIN_OF(budget, BUDGET_LEAST_MIB * MIB);
    } else if (found->room_bytes != SIZE_MAX) {
        size_t room = found->room_bytes - MIN_OF(found->room_bytes, SLACK_MIB * MIB);
        size_t n = MIN_OF((size_t)conf->max_connections, room / 2 / FASTCGI_CONNECTION_BYTES);
        size_t most = (room - n * FASTCGI_CONNECTION_BYTES) / USED_PART * (USED_PART - 1);
        if (n < 2 || most < BUDGET_LEAST_MIB * MIB || asked > most) {
            return err_set(info, ERR_MEMORY_LIMIT, "request-memory",
                           "the address-space limit (RLIMIT_AS) leaves %zu MiB next to the model: enough for %zu "
                           "connections and %zu MiB of requests, expected at least 2 and %zu MiB",
                           found->room_bytes / MIB, n, most / MIB, MAX_OF(asked / MIB, (size_t)BUDGET_LEAST_MIB));
        }
        out->n_connections = (int)n;
        budget = MIN_OF(budget, most);
    }
    out->budget_bytes = budget;
    out->share_bytes = MAX_OF(budget / SHARE_PART, MIN_OF(budget / 2, SHARE_MIB * MIB));
    return ERR_OK;
}

/* Reads a value of /proc/meminfo or memory.stat; SIZE_MAX if it is missing. */
static size_t available_in(const char *path, const char *key, size_t unit)
{
    char text[STAT_BYTES];
    io_read_start(path, text, sizeof text);
    const char *at = strstr(text, key);
    int64_t v;
    if (at == NULL) {
        return SIZE_MAX;
    }
    at += strlen(key);
    at += strspn(at, ": ");
    return number_parse_digits(at, &v) != NULL && (uint64_t)v < SIZE_MAX / unit ? (size_t)v * unit : SIZE_MAX;
}

size_t memory_available(void)
{
    size_t machine = available_in("/proc/meminfo", "MemAvailable", 1024),
           most = machine_number_in("/sys/fs/cgroup/memory.max");
    size_t used = machine_number_in("/sys/fs/cgroup/memory.current"),
           files = available_in("/sys/fs/cgroup/memory.stat", "\nfile ", 1);
    if (most == SIZE_MAX || used == SIZE_MAX) {
        return machine;
    }
    used -= files == SIZE_MAX ? 0 : MIN_OF(files, used); /* file pages can be dropped and reread */
    return MIN_OF(machine, most - MIN_OF(most, used));
}

enum err memory_check_second(uint64_t need_bytes, size_t available_bytes, struct err_info *info)
{
    if (need_bytes <= available_bytes) {
        return ERR_OK;
    }
    return err_set(
        info, ERR_MEMORY_LIMIT, "memory",
        "two models do not fit together: weights, KV cache and activations of the next one need %" PRIu64
        " MiB, %zu MiB are "
        "available next to the serving one; use a smaller --kv-tokens, a --pack-cache, whose weights both share, or a restart "
        "instead of a reload",
        need_bytes >> 20, available_bytes >> 20);
}
