/* The thread of the admin socket. All operations are nonblocking: a client that does not send or read occupies its slot
 * until its time limit and delays no other client. */
#include "fcgi/watch/admin.h"

#include "engine/base/clock.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/unix_socket.h"
#include "fcgi/watch/admin_text.h"
#include "fcgi/watch/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MODE = 0600, BACKLOG = 16, STACK_BYTES = 512 << 10, FREE = -1, AT_LISTENER = 0, AT_WAKE = 1, AT_CLIENTS = 2 };

struct client {
    int fd; /* FREE: unused */
    uid_t uid;
    pid_t pid;
    uint64_t until_ns; /* deadline; 0: none */
    char line[ADMIN_LINE_BYTES];
    size_t n_line;
    struct admin_call call;
    struct buf text; /* output of the command so far */
    struct buf out;  /* bytes to send */
    size_t n_sent;
    bool goes_on, is_answered;
};

static struct {
    int listen_fd, wake_fd;
    const char *path;
    struct server *server;
    pthread_t thread;
    bool is_running;
    struct client clients[ADMIN_CLIENTS];
} admin;

/* --- answers ----------------------------------------------------------------------------------------------------- */

static uint64_t in_ms(uint64_t ms) { return clock_now_ns() + ms * 1000000u; }

static void expect_reader(struct client *c) { c->until_ns = in_ms(ADMIN_STALLED_MS); }

/* Queues the output of a command. */
static void answer(struct client *c, json_t *said)
{
    struct admin_call *call = &c->call;
    c->is_answered = true;
    expect_reader(c);
    if (call->verdict == ADMIN_OK && said != NULL) {
        if (call->is_json) {
            status_write_json(said, &c->text);
        } else {
            admin_text(said, &c->text);
        }
    }
    if (call->verdict == ADMIN_OK && buf_ok(&c->text) != ERR_OK) {
        (void)admin_refuse(call, ADMIN_REFUSED, "the answer is too large, or memory is out");
    }
    if (call->verdict != ADMIN_OK) {
        buf_printf(&c->out, "%s %s\n", admin_verdict_name((int)call->verdict), call->why);
    } else {
        buf_printf(&c->out, "ok %zu\n", c->text.len);
        buf_append(&c->out, c->text.data != NULL ? c->text.data : "", c->text.len);
    }
    json_decref(said);
}

static void refuse(struct client *c, enum admin_verdict v, const char *why)
{
    (void)admin_refuse(&c->call, v, "%s", why);
    answer(c, NULL);
}

/* The line is complete. */
static void run_line(struct client *c)
{
    struct admin_call *call = &c->call;
    if (!admin_parse(c->line, call)) {
        refuse(c, ADMIN_USAGE, "expected a line of 1 to 8 words; `help` lists the commands");
        return;
    }
    call->server = admin.server;
    call->engine = atomic_load_explicit(&admin.server->engine, memory_order_acquire);
    call->out = &c->text;
    json_t *said = admin_run(call);
    const struct admin_command *command = admin_find(call->words[0]);
    if (command != NULL && command->changes) {
        log_line("info", "admin command=%s word=\"%s\" uid=%u pid=%d result=%s", command->name,
                 call->n_words > 1 ? call->words[1] : "", (unsigned)c->uid, (int)c->pid,
                 admin_verdict_name((int)call->verdict));
    }
    c->goes_on = call->verdict == ADMIN_OK && call->go_on != NULL;
    if (!c->goes_on) {
        answer(c, said);
        return;
    }
    json_decref(said);
    c->until_ns = 0;
    if (call->is_live) {
        buf_puts(&c->out, "live\n");
    }
}

/* Continues a command. */
static void go_on(struct client *c)
{
    json_t *last = NULL;
    c->goes_on = c->call.go_on(&c->call, &last);
    if (c->call.is_live) {
        c->until_ns = c->until_ns == 0 && c->text.len > 0 ? in_ms(ADMIN_STALLED_MS) : c->until_ns;
        buf_add(&c->out, &c->text);
        buf_reset(&c->text);
    } else if (!c->goes_on) {
        answer(c, last);
    }
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

static void drop(struct client *c)
{
    if (c->call.end != NULL) {
        c->call.end(&c->call);
    }
    close(c->fd);
    buf_fini(&c->text);
    buf_fini(&c->out);
    *c = (struct client){.fd = FREE};
}

/* Sends a line to a client that gets no slot, if it can be sent immediately. */
static void turn_away(int fd, enum admin_verdict v, const char *why)
{
    char line[160];
    int n = snprintf(line, sizeof line, "%s %s\n", admin_verdict_name((int)v), why);
    (void)!send(fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

static void take_client(void)
{
    struct ucred who = {0};
    socklen_t n = sizeof who;
    int fd = accept4(admin.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    bool is_known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0;
    if (!is_known || (who.uid != 0 && who.uid != geteuid())) {
        log_line("warn", "admin_denied uid=%u pid=%d", (unsigned)who.uid, (int)who.pid);
        turn_away(fd, ADMIN_DENIED, "expected the user that the server runs as, or root");
        return;
    }
    for (struct client *c = admin.clients; c < admin.clients + ADMIN_CLIENTS; c++) {
        if (c->fd == FREE) {
            *c = (struct client){.fd = fd, .uid = who.uid, .pid = who.pid, .until_ns = in_ms(ADMIN_REQUEST_MS)};
            buf_init(&c->text, ADMIN_ANSWER_BYTES, MEM_GENERAL);
            buf_init(&c->out, ADMIN_ANSWER_BYTES + ADMIN_LINE_BYTES, MEM_GENERAL);
            return;
        }
    }
    turn_away(fd, ADMIN_REFUSED, "too many clients of the admin socket; try again");
}

/* Reads until the line is complete; the end of input also ends it. Returns false if the client is finished. */
static bool read_line(struct client *c)
{
    ssize_t n = recv(c->fd, c->line + c->n_line, sizeof c->line - c->n_line, 0);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    char *end = memchr(c->line + c->n_line, '\n', (size_t)n);
    c->n_line += (size_t)n;
    if (n == 0 && c->n_line == 0) {
        return false;
    }
    if (end == NULL && n > 0 && c->n_line == sizeof c->line) {
        refuse(c, ADMIN_USAGE, "expected a line of at most 1023 bytes, found a longer one");
    } else if (end != NULL || n == 0) {
        end = end != NULL ? end : c->line + MIN_OF(c->n_line, sizeof c->line - 1);
        *end = '\0';
        if (strlen(c->line) != (size_t)(end - c->line)) {
            refuse(c, ADMIN_USAGE, "expected a line of text, found a NUL byte");
        } else {
            run_line(c);
        }
    }
    return true;
}

/* Returns false if the client is finished. */
static bool send_more(struct client *c)
{
    ssize_t n = send(c->fd, c->out.data + c->n_sent, c->out.len - c->n_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    c->n_sent += (size_t)n;
    expect_reader(c);
    if (c->n_sent == c->out.len) {
        buf_reset(&c->out);
        c->n_sent = 0;
        c->until_ns = 0;
        return !c->is_answered;
    }
    return true;
}

static short wanted(const struct client *c)
{
    return (short)((c->out.len > c->n_sent ? POLLOUT : 0) | (!c->is_answered && !c->goes_on ? POLLIN : 0));
}

/* Does all work for c that is possible now. */
static void serve_client(struct client *c, short events)
{
    bool is_fine = (events & (POLLHUP | POLLERR)) == 0 || (events & POLLIN) != 0;
    if (is_fine && (events & POLLIN) != 0 && !c->is_answered && !c->goes_on) {
        is_fine = read_line(c);
    }
    if (is_fine && c->goes_on) {
        go_on(c);
        is_fine = buf_ok(&c->out) == ERR_OK; /* a live reader that reads too slowly */
    }
    if (is_fine && c->out.len > c->n_sent) {
        is_fine = send_more(c);
    }
    if (!is_fine || (c->until_ns != 0 && clock_now_ns() > c->until_ns)) {
        drop(c);
    }
}

/* Returns the time to sleep: until the next tick of a continuing command, or up to 1 s, so that time limits are
 * kept. */
static int patience_ms(void)
{
    int ms = -1;
    for (const struct client *c = admin.clients; c < admin.clients + ADMIN_CLIENTS; c++) {
        if (c->goes_on) {
            return ADMIN_TICK_MS;
        }
        ms = c->fd == FREE ? ms : 1000;
    }
    return ms;
}

static void *serve(void *unused)
{
    (void)unused;
    struct pollfd fds[AT_CLIENTS + ADMIN_CLIENTS];
    for (;;) {
        fds[AT_LISTENER] = (struct pollfd){.fd = admin.listen_fd, .events = POLLIN};
        fds[AT_WAKE] = (struct pollfd){.fd = admin.wake_fd, .events = POLLIN};
        for (int i = 0; i < ADMIN_CLIENTS; i++) {
            fds[AT_CLIENTS + i] = (struct pollfd){.fd = admin.clients[i].fd, .events = wanted(&admin.clients[i])};
        }
        if (poll(fds, ARRAY_LEN(fds), patience_ms()) < 0) {
            continue; /* signals are blocked in this thread; after any error it retries */
        }
        if (fds[AT_WAKE].revents != 0) {
            break;
        }
        for (int i = 0; i < ADMIN_CLIENTS; i++) {
            if (admin.clients[i].fd != FREE) {
                serve_client(&admin.clients[i], fds[AT_CLIENTS + i].revents);
            }
        }
        if (fds[AT_LISTENER].revents != 0) {
            take_client();
        }
    }
    for (int i = 0; i < ADMIN_CLIENTS; i++) {
        if (admin.clients[i].fd != FREE) {
            drop(&admin.clients[i]);
        }
    }
    return NULL;
}

/* --- start and end -------------------------------------------------------------------------------------------------- */

enum err admin_start(const char *path, struct server *server, struct err_info *info)
{
    TRY(unix_socket_listen(path, MODE, BACKLOG, "admin-socket", &admin.listen_fd, info));
    pthread_attr_t attr;
    for (int i = 0; i < ADMIN_CLIENTS; i++) {
        admin.clients[i].fd = FREE;
    }
    admin.path = path;
    admin.server = server;
    admin.wake_fd = eventfd(0, EFD_CLOEXEC);
    (void)fcntl(admin.listen_fd, F_SETFL, O_NONBLOCK); /* a client can leave between poll and accept */
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int rc = admin.wake_fd < 0 ? errno : pthread_create(&admin.thread, &attr, serve, NULL);
    admin.is_running = rc == 0;
    pthread_attr_destroy(&attr);
    if (admin.is_running) {
        (void)pthread_setname_np(admin.thread, "admin");
    }
    if (!admin.is_running) {
        close(admin.listen_fd);
        return err_set(info, ERR_INTERNAL, NULL, "cannot start the thread of the admin socket: %s", strerror(rc));
    }
    return ERR_OK;
}

void admin_stop(void)
{
    uint64_t one = 1;
    if (!admin.is_running) {
        return;
    }
    (void)!write(admin.wake_fd, &one, sizeof one);
    pthread_join(admin.thread, NULL);
    admin.is_running = false;
    close(admin.wake_fd);
    unlink(admin.path); /* before it is closed: a process that finds it stale can create another at this path */
    close(admin.listen_fd);
}
