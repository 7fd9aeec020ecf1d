/* Admin commands about the process: memory, threads. */
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "fcgi/ground/number.h"
#include "fcgi/watch/admin.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define I(v) ((json_int_t)(v))

enum { FILE_BYTES = 4096, MAX_THREADS = 512 };

/* Returns the value of a line "VmRSS: 1234 kB" of /proc/self/status in bytes; 0: missing. */
static int64_t read_size(const char *status, const char *name)
{
    const char *p = strstr(status, name);
    int64_t kib;
    if (p == NULL) {
        return 0;
    }
    p += strlen(name);
    return number_parse_digits(p + strspn(p, " \t"), &kib) != NULL ? kib * 1024 : 0;
}

json_t *admin_memory(struct admin_call *c)
{
    char text[FILE_BYTES];
    json_t *by = json_object();
    (void)c;
    for (int i = 0; i < MEM_PURPOSE_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_bytes", mem_purpose_name((enum mem_purpose)i));
        (void)json_object_set_new(by, name, json_integer(I(mem_live_of((enum mem_purpose)i))));
    }
    io_read_start("/proc/self/status", text, sizeof text);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "resident_bytes", I(read_size(text, "VmRSS:")),
                     "most_resident_bytes", I(read_size(text, "VmHWM:")), "address_space_bytes",
                     I(read_size(text, "VmSize:")), "swapped_bytes", I(read_size(text, "VmSwap:")), "counted_bytes",
                     I(mem_live()), "requests_bytes", I(mem_account_held()), "requests_limit_bytes",
                     I(mem_account_budget()), "by_purpose", by);
}

/* Returns the n-th field after the thread's name in /proc/self/task/N/stat; field 1 is its state [proc(5)]. */
static int64_t read_field(const char *stat, int n)
{
    const char *p = strrchr(stat, ')');
    int64_t v;
    for (int i = 0; i < n && p != NULL; i++) {
        p = strchr(p + 1, ' ');
    }
    return p != NULL && number_parse_digits(p + 1, &v) != NULL ? v : 0;
}

static json_t *thread_row(const char *number)
{
    enum { STATE = 1, USER_TICKS = 12, SYSTEM_TICKS = 13 };
    char path[64], stat[FILE_BYTES];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", number);
    io_read_start(path, stat, sizeof stat);
    const char *name = strchr(stat, '('), *end = strrchr(stat, ')');
    if (name == NULL || end == NULL || end < name) {
        return NULL; /* the thread has ended */
    }
    double per_s = (double)sysconf(_SC_CLK_TCK);
    char state[2] = {end[1] == ' ' ? end[2] : '?', '\0'}, text[32];
    snprintf(text, sizeof text, "%.*s", (int)MIN_OF(end - name - 1, (ptrdiff_t)sizeof text - 1), name + 1);
    return json_pack("{s:s, s:s, s:s, s:f, s:f}", "thread", number, "name", text, "state", state, "user_s",
                     (double)read_field(stat, USER_TICKS) / per_s, "system_s",
                     (double)read_field(stat, SYSTEM_TICKS) / per_s);
}

json_t *admin_threads(struct admin_call *c)
{
    json_t *rows = json_array();
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *d;
    (void)c;
    for (int n = 0; tasks != NULL && n < MAX_THREADS && (d = readdir(tasks)) != NULL;) {
        json_t *row = d->d_name[0] != '.' ? thread_row(d->d_name) : NULL;
        n += row != NULL;
        if (row != NULL) {
            (void)json_array_append_new(rows, row);
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return rows;
}
