/* Runs libfcgi. Its calls block, so each request has a thread. The poller accepts connections and waits for their first
 * bytes, because libfcgi would hold a thread for every silent peer. The poller also reports clients that left.
 * Keep-alive is off: an idle connection would hold a thread. */
#include "fcgi/wire/fastcgi.h"

#include "engine/base/clock.h"
#include "engine/base/mem_account.h"
#include "engine/base/thread.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/number.h"
#include "fcgi/ground/unix_socket.h"
#include "fcgi/wire/memory.h"
#include "fcgi/wire/records.h"
#include "fcgi/wire/reply.h"
#include "fcgi/wire/worker.h"

#include <errno.h>
#include <fcgiapp.h>
#include <fcgios.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 4096, /* capped by net.core.somaxconn; a full backlog makes nginx answer 502 immediately */
    LISTEN_FD = 0,
    SILENT_MS = 10000,      /* nginx sends immediately; a connection silent for this long is closed */
    FULL_MS = 500,          /* the same while other clients wait for its slot, */
    STOP_MS = 2000,         /* and after the server stops: a peer silent this long is not nginx */
    LOOK_MS = 250,          /* between two checks for silent connections */
    AFTER_BYTES = 64 << 10, /* bytes accepted after a request's body before watching for an abort stops */
    LEAST_IDLE = 4,         /* idle threads that always stay */
    /* Returns freed memory to the system when the last request has ended and one request before it held this much, or
     * many together did: */
    TRIM_IDLE_BYTES = 4 << 20,
    TRIM_BUSY_BYTES = 256 << 20,
};

int fastcgi_silence_ms = 15000;
int fastcgi_idle_ms = 10000;

struct fastcgi_request {
    FCGX_Request fcgx;
    struct records records;
    bool is_read;               /* parameters were read: libfcgi finishes it */
    bool is_gone;               /* a write failed or has no reader */
    pthread_mutex_t watch_lock; /* held while `gone` runs */
    void (*gone)(void *arg);
    void *gone_arg;
    int watched_fd;             /* -1: none; changes with watch_lock held, as do, while it is set, `records` and */
    size_t n_after;             /* bytes received after the body */
    atomic_bool has_left;       /* the client has left, as far as a watch has seen */
    bool is_abandoned;          /* fastcgi_abandon was called; changes with watch_lock held */
    struct mem_account account; /* memory of its requests, which run in sequence */
    /* With the server's lock held: */
    pthread_cond_t wake;
    bool is_idle;                 /* its thread waits for a connection */
    struct fastcgi_request *next; /* next idle request, or next without a thread */
};

/* A connection that has sent nothing yet. */
struct silent {
    int fd;
    uint64_t since_ns;
};

/* The subject of an epoll event, in the upper half of its data; the lower half is an index or a descriptor. */
enum about { ABOUT_LISTENER, ABOUT_WAKE, ABOUT_SILENT, ABOUT_REQUEST };

static struct {
    int fd, epoll_fd, wake_fd, max_connections;
    fastcgi_handler handler;
    void *arg;
    struct fastcgi_request
        *requests;         /* [max_connections], one per thread; never freed, because an event can still name one */
    int n_requests;        /* of these, requests that have had a thread */
    struct silent *silent; /* [max_connections], used only by the poller */
    bool is_short;         /* out of descriptors or memory at the last accept; used only by the poller */
    bool lacks_thread;     /* a ready connection has no thread; used only by the poller */
    atomic_int n_silent;
    atomic_int n_active;              /* ready or being served */
    atomic_size_t freed_bytes;        /* by requests since the last trim, approximately */
    atomic_ullong n_accepted, n_full; /* accepted connections; times that no slot was free */
    atomic_int most_open;
    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t has_stopped;
    int *ready; /* ring [max_connections] of connections that wait for a thread */
    int first_ready, n_ready;
    int n_open; /* silent, ready or being served */
    int limit;  /* maximum n_open if below max_connections; 0: not set */
    int n_threads, n_idle;
    struct fastcgi_request *idle,
        *unused; /* requests whose threads wait, latest first; requests that have lost their thread */
    bool is_listening, is_stopping, is_held;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .has_stopped = PTHREAD_COND_INITIALIZER};

/* --- listening -------------------------------------------------------------------------------------------------- */

enum err fastcgi_listen(const char *path, int *fd, struct err_info *info)
{
    int is_listening = 0;
    socklen_t n = sizeof is_listening;
    *fd = LISTEN_FD;
    if (path != NULL) {
        return unix_socket_listen(path, 0660, BACKLOG, "socket", fd, info); /* 0660: only nginx's group */
    }
    if (getsockopt(LISTEN_FD, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &n) != 0 || is_listening == 0) {
        return err_set(
            info, ERR_CONFIG, "socket",
            "expected a listening socket on descriptor 0 (from spawn-fcgi or systemd) or --socket PATH, found neither");
    }
    return ERR_OK;
}

/* --- the poller --------------------------------------------------------------------------------------------------- */

static uint64_t about(enum about what, int which) { return (uint64_t)what << 32 | (uint32_t)which; }

static bool poll_add(int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void poll_drop(int fd)
{
    struct epoll_event unused;
    epoll_ctl(server.epoll_fd, EPOLL_CTL_DEL, fd, &unused);
}

static void *connection_thread(void *arg);

/* Returns a request for a new thread. */
static struct fastcgi_request *take_request(void)
{
    struct fastcgi_request *r = server.unused;
    if (r != NULL) {
        server.unused = r->next;
        return r;
    }
    r = &server.requests[server.n_requests++];
    pthread_mutex_init(&r->watch_lock, NULL);
    thread_cond_init(&r->wake);
    r->watched_fd = -1;
    return r;
}

static void give_request_back(struct fastcgi_request *r)
{
    r->next = server.unused;
    server.unused = r;
}

/* Called with the lock held. */
static bool start_thread(void)
{
    pthread_t thread;
    pthread_attr_t attr;
    struct fastcgi_request *r = take_request();
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, FASTCGI_STACK_BYTES); /* JSON is read at most 64 levels deep */
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    bool ok = pthread_create(&thread, &attr, connection_thread, r) == 0;
    if (ok) {
        server.n_threads++;
    } else {
        give_request_back(r);
        if (!server.lacks_thread) { /* the connection waits for a running thread, or for a later start */
            log_line("warn", "no_thread running=%d", server.n_threads);
        }
        server.lacks_thread = true;
    }
    pthread_attr_destroy(&attr);
    return ok;
}

/* Hands the connection to the thread that last had a request, because its stack is still in the caches. Idle threads
 * beyond the minimum exit. */
static void hand_over(int fd)
{
    pthread_mutex_lock(&server.lock);
    struct fastcgi_request *r = server.idle;
    server.ready[(server.first_ready + server.n_ready++) % server.max_connections] = fd;
    if (r != NULL) {
        server.idle = r->next;
        server.n_idle--;
        r->is_idle = false;
        pthread_cond_signal(&r->wake);
    } else if (server.n_threads < server.max_connections) {
        (void)start_thread();
    }
    pthread_mutex_unlock(&server.lock);
}

/* Retries starting threads after a failure: one for each connection that is still ready. */
static void start_lacking_threads(void)
{
    pthread_mutex_lock(&server.lock);
    int n = MIN_OF(server.n_ready, server.max_connections - server.n_threads);
    while (n > 0 && start_thread()) {
        n--;
    }
    server.lacks_thread = n > 0;
    pthread_mutex_unlock(&server.lock);
}

/* Adds the listener to the poll or removes it, depending on free slots; before the start it does nothing. Called with
 * the lock held. */
static void listen_if_room(void)
{
    bool want = server.epoll_fd > 0 && !server.is_stopping && !server.is_held &&
                server.n_open < server.max_connections && (server.limit == 0 || server.n_open < server.limit);
    if (want && !server.is_listening) {
        server.is_listening = poll_add(server.fd, EPOLLIN, about(ABOUT_LISTENER, 0));
    } else if (!want && server.is_listening) {
        poll_drop(server.fd);
        server.is_listening = false;
        atomic_fetch_add(&server.n_full, !server.is_stopping);
    }
}

static void count_open(int change)
{
    pthread_mutex_lock(&server.lock);
    server.n_open += change;
    if (server.n_open > atomic_load(&server.most_open)) {
        atomic_store(&server.most_open, server.n_open);
    }
    listen_if_room();
    pthread_mutex_unlock(&server.lock);
}

static void accept_one(void)
{
    struct timespec pause = {.tv_nsec = 50000000};
    if (!memory_has_room()) { /* libfcgi exits the process if it gets no memory, so the connection waits */
        log_line("warn", "no_address_space connections=%d", server.n_open);
        mem_account_trim();
        nanosleep(&pause, NULL);
        return;
    }
    int fd = accept4(server.fd, NULL, NULL, SOCK_CLOEXEC);
    server.is_short = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
    if (fd < 0) {
        if (server.is_short) {
            log_line("warn", "accept_failed errno=%d", errno);
            nanosleep(&pause, NULL);
        }
        return;
    }
    struct timeval limit = {.tv_sec = fastcgi_silence_ms / 1000, .tv_usec = fastcgi_silence_ms % 1000 * 1000};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (!poll_add(fd, EPOLLIN | EPOLLRDHUP, about(ABOUT_SILENT, fd))) {
        close(fd);
        return;
    }
    count_open(1);
    atomic_fetch_add(&server.n_accepted, 1);
    server.silent[server.n_silent++] = (struct silent){.fd = fd, .since_ns = clock_now_ns()};
}

/* Removes entry i from the list of silent connections. */
static int forget_silent(int i)
{
    int fd = server.silent[i].fd;
    server.silent[i] = server.silent[--server.n_silent];
    poll_drop(fd);
    return fd;
}

static bool has_come(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, 0) == 1 && (p.revents & (events | POLLHUP | POLLERR)) != 0;
}

/* A connection that has sent data by now is kept: its event is pending. */
static void close_silent(uint64_t older_than_ns)
{
    for (int i = server.n_silent - 1; i >= 0; i--) {
        if (server.silent[i].since_ns < older_than_ns && !has_come(server.silent[i].fd, POLLIN)) {
            close(forget_silent(i));
            count_open(-1);
        }
    }
}

/* Returns the current limit of silence in ns. */
static uint64_t silence_ns(void)
{
    pthread_mutex_lock(&server.lock);
    bool is_full = server.is_short || (!server.is_listening && !server.is_held);
    int ms = is_full ? FULL_MS : SILENT_MS;
    ms = server.fd < 0 ? STOP_MS : ms;
    pthread_mutex_unlock(&server.lock);
    return (uint64_t)ms * 1000000u;
}

/* With watch_lock held. */
static void call_gone(struct fastcgi_request *r)
{
    if (r->gone != NULL) {
        r->gone(r->gone_arg);
        r->gone = NULL;
    }
}

/* Returns whether ABORT_REQUEST arrived after the body. Reads and drops all later bytes, because no other code reads
 * them. Called with watch_lock held. */
static bool is_aborted(struct fastcgi_request *r)
{
    unsigned char block[RECORDS_AHEAD + 4096];
    ssize_t n = recv(r->watched_fd, block + RECORDS_AHEAD, sizeof block - RECORDS_AHEAD, MSG_DONTWAIT);
    if (n > 0) {
        r->n_after += (size_t)n;
        (void)records_judge(&r->records, block, block + RECORDS_AHEAD, (size_t)n);
    }
    return r->records.verdict == RECORDS_ABORTED;
}

/* Makes the poller watch, or stop watching, for the client's end. Called with watch_lock held. */
static void watch_fd(struct fastcgi_request *r, bool wanted)
{
    bool is_quiet = r->records.verdict == RECORDS_FINE && r->n_after < AFTER_BYTES;
    struct epoll_event event = {.events = (is_quiet ? EPOLLIN : 0) | EPOLLRDHUP | EPOLLONESHOT,
                                .data.u64 = about(ABOUT_REQUEST, (int)(r - server.requests))};
    int fd = r->fcgx.ipcFd;
    if (wanted && fd >= 0) {
        int how = r->watched_fd >= 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        r->watched_fd = epoll_ctl(server.epoll_fd, how, fd, &event) == 0 ? fd : -1;
    } else if (r->watched_fd >= 0) {
        epoll_ctl(server.epoll_fd, EPOLL_CTL_DEL, r->watched_fd, &event);
        r->watched_fd = -1;
    }
}

/* The event can concern an earlier connection of this thread, so the current one is checked. */
static void tell_gone(struct fastcgi_request *r)
{
    pthread_mutex_lock(&r->watch_lock);
    if (r->watched_fd >= 0 && (has_come(r->watched_fd, POLLRDHUP) || is_aborted(r))) {
        atomic_store(&r->has_left, true);
        call_gone(r);
    } else if (r->watched_fd >= 0) {
        watch_fd(r, true);
    }
    pthread_mutex_unlock(&r->watch_lock);
}

static void stop_listening(void)
{
    uint64_t unused;
    (void)!read(server.wake_fd, &unused, sizeof unused);
    pthread_mutex_lock(&server.lock);
    listen_if_room();
    close(server.fd); /* new clients are refused immediately, or wait for a successor that also has the socket */
    server.fd = -1;
    pthread_cond_broadcast(&server.has_stopped);
    pthread_mutex_unlock(&server.lock);
}

static void handle_event(const struct epoll_event *e)
{
    int which = (int)(uint32_t)e->data.u64;
    switch ((enum about)(e->data.u64 >> 32)) {
    case ABOUT_LISTENER:
        if (server.fd >= 0) {
            accept_one();
        }
        break;
    case ABOUT_WAKE:
        stop_listening();
        break;
    case ABOUT_SILENT:
        for (int i = 0; i < server.n_silent; i++) {
            if (server.silent[i].fd == which) {
                atomic_fetch_add(&server.n_active,
                                 1); /* counted before it leaves that list, so that it is always counted */
                hand_over(forget_silent(i));
                break;
            }
        }
        break;
    case ABOUT_REQUEST:
        tell_gone(&server.requests[which]);
        break;
    }
}

static void *poller(void *arg)
{
    (void)arg;
    (void)pthread_setname_np(pthread_self(), "poller");
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(server.epoll_fd, events, (int)ARRAY_LEN(events),
                           server.n_silent > 0 || server.lacks_thread ? LOOK_MS : -1);
        for (int i = 0; i < n; i++) {
            handle_event(&events[i]);
        }
        uint64_t now = clock_now_ns(), limit = silence_ns();
        close_silent(now > limit ? now - limit : 0);
        if (server.lacks_thread) {
            start_lacking_threads();
        }
    }
    return NULL;
}

void fastcgi_watch(struct fastcgi_request *r, void (*gone)(void *arg), void *arg)
{
    pthread_mutex_lock(&r->watch_lock);
    r->gone = gone;
    r->gone_arg = arg;
    watch_fd(r, gone != NULL);
    if (atomic_load(&r->has_left)) { /* the client left before the watch, and ABORT_REQUEST is reported once */
        call_gone(r);
    }
    pthread_mutex_unlock(&r->watch_lock);
}

void fastcgi_abandon(struct fastcgi_request *r)
{
    pthread_mutex_lock(&r->watch_lock);
    r->is_abandoned = true;
    atomic_store(&r->has_left, true);
    call_gone(r);
    pthread_mutex_unlock(&r->watch_lock);
}

bool fastcgi_is_abandoned(struct fastcgi_request *r)
{
    pthread_mutex_lock(&r->watch_lock);
    bool is_abandoned = r->is_abandoned;
    pthread_mutex_unlock(&r->watch_lock);
    return is_abandoned;
}

const atomic_bool *fastcgi_has_left(struct fastcgi_request *r)
{
    pthread_mutex_lock(&r->watch_lock);
    if (r->watched_fd < 0) {
        watch_fd(r, true);
    }
    pthread_mutex_unlock(&r->watch_lock);
    return &r->has_left;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

const char *fastcgi_param(const struct fastcgi_request *r, const char *name)
{
    return FCGX_GetParam(name, r->fcgx.envp);
}

/* Returns whether the body has CONTENT_LENGTH bytes, if the server sent that parameter. */
static bool is_length_right(const struct fastcgi_request *r, size_t n)
{
    const char *length = fastcgi_param(r, "CONTENT_LENGTH");
    int64_t v;
    return length == NULL || *length == '\0' || (number_parse(length, &v) && *length != '-' && (uint64_t)v == n);
}

enum err fastcgi_read_body(struct fastcgi_request *r, size_t limit_bytes, struct buf *out)
{
    char block[4096]; /* small, because a thread's stack never shrinks */
    size_t before = out->len;
    for (int n; (n = FCGX_GetStr(block, sizeof block, r->fcgx.in)) > 0;) {
        if ((size_t)n > limit_bytes - MIN_OF(out->len, limit_bytes)) {
            return ERR_TOO_LARGE;
        }
        buf_append(out, block, (size_t)n);
    }
    if (FCGX_GetError(r->fcgx.in) != 0) {
        return ERR_CANCELLED;
    }
    TRY(buf_ok(out));
    return is_length_right(r, out->len - before) ? ERR_OK : ERR_INVALID_VALUE;
}

bool fastcgi_write(struct fastcgi_request *r, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0 && !r->is_gone) {
        int part = n > 32768 ? 32768 : (int)n;
        r->is_gone = FCGX_PutStr(p, part, r->fcgx.out) != part;
        p += part;
        n -= (size_t)part;
    }
    return !r->is_gone;
}

bool fastcgi_flush(struct fastcgi_request *r)
{
    r->is_gone = r->is_gone || FCGX_FFlush(r->fcgx.out) != 0;
    return !r->is_gone;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

/* The request that libfcgi reads in this thread, and whether libfcgi reads through OS_Read below at all. */
static _Thread_local struct fastcgi_request *reading;
static _Thread_local bool is_seam_used;

/* Answers records that libfcgi must not see, and finishes a request that it has not begun. The peer can still be
 * sending and gets time to read, because libfcgi closes slowly. */
static void refuse(const struct fastcgi_request *r, int fd)
{
    static const char said[] =
        "expected a request whose parameters (path, headers) are at most %d, of %d bytes in all, "
        "found more";
    struct err_info info = {0};
    struct buf text, out;
    buf_init(&text, 0, MEM_GENERAL);
    buf_init(&out, 0, MEM_GENERAL);
    enum records_verdict v = r->records.verdict;
    if (v == RECORDS_TOO_LONG || v == RECORDS_TOO_MANY) {
        err_set(&info, ERR_HEAD_TOO_LARGE, NULL, said, RECORDS_MAX_PARAMS, RECORDS_MAX_PARAMS_BYTES);
        reply_write_refusal(&text, ERR_HEAD_TOO_LARGE, &info);
        records_write_stdout(&out, r->records.request, text.data, text.len);
        records_write_end(&out, r->records.request, RECORDS_COMPLETE);
    } else {
        records_write_end(&out, r->records.request, v == RECORDS_OTHER_ROLE ? RECORDS_UNKNOWN_ROLE : RECORDS_COMPLETE);
    }
    if (buf_ok(&text) == ERR_OK && buf_ok(&out) == ERR_OK && out.len > 0) {
        (void)!send(fd, out.data, out.len, MSG_NOSIGNAL);
    }
    if (v != RECORDS_ABORTED) {
        log_line("warn", "request_refused verdict=%d params=%zu params_bytes=%zu", (int)v, r->records.n_params,
                 r->records.params_bytes);
    }
    buf_fini(&text);
    buf_fini(&out);
}

/* Answers management records from index first on. Does not block: a peer that does not read gets no answer. */
static void answer_managed(const struct records *r, int fd, size_t first)
{
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    for (size_t i = first; i < r->n_managed; i++) {
        records_write_managed(&out, r->managed[i]);
    }
    if (buf_ok(&out) == ERR_OK && out.len > 0) {
        (void)!send(fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    buf_fini(&out);
}

/* Replaces libfcgi's function of this name: libfcgi calls it through the symbol table, so the loader binds ours.
 * Returns read's result; 0 closes the connection. */
int OS_Read(int fd, char *buf, size_t len)
{
    struct fastcgi_request *r = reading;
    is_seam_used = true;
    for (size_t ahead = r != NULL ? RECORDS_AHEAD : 0; len > ahead;) { /* libfcgi asks for 8 KiB */
        ssize_t n = read(fd, buf + ahead, MIN_OF(len - ahead, (size_t)INT_MAX));
        if (n <= 0 || r == NULL) {
            return (int)n;
        }
        bool was_fine = r->records.verdict == RECORDS_FINE;
        size_t n_managed = r->records.n_managed, kept = records_judge(&r->records, buf, buf + ahead, (size_t)n);
        answer_managed(&r->records, fd, n_managed);
        if (r->records.verdict != RECORDS_FINE) {
            r->is_gone = true;
            if (was_fine && !r->is_read) {
                refuse(r, fd);
            }
            return 0;
        }
        if (kept > 0) {
            return (int)kept;
        }
    }
    return 0;
}

/* Returns whether libfcgi reads through OS_Read above. If it is linked to its own function, no records would be
 * filtered. */
static bool is_seam_there(void)
{
    FCGX_Request probe;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return false;
    }
    close(pair[1]);
    is_seam_used = false;
    FCGX_InitRequest(&probe, -1, FCGI_FAIL_ACCEPT_ON_INTR);
    probe.ipcFd = pair[0];
    probe.keepConnection = 1;
    (void)FCGX_Accept_r(&probe); /* reads the end of file and closes */
    return is_seam_used;
}

/* libfcgi reads the request header from the given connection instead of accepting one. */
static void serve_connection(struct fastcgi_request *r, int fd)
{
    FCGX_InitRequest(&r->fcgx, -1, FCGI_FAIL_ACCEPT_ON_INTR);
    r->fcgx.ipcFd = fd;
    r->fcgx.keepConnection = 1; /* else it would close the connection before reading */
    r->is_read = r->is_gone = false;
    r->n_after = 0;
    atomic_store(&r->has_left, false);
    pthread_mutex_lock(&r->watch_lock);
    r->is_abandoned = false;
    pthread_mutex_unlock(&r->watch_lock);
    r->records = (struct records){0};
    reading = r;
    if (FCGX_Accept_r(&r->fcgx) != 0) {
        return; /* not FastCGI, or cut off: closed, and there is no socket to accept from */
    }
    r->is_read = true;
    server.handler(r, server.arg);
    fastcgi_watch(r, NULL, NULL);
    r->fcgx.keepConnection = 0;
    FCGX_Finish_r(&r->fcgx);
}

/* Called at the end of a request that held up to `bytes`. They are added before the request counts as ended, so that
 * the last request sees the sum of all. */
static void end_active(size_t bytes)
{
    atomic_fetch_add(&server.freed_bytes, bytes);
    bool is_last = atomic_fetch_sub(&server.n_active, 1) == 1;
    if (atomic_load(&server.freed_bytes) >= (is_last ? TRIM_IDLE_BYTES : TRIM_BUSY_BYTES)) {
        atomic_store(&server.freed_bytes, 0);
        mem_account_trim();
    }
}

static void leave_idle(struct fastcgi_request *r)
{
    struct fastcgi_request **link = &server.idle;
    while (*link != r) {
        link = &(*link)->next;
    }
    *link = r->next;
    server.n_idle--;
}

/* Waits for a connection, which another thread can take first. Returns false after a long idle time. Called with the
 * lock held. */
static bool rest(struct fastcgi_request *r)
{
    struct timespec at = thread_until(clock_now_ns() + (uint64_t)fastcgi_idle_ms * 1000000u);
    r->next = server.idle;
    r->is_idle = true;
    server.idle = r;
    server.n_idle++;
    while (r->is_idle) {
        if (server.n_idle <= LEAST_IDLE) {
            pthread_cond_wait(&r->wake, &server.lock);
        } else if (pthread_cond_timedwait(&r->wake, &server.lock, &at) == ETIMEDOUT && r->is_idle &&
                   server.n_idle > LEAST_IDLE) {
            leave_idle(r);
            return false;
        }
    }
    return true;
}

static void *connection_thread(void *arg)
{
    struct fastcgi_request *r = arg;
    (void)pthread_setname_np(pthread_self(), "request");
    pthread_mutex_lock(&server.lock);
    for (;;) {
        while (server.n_ready == 0) {
            if (!rest(r)) {
                server.n_threads--;
                give_request_back(r);
                pthread_mutex_unlock(&server.lock);
                return NULL;
            }
        }
        int fd = server.ready[server.first_ready];
        server.first_ready = (server.first_ready + 1) % server.max_connections;
        server.n_ready--;
        pthread_mutex_unlock(&server.lock);
        mem_account_enter(&r->account);
        serve_connection(r, fd);
        end_active(mem_account_leave());
        pthread_mutex_lock(&server.lock);
        server.n_open--;
        listen_if_room();
    }
}

enum err fastcgi_start(int fd, int max_connections, fastcgi_handler handler, void *arg, struct err_info *info)
{
    server.fd = fd;
    server.handler = handler;
    server.arg = arg;
    server.max_connections = max_connections;
    server.requests = mem_zalloc_array((size_t)max_connections, sizeof *server.requests, MEM_GENERAL);
    server.silent = mem_zalloc_array((size_t)max_connections, sizeof *server.silent, MEM_GENERAL);
    server.ready = mem_zalloc_array((size_t)max_connections, sizeof *server.ready, MEM_GENERAL);
    server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server.wake_fd = eventfd(0, EFD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* a client can leave between poll and accept */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    setenv("LIBFCGI_OS_CLOSE_POLL_TIMEOUT", "100", 0); /* ms libfcgi waits for nginx to close; 2,000 by default */
    pthread_t thread;
    bool ok = server.requests != NULL && server.silent != NULL && server.ready != NULL && server.epoll_fd >= 0 &&
              server.wake_fd >= 0 && FCGX_Init() == 0 && poll_add(server.wake_fd, EPOLLIN, about(ABOUT_WAKE, 0));
    count_open(0);
    ok = ok && (server.is_listening || server.is_held) && pthread_create(&thread, NULL, poller, NULL) == 0 &&
         pthread_detach(thread) == 0;
    if (ok && !is_seam_there()) {
        return err_set(info, ERR_INTERNAL, NULL,
                       "this libfcgi does not let its reads be judged (OS_Read): expected the shared library 2.4");
    }
    return ok ? ERR_OK : err_set(info, ERR_INTERNAL, NULL, "cannot start the FastCGI threads: %s", strerror(errno));
}

void fastcgi_limit(int n)
{
    pthread_mutex_lock(&server.lock);
    server.limit = n;
    listen_if_room();
    pthread_mutex_unlock(&server.lock);
}

void fastcgi_hold(bool is_held)
{
    pthread_mutex_lock(&server.lock);
    server.is_held = is_held;
    listen_if_room();
    pthread_mutex_unlock(&server.lock);
}

void fastcgi_stop(void)
{
    uint64_t one = 1;
    pthread_mutex_lock(&server.lock);
    bool was_stopping = server.is_stopping;
    server.is_stopping = true;
    if (!was_stopping) {
        (void)!write(server.wake_fd, &one, sizeof one);
    }
    while (server.fd >= 0) {
        pthread_cond_wait(&server.has_stopped, &server.lock);
    }
    pthread_mutex_unlock(&server.lock);
}

/* The kernel records the process that called listen() on a unix socket [unix(7), SO_PEERCRED]: this process, also if
 * spawn-fcgi became it; its master, which exits with it; a service manager, which lives; or spawn-fcgi without -n,
 * which has exited. 0: a process that is not visible here. */
bool fastcgi_is_alone(void)
{
    struct ucred who = {0};
    socklen_t n = sizeof who;
    pthread_mutex_lock(&server.lock);
    bool is_known = server.fd >= 0 && getsockopt(server.fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.pid > 0;
    pthread_mutex_unlock(&server.lock);
    bool is_own = who.pid == getpid() || (worker_role() != WORKER_NONE && who.pid == getppid());
    return is_known && (is_own || (kill(who.pid, 0) != 0 && errno == ESRCH));
}

int fastcgi_n_active(void)
{
    pthread_mutex_lock(&server.lock);
    bool is_stopping = server.is_stopping;
    pthread_mutex_unlock(&server.lock);
    int n_silent = is_stopping ? atomic_load(&server.n_silent) : 0;
    return n_silent + atomic_load(&server.n_active);
}

void fastcgi_get_counts(struct fastcgi_counts *out)
{
    pthread_mutex_lock(&server.lock);
    *out = (struct fastcgi_counts){.accepted = atomic_load(&server.n_accepted),
                                   .full = atomic_load(&server.n_full),
                                   .n_open = server.n_open,
                                   .most_open = atomic_load(&server.most_open),
                                   .max_open = server.limit != 0 ? MIN_OF(server.limit, server.max_connections)
                                                                 : server.max_connections,
                                   .n_threads = server.n_threads,
                                   .n_idle = server.n_idle};
    pthread_mutex_unlock(&server.lock);
}
