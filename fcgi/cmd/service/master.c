/* Three slots for workers and a loop around poll. A worker reports by datagrams of sd_notify (notify.h); those of the
 * serving one are also forwarded to the service manager. */
#include "fcgi/cmd/service/master.h"

#include "engine/base/clock.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/number.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/notify.h"
#include "fcgi/wire/worker.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_ARGS = 512,
    NAMES_BYTES = 256,
    TICK_MS = 1000,
    SHORT_LIFE_MS = 10000,  /* a worker that lives less counts as failed again */
    BACKOFF_MS = 50,        /* delay after the second failure, then doubled, */
    BACKOFF_MAX_MS = 30000, /* up to this, */
    BACKOFF_READY_MS = 400, /* or to this if workers had served, so that clients get an answer within 2 s */
    FAILED_MOST = 3,        /* consecutive workers that cannot load the model; later ones answer that there is none */
    SILENT_MS = 20000,      /* maximum silence of a ready worker, which reports every second, */
    LOADING_MS = 600000,    /* of a loading one, which reports each percent: drivers can compile for minutes */
    FEED_MS = 10000,        /* after this silence the service manager gets no messages either */
    GRACE_MS = 15000,       /* time beyond --drain-timeout after which a worker that must exit is killed */
    TWICE_MS = 1000,        /* signals to process groups arrive twice */
    STOPPED_MS = 2000,      /* a clock check this late: the process was stopped, and perhaps its workers */
};

struct worker {
    pid_t pid;                    /* 0: none */
    int fd;                       /* status socket; -1: the worker has closed its end */
    bool is_ready, is_superseded; /* superseded: told to exit before it was ready, because another one must start */
    uint64_t started_ms, heard_ms, end_by_ms; /* end_by: 0: it need not exit */
    char status[160];                         /* its last status text */
};

static struct {
    const struct conf *conf;
    char *argv[MAX_ARGS + 2]; /* the program and the subcommand's arguments */
    char program[PATH_MAX];
    int socket_fd, signal_fd;
    struct worker serving, coming, leaving;
    struct conf last;  /* options as last read: at the start or the last SIGUSR2 */
    bool was_ready;    /* a worker has been ready */
    bool wants_reload; /* when the slot is free */
    bool is_stopping;
    int n_short;  /* consecutive workers that lived briefly */
    int n_failed; /* of these, workers that exited without having been ready */
    uint64_t start_at_ms, asked_ms, fed_ms, feed_every_ms;
    int rc;
} m;

static struct worker *const places[] = {&m.serving, &m.coming, &m.leaving};

static uint64_t now_ms(void) { return clock_now_ns() / 1000000u; }

/* --- starting ------------------------------------------------------------------------------------------------------------- */

static void move_fd(int from, int to)
{
    if (from != to) {
        (void)dup2(from, to);
    } else {
        (void)fcntl(to, F_SETFD, 0); /* keep it open in the started program */
    }
}

/* Runs in the child. Signals stay blocked: before the worker waits for them they would kill it. */
static void become_worker(int status_fd, enum worker_role role, pid_t master)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* without the master no process would restart the worker */
    if (getppid() != master) {
        _exit(CMD_NO_SYSTEM);
    }
    int kept =
        fcntl(status_fd, F_DUPFD_CLOEXEC, WORKER_STATUS_FD + 1); /* avoids the number that is overwritten first */
    move_fd(m.socket_fd, 0);
    move_fd(kept, WORKER_STATUS_FD);
    conf_set_variable("INFCGI_WORKER", worker_role_name(role));
    (void)execv("/proc/self/exe", m.argv);
    _exit(CMD_NO_SYSTEM);
}

static bool start_worker(struct worker *w, enum worker_role role)
{
    int pair[2] = {-1, -1};
    pid_t master = getpid(), pid = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        pid = fork();
    }
    if (pid == 0) {
        become_worker(pair[1], role, master);
    }
    if (pair[1] >= 0) {
        close(pair[1]);
    }
    if (pid < 0) {
        log_line("error", "worker_not_started reason=\"the system gives no process\"");
        if (pair[0] >= 0) {
            close(pair[0]);
        }
        return false;
    }
    uint64_t now = now_ms();
    *w = (struct worker){.pid = pid, .fd = pair[0], .started_ms = now, .heard_ms = now};
    log_line("info", "worker_started pid=%d role=%s", (int)pid, worker_role_name(role));
    return true;
}

/* Schedules a new serving worker, with a delay after repeated failures. */
static void plan_start(uint64_t now, bool was_short, bool was_ready)
{
    uint64_t most = was_ready ? BACKOFF_READY_MS : BACKOFF_MAX_MS;
    m.n_short = was_short ? MIN_OF(m.n_short + 1, 20) : 0;
    uint64_t pause = m.n_short < 2 ? 0 : MIN_OF((uint64_t)BACKOFF_MS << (m.n_short - 2), most);
    m.start_at_ms = now + pause;
}

/* --- telling -------------------------------------------------------------------------------------------------------------- */

static void tell(struct worker *w, int signal)
{
    if (w->pid != 0) {
        (void)kill(w->pid, signal);
    }
}

static void tell_all(int signal)
{
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        tell(places[i], signal);
    }
}

static void kill_worker(struct worker *w, const char *why)
{
    log_line("error", "worker_killed pid=%d reason=\"%s\" said=\"%s\"", (int)w->pid, why, w->status);
    w->end_by_ms = 0;
    w->heard_ms = now_ms(); /* report once */
    tell(w, SIGKILL);
}

/* Tells a worker to exit, and sets the time to kill it. */
static void end_worker(struct worker *w, int signal, uint64_t now)
{
    tell(w, signal);
    if (w->pid != 0 && w->end_by_ms == 0) {
        w->end_by_ms = now + (uint64_t)m.conf->drain_s * 1000u + GRACE_MS;
    }
}

/* --- listening ------------------------------------------------------------------------------------------------------------ */

/* The loading worker is ready and serves; the previous one finishes its requests. */
static void take_over(uint64_t now)
{
    m.leaving = m.serving;
    m.serving = m.coming;
    m.coming = (struct worker){.fd = -1};
    end_worker(&m.leaving, SIGUSR2, now);
    log_line("info", "worker_took_over pid=%d from=%d load_ms=%" PRIu64, (int)m.serving.pid, (int)m.leaving.pid,
             now - m.serving.started_ms);
}

static void hear_ready(struct worker *w, uint64_t now)
{
    if (w->is_superseded) { /* it exits */
        return;
    }
    w->is_ready = true;
    if (w == &m.coming) {
        take_over(now);
        w = &m.serving;
    }
    m.was_ready = true;
    if (w == &m.serving && !m.is_stopping) {
        notify_say("READY=1", "%s", w->status);
    }
}

/* Returns the ms that a worker announced for its current work; 0: none. */
static uint64_t time_asked_for(const char *text)
{
    size_t n;
    int64_t usec;
    const char *value = notify_field(text, "EXTEND_TIMEOUT_USEC", &n);
    return value != NULL && number_parse_digits(value, &usec) == value + n ? (uint64_t)usec / 1000u : 0;
}

static void hear(struct worker *w, const char *text)
{
    size_t n;
    uint64_t now = now_ms();
    const char *value = notify_field(text, "STATUS", &n);
    w->heard_ms = now;
    if (value != NULL) {
        snprintf(w->status, sizeof w->status, "%.*s", (int)MIN_OF(n, sizeof w->status - 1), value);
    }
    uint64_t more_ms = time_asked_for(text);
    if (more_ms != 0 && w->end_by_ms != 0) {
        w->end_by_ms = now + more_ms;
    }
    if (notify_field(text, "READY", &n) != NULL && !w->is_ready) {
        hear_ready(w, now);
        return;
    }
    if (notify_field(text, "WATCHDOG", &n) != NULL && n > 1) { /* "trigger": the worker detected that it hangs */
        kill_worker(w, "a step does not end");
    }
    if (value != NULL && w != &m.leaving) {
        char fields[48] = "";
        if (more_ms != 0) {
            snprintf(fields, sizeof fields, "EXTEND_TIMEOUT_USEC=%" PRIu64, more_ms * 1000u);
        }
        notify_say(fields, "%s%s", w == &m.coming ? "reload: " : "", w->status);
    }
}

/* Reads all messages of a worker. */
static void listen_to(struct worker *w)
{
    for (;;) {
        char text[NOTIFY_BYTES + 1];
        int fd = w->fd;
        ssize_t n = fd >= 0 ? recv(fd, text, sizeof text - 1, MSG_DONTWAIT) : -1;
        if (n == 0) {
            close(fd);
            w->fd = -1;
        }
        if (n <= 0) {
            return;
        }
        text[n] = '\0';
        hear(w, text);
        if (w->fd != fd) { /* the worker has moved to another slot */
            w = &m.serving;
        }
    }
}

/* --- the end of a worker -------------------------------------------------------------------------------------------------- */

static void stop(uint64_t now)
{
    if (!m.is_stopping) {
        m.is_stopping = true;
        notify_say("STOPPING=1", NULL);
    }
    if (m.conf->drain_close && m.socket_fd >= 0) {
        close(m.socket_fd); /* the worker closes its own: new clients are refused */
        m.socket_fd = -1;
    }
    end_worker(&m.serving, SIGTERM, now);
    end_worker(&m.coming, SIGTERM, now);
}

static const char *how(int status, char text[32])
{
    snprintf(text, 32, WIFSIGNALED(status) ? "signal=%d" : "status=%d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return text;
}

static void serving_ended(const struct worker *w, int status, uint64_t now)
{
    char text[32];
    if (!m.was_ready && WIFEXITED(status) && WEXITSTATUS(status) != CMD_OK) {
        m.rc =
            WEXITSTATUS(status); /* an option, the model or the back end is wrong; the worker has logged the reason */
        stop(now);
        return;
    }
    if (m.is_stopping) {
        m.rc = WIFEXITED(status) ? WEXITSTATUS(status) : CMD_OK;
        return;
    }
    if (m.coming.pid != 0) { /* a new worker is already starting */
        m.serving = m.coming;
        m.coming = (struct worker){.fd = -1};
        log_line("error", "worker_died pid=%d %s after_ms=%" PRIu64 " next=%d", (int)w->pid, how(status, text),
                 now - w->started_ms, (int)m.serving.pid);
        return;
    }
    m.n_failed = w->is_ready ? 0 : MIN_OF(m.n_failed + WIFEXITED(status), FAILED_MOST);
    plan_start(now, now - w->started_ms < SHORT_LIFE_MS, w->is_ready);
    log_line("error", "worker_died pid=%d %s after_ms=%" PRIu64 " restart_in_ms=%" PRIu64, (int)w->pid,
             how(status, text), now - w->started_ms, m.start_at_ms - now);
    notify_say("", "starting again: the process that served ended (%s)", text);
}

static void coming_ended(const struct worker *w, int status)
{
    char text[32];
    if (w->is_superseded || m.is_stopping) {
        return;
    }
    log_line("error", "reload_failed %s reason=\"%s\" kept=%d", how(status, text),
             w->status[0] != '\0' ? w->status : "its options cannot be used, as the line before says",
             (int)m.serving.pid);
    notify_say("READY=1", "%s (a reload failed: %s)", m.serving.status, w->status[0] != '\0' ? w->status : text);
}

static void reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
            if (places[i]->pid == pid) {
                listen_to(places[i]); /* reads its last messages, after which it can be ready and in another slot */
            }
        }
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
            struct worker *w = places[i], was = *w;
            if (was.pid != pid) {
                continue;
            }
            if (was.fd >= 0) {
                close(was.fd);
            }
            *w = (struct worker){.fd = -1};
            if (w == &m.serving) {
                serving_ended(&was, status, now_ms());
            } else if (w == &m.coming) {
                coming_ended(&was, status);
            } else {
                log_line("info", "worker_left pid=%d", (int)pid);
            }
            break;
        }
    }
}

/* --- signals -------------------------------------------------------------------------------------------------------------- */

/* Lists the options that have changed since they were last read; the new worker reads them itself. */
static void compare_options(char *names, size_t cap)
{
    struct err_info info = {0};
    struct conf fresh;
    if (conf_load(&fresh, &m.conf->given, &info) != ERR_OK) {
        snprintf(names, cap, "unknown");
        conf_fini(&fresh);
        return;
    }
    conf_differences(&m.last, &fresh, names, cap);
    if (names[0] == '\0') {
        snprintf(names, cap, "nothing");
    }
    if (m.last.file.data != m.conf->file.data) {
        conf_fini(&m.last);
    }
    m.last = fresh;
}

static void reload(uint64_t now)
{
    char changed[NAMES_BYTES];
    compare_options(changed, sizeof changed);
    notify_reloading();
    m.wants_reload = true;
    m.n_short = 0; /* the operator has presumably fixed something */
    m.start_at_ms = MIN_OF(m.start_at_ms, now);
    if (m.coming.pid != 0) { /* its options can be outdated */
        m.coming.is_superseded = true;
        end_worker(&m.coming, SIGTERM, now);
    } else if (m.serving.pid == 0) {
        m.wants_reload = false; /* the worker started now rereads everything */
    }
    log_line("info", "reload asked=SIGUSR2%s changed=\"%s\"",
             m.leaving.pid != 0 ? " waits=\"for the one that drains\"" : "", changed);
}

static void handle_signal(int signal)
{
    uint64_t now = now_ms();
    switch (signal) {
    case SIGHUP:
        notify_reloading();
        tell_all(SIGHUP);
        notify_say(m.was_ready ? "READY=1" : "", NULL);
        break;
    case SIGUSR1:
        tell_all(SIGUSR1);
        log_reopen();
        break;
    case SIGUSR2:
        if (!m.is_stopping) {
            reload(now);
        }
        break;
    case SIGCHLD:
        break;
    default:
        if (!m.is_stopping) {
            m.asked_ms = now;
            stop(now);
        } else if (now - m.asked_ms >= TWICE_MS) {
            m.asked_ms = now;
            tell_all(SIGTERM);
        }
    }
}

static void read_signals(void)
{
    struct signalfd_siginfo s;
    while (read(m.signal_fd, &s, sizeof s) == (ssize_t)sizeof s) {
        handle_signal((int)s.ssi_signo);
    }
}

/* --- the loop ------------------------------------------------------------------------------------------------------------- */

/* Extends all time limits by the time in which this process did not run. Workers heard since then count as heard
 * now. */
static void forgive(uint64_t late_ms, uint64_t now)
{
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        places[i]->heard_ms = MIN_OF(places[i]->heard_ms + late_ms, now);
        places[i]->end_by_ms += places[i]->end_by_ms != 0 ? late_ms : 0;
    }
}

/* Returns the role of the next serving worker. */
static enum worker_role next_role(void)
{
    if (!m.was_ready) {
        return WORKER_FIRST;
    }
    return m.n_failed < FAILED_MOST ? WORKER_AGAIN : WORKER_ANEW;
}

static void check_times(uint64_t now)
{
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct worker *w = places[i];
        if (w->pid != 0 && w->end_by_ms != 0 && now > w->end_by_ms) {
            kill_worker(w, "it does not end");
        } else if (w->pid != 0 && now - w->heard_ms > (w->is_ready ? SILENT_MS : LOADING_MS)) {
            kill_worker(w, "it no longer responds");
        }
    }
    if (m.is_stopping) {
        return;
    }
    if (m.serving.pid == 0 && now >= m.start_at_ms && !start_worker(&m.serving, next_role())) {
        plan_start(now, true, m.was_ready);
    }
    if (m.wants_reload && m.coming.pid == 0 && m.leaving.pid == 0 && m.serving.pid != 0) {
        m.wants_reload = false;
        if (!start_worker(&m.coming, WORKER_NEXT)) {
            notify_say("READY=1", NULL); /* nothing changes */
        }
    }
}

/* Notifies the service manager while the serving worker is well or a new one is being started. */
static void feed(uint64_t now)
{
    bool is_well = m.is_stopping || m.serving.pid == 0 || !m.serving.is_ready || now - m.serving.heard_ms < FEED_MS;
    if (is_well && now - m.fed_ms >= m.feed_every_ms) {
        notify_say("WATCHDOG=1", NULL);
        m.fed_ms = now;
    }
}

static void run(void)
{
    for (uint64_t due = UINT64_MAX;;) {
        uint64_t now = now_ms(), pause = TICK_MS;
        if (now > due && now - due > STOPPED_MS) {
            forgive(now - due, now);
        }
        struct pollfd polled[ARRAY_LEN(places) + 1] = {{.fd = m.signal_fd, .events = POLLIN}};
        check_times(now);
        feed(now);
        if (m.is_stopping && m.serving.pid + m.coming.pid + m.leaving.pid == 0) {
            return;
        }
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
            polled[i + 1] = (struct pollfd){.fd = places[i]->pid != 0 ? places[i]->fd : -1, .events = POLLIN};
        }
        if (m.serving.pid == 0 && m.start_at_ms > now) {
            pause = MIN_OF(pause, m.start_at_ms - now);
        }
        pause = MIN_OF(pause, m.feed_every_ms);
        due = now + pause;
        (void)poll(polled, ARRAY_LEN(polled), (int)pause);
        for (size_t i = 0; i < ARRAY_LEN(places);
             i++) { /* first, because a client that saw the next worker ready can request another one */
            listen_to(places[i]);
        }
        read_signals();
        reap();
    }
}

/* Prepares for the first worker. */
static int prepare(const struct conf *conf)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    struct err_info info = {0};
    sigset_t set;
    int argc = conf->given.argc;
    if (argc > MAX_ARGS) {
        err_set(&info, ERR_CONFIG, NULL, "expected at most %d arguments, found %d", (int)MAX_ARGS, argc);
        return cmd_fail_setup(CMD_USAGE, ERR_CONFIG, &info);
    }
    ssize_t n = readlink("/proc/self/exe", m.program, sizeof m.program - 1);
    snprintf(m.program + MAX_OF(n, 0), sizeof m.program - (size_t)MAX_OF(n, 0), "%s", n > 0 ? "" : "infcgi");
    m.argv[0] = m.program; /* name in ps */
    memcpy(m.argv + 1, conf->given.argv, (size_t)argc * sizeof *m.argv);
    enum err err = fastcgi_listen(conf->socket, &m.socket_fd, &info);
    if (err != ERR_OK) {
        return cmd_fail_setup(err == ERR_CONFIG ? CMD_USAGE : CMD_BAD_CONFIG, err, &info);
    }
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        sigaddset(&set, signals[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    m.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (m.signal_fd < 0) {
        err_set(&info, ERR_INTERNAL, NULL, "cannot read signals");
        return cmd_fail_setup(CMD_NO_SYSTEM, ERR_INTERNAL, &info);
    }
    (void)prctl(PR_SET_NAME, "infcgi-master");
    (void)signal(SIGPIPE, SIG_IGN); /* the log's reader can be gone */
    err = log_start(&info);
    return err == ERR_OK ? CMD_OK : cmd_fail_setup(CMD_NO_SYSTEM, err, &info);
}

int master_run(const struct conf *conf)
{
    m.conf = conf;
    m.last = *conf;
    m.serving.fd = m.coming.fd = m.leaving.fd = -1;
    int rc = prepare(conf);
    if (rc != CMD_OK) {
        return rc;
    }
    notify_open(-1);
    uint64_t watchdog_ms = notify_watchdog_ns() / 1000000u;
    m.feed_every_ms = watchdog_ms != 0 ? MAX_OF(MIN_OF(watchdog_ms / 3, (uint64_t)TICK_MS), 1u) : TICK_MS;
    run();
    if (conf->socket != NULL) {
        unlink(conf->socket);
    }
    log_stop();
    return m.rc;
}
