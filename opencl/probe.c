/* The child writes a line of JSON for each platform, {"platform":0,"name":"rusticl"}, one for each of its devices
 * (device_json.h), and {"end":true}. Then it kills itself, so that drivers' exit handlers do not run. */
#include "opencl/probe.h"

#include "engine/base/clock.h"
#include "engine/base/json_read.h"
#include "opencl/device_json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 4096,
    MAX_DEPTH = 2,  /* of a line */
    REAP_MS = 1000, /* a driver that waits in the kernel cannot be killed: leave it */
};

static struct {
    const char *program, *command; /* NULL: the process probes itself */
    int limit_ms;
} child;

void probe_use_child(const char *program, const char *command, int limit_ms)
{
    child.program = program;
    child.command = command;
    child.limit_ms = limit_ms;
}

/* --- enumerating -------------------------------------------------------------------------------------------------- */

/* Receiver of what is found. */
struct sink {
    void (*platform)(void *arg, uint32_t i, const char *name);
    void (*device)(void *arg, const struct device_caps *c);
    void *arg;
};

static void ask_platform(cl_platform_id platform, uint32_t i, const struct sink *to)
{
    cl_device_id ids[PROBE_MAX_DEVICES];
    char name[64];
    cl_uint n = 0; /* a platform without devices fails and leaves 0 */
    device_platform_name(platform, name, sizeof name);
    to->platform(to->arg, i, name);
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, PROBE_MAX_DEVICES, ids, &n) != CL_SUCCESS) {
        return;
    }
    for (cl_uint k = 0; k < n && k < PROBE_MAX_DEVICES; k++) {
        struct device_caps caps;
        if (device_read_caps(ids[k], &caps, NULL) == ERR_OK) {
            caps.i_platform = i;
            caps.i_device = k;
            to->device(to->arg, &caps);
        }
    }
}

static void ask_all(uint32_t from, const struct sink *to)
{
    cl_platform_id platforms[PROBE_MAX_PLATFORMS];
    cl_uint n = 0;
    if (clGetPlatformIDs(PROBE_MAX_PLATFORMS, platforms, &n) != CL_SUCCESS) {
        return; /* CL_PLATFORM_NOT_FOUND_KHR: no driver is installed */
    }
    for (cl_uint i = from; i < n && i < PROBE_MAX_PLATFORMS; i++) {
        ask_platform(platforms[i], i, to);
    }
}

/* --- the child ------------------------------------------------------------------------------------------------------ */

static void write_line(int fd, json_t *object)
{
    if (object != NULL && json_dumpfd(object, fd, JSON_COMPACT) == 0) {
        (void)!write(fd, "\n", 1);
    }
    json_decref(object);
}

static void write_platform(void *fd, uint32_t i, const char *name)
{
    write_line(*(int *)fd, json_pack("{s:i, s:s}", "platform", (int)i, "name", name));
}

static void write_device(void *fd, const struct device_caps *c) { write_line(*(int *)fd, device_json(c)); }

int probe_child(int argc, char **argv)
{
    uint32_t from = 0;
    for (const char *p = argc > 1 ? argv[1] : ""; *p >= '0' && *p <= '9' && from < PROBE_MAX_PLATFORMS; p++) {
        from = from * 10 + (uint32_t)(*p - '0');
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_DUMPABLE, 0); /* no core file if a driver crashes */
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) { /* drivers print to standard output too */
        return 1;
    }
    ask_all(from, &(struct sink){write_platform, write_device, &fd});
    write_line(fd, json_pack("{s:b}", "end", 1));
    return raise(SIGKILL);
}

/* --- the result ----------------------------------------------------------------------------------------------------- */

static void add_platform(void *result, uint32_t i, const char *name)
{
    struct probe_result *r = result;
    if (i < PROBE_MAX_PLATFORMS) {
        snprintf(r->platforms[i].name, sizeof r->platforms[i].name, "%s", name);
        r->n_platforms = (int)i + 1;
    }
}

static void add_device(void *result, const struct device_caps *c)
{
    struct probe_result *r = result;
    if (r->n_devices < PROBE_MAX_DEVICES && c->i_platform < PROBE_MAX_PLATFORMS) {
        r->platforms[c->i_platform].n_devices++;
        r->devices[r->n_devices++] = *c;
    }
}

/* Reads one line of the child. */
static enum err read_object(const json_t *o, struct probe_result *to, bool *is_over, struct err_info *info)
{
    const json_t *i = json_object_get(o, "platform"), *name = json_object_get(o, "name");
    struct device_caps caps;
    *is_over = json_is_true(json_object_get(o, "end"));
    if (*is_over) {
        return ERR_OK;
    }
    if (json_is_integer(i)) {
        bool is_one = json_integer_value(i) >= to->n_platforms && json_integer_value(i) < PROBE_MAX_PLATFORMS &&
                      json_string_length(name) < sizeof to->platforms[0].name;
        if (!is_one) {
            return err_set(info, ERR_INVALID_VALUE, "platform", "platform: found one out of its place");
        }
        add_platform(to, (uint32_t)json_integer_value(i), json_is_string(name) ? json_string_value(name) : "");
        return ERR_OK;
    }
    TRY(device_json_read(o, &caps, info));
    if ((int64_t)caps.i_platform != (int64_t)to->n_platforms - 1) {
        return err_set(info, ERR_INVALID_VALUE, "i_platform", "i_platform: found %u", caps.i_platform);
    }
    add_device(to, &caps);
    return ERR_OK;
}

static enum err read_line(const char *line, size_t n, struct probe_result *to, bool *is_over, struct err_info *info)
{
    json_t *o = NULL;
    TRY(json_read(line, n, MAX_DEPTH, "a line", &o, info));
    enum err err = read_object(o, to, is_over, info);
    json_decref(o);
    return err;
}

/* --- the parent ----------------------------------------------------------------------------------------------------- */

/* Starts the child from platform `from` on. Returns its pid, or -1, and *fd, its standard output. */
static pid_t start(uint32_t from, int *fd)
{
    static char name[] = "infcgi";
    char begin[16], *argv[] = {name, (char *)child.command, begin, NULL};
    int ends[2];
    pid_t pid = -1;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    snprintf(begin, sizeof begin, "%u", from);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return -1;
    }
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0); /* ours can be a socket */
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    if (posix_spawn(&pid, child.program, &files, &how, argv, environ) != 0) {
        pid = -1;
    }
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    *fd = ends[0];
    if (pid < 0) {
        close(ends[0]);
    }
    return pid;
}

/* Returns the status of a child that has ended or soon will; 0 if not available. */
static int reap(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t until = clock_now_ns() + REAP_MS * 1000000ull;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0 && clock_now_ns() < until) {
        nanosleep(&pause, NULL);
    }
    (void)kill(pid, SIGKILL);
    return status;
}

/* Output of the child. */
struct answer {
    char line[LINE_BYTES];
    size_t n;
    bool is_over;
};

/* Reads the complete lines. */
static enum err take_lines(struct answer *a, struct probe_result *to, struct err_info *info)
{
    char *end;
    while (!a->is_over && (end = memchr(a->line, '\n', a->n)) != NULL) {
        size_t n = (size_t)(end - a->line);
        TRY(read_line(a->line, n, to, &a->is_over, info));
        a->n -= n + 1;
        memmove(a->line, end + 1, a->n);
    }
    return a->n < LINE_BYTES ? ERR_OK : err_set(info, ERR_TOO_LARGE, NULL, "a line of %zu bytes", a->n);
}

/* Reads until the child has reported everything; ERR_NONE: its output ended before; ERR_DEADLINE: a driver took too
 * long. */
static enum err listen_to(int fd, struct probe_result *to, struct err_info *info)
{
    struct answer a = {.n = 0};
    uint64_t limit = (uint64_t)child.limit_ms * 1000000u, until = clock_now_ns() + limit;
    while (!a.is_over) {
        uint64_t now = clock_now_ns();
        int ready = now < until
                        ? poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)((until - now) / 1000000u) + 1)
                        : 0;
        if (ready == 0) {
            return ERR_DEADLINE;
        }
        ssize_t n = ready < 0 ? -1 : recv(fd, a.line + a.n, sizeof a.line - a.n, 0);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return ERR_NONE;
        }
        if (n > 0) {
            a.n += (size_t)n;
            until = now + limit;
            TRY(take_lines(&a, to, info));
        }
    }
    return ERR_OK;
}

static void tell_fault(enum err err, int status, const struct err_info *info, char fault[PROBE_FAULT_BYTES])
{
    if (err == ERR_DEADLINE) {
        snprintf(fault, PROBE_FAULT_BYTES, "gave no answer within %d s", (child.limit_ms + 999) / 1000);
    } else if (err != ERR_NONE) {
        snprintf(fault, PROBE_FAULT_BYTES, "gave an answer that cannot be read: %.128s", info->text);
    } else if (WIFSIGNALED(status)) {
        const char *what = sigdescr_np(WTERMSIG(status));
        snprintf(fault, PROBE_FAULT_BYTES, "crashed (%s)", what != NULL ? what : "by a signal");
    } else {
        snprintf(fault, PROBE_FAULT_BYTES, "ended the process with status %d", WEXITSTATUS(status));
    }
}

/* Probes from a platform on. Returns whether the report is complete; else *fault has the reason, for the last platform
 * reported. */
static bool run_child(uint32_t from, struct probe_result *to, char fault[PROBE_FAULT_BYTES])
{
    struct err_info info = {0};
    int fd, status;
    pid_t pid = start(from, &fd);
    if (pid < 0) {
        snprintf(fault, PROBE_FAULT_BYTES, "no process could be started to ask them");
        return false;
    }
    enum err err = listen_to(fd, to, &info);
    close(fd);
    if (err != ERR_NONE) {
        (void)kill(pid, SIGKILL);
    }
    status = reap(pid);
    if (err != ERR_OK) {
        tell_fault(err, status, &info, fault);
    }
    return err == ERR_OK;
}

void probe_run(struct probe_result *out)
{
    memset(out, 0, sizeof *out);
    if (child.program == NULL) {
        ask_all(0, &(struct sink){add_platform, add_device, out});
        return;
    }
    while (out->n_platforms < PROBE_MAX_PLATFORMS) {
        char fault[PROBE_FAULT_BYTES] = "";
        int before = out->n_platforms;
        if (run_child((uint32_t)before, out, fault)) {
            return;
        }
        bool is_known = out->n_platforms > before;
        memcpy(is_known ? out->platforms[out->n_platforms - 1].fault : out->fault, fault, sizeof fault);
        if (!is_known) {
            return; /* the next child would fail likewise */
        }
    }
}
