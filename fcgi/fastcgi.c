/* libfcgi at work. Its calls block, so each connection has a thread; one more always waits in accept, since libfcgi gives a
 * silent local peer two seconds there. Keep-alive stays off: an idle connection would hold a thread for nothing. */
#include "fcgi/fastcgi.h"

#include "fcgi/conf.h"
#include "fcgi/log.h"

#include <errno.h>
#include <fcgiapp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,            /* capped by net.core.somaxconn; a full backlog is an instant 502 from nginx */
    STACK_BYTES = 512 << 10,   /* JSON is read at most 64 levels deep */
    FIRST_THREADS = 4,
    LISTEN_FD = 0,
};
#define WAKE_SIGNAL SIGUSR2 /* makes a blocking accept return */

struct fastcgi_request {
    FCGX_Request fcgx;
    bool is_gone;                 /* a write failed */
    pthread_mutex_t watch_lock;   /* held while `gone` runs */
    void (*gone)(void *arg);
    void *gone_arg;
    bool is_watched;
};

static struct {
    int fd, epoll_fd, max_threads;
    fastcgi_handler handler;
    void *arg;
    atomic_int n_threads, n_waiting, n_active;
    atomic_bool is_stopping;
    pthread_mutex_t lock;
    pthread_t *threads; /* [max_threads], guarded by lock; never joined, so that ids stay valid for fastcgi_stop */
    struct fastcgi_request *requests; /* [max_threads], one a thread; never freed: the watcher may still hold an event of one */
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- listening ----------------------------------------------------------------------------------------------------- */

static enum err check_inherited(struct err_info *info)
{
    int is_listening = 0;
    socklen_t n = sizeof is_listening;
    if (getsockopt(LISTEN_FD, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &n) != 0 || is_listening == 0) {
        return err_set(info, ERR_CONFIG, "socket",
                       "expected a listening socket on descriptor 0 (from spawn-fcgi or systemd) or --socket PATH, found neither");
    }
    return ERR_OK;
}

/* Is somebody listening at the address? */
static bool is_live(const struct sockaddr_un *address)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool live = probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) == 0;
    if (probe >= 0) {
        close(probe);
    }
    return live;
}

enum err fastcgi_listen(const char *path, int *fd, struct err_info *info)
{
    *fd = LISTEN_FD;
    if (path == NULL) {
        return check_inherited(info);
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return err_set(info, ERR_CONFIG, "socket", "socket: expected a path of at most %zu bytes, found %zu",
                       sizeof address.sun_path - 1, strlen(path));
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (is_live(&address)) {
        return err_set(info, ERR_ADDRESS_IN_USE, "socket", "socket: another process listens on %s", path);
    }
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(path);
    }
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t mask = umask(0117); /* 0660: nginx's group, nobody else */
    bool ok = s >= 0 && bind(s, (const struct sockaddr *)&address, sizeof address) == 0 && listen(s, BACKLOG) == 0;
    int reason = errno;
    umask(mask);
    if (!ok) {
        if (s >= 0) {
            close(s);
        }
        return err_set(info, reason == EADDRINUSE ? ERR_ADDRESS_IN_USE : ERR_IO, "socket", "cannot listen on %s: %s", path,
                       strerror(reason));
    }
    *fd = s;
    return ERR_OK;
}

/* --- clients that leave -------------------------------------------------------------------------------------------- */

static void *watcher(void *arg)
{
    (void)arg;
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(server.epoll_fd, events, (int)ARRAY_LEN(events), -1);
        for (int i = 0; i < n; i++) {
            struct fastcgi_request *r = events[i].data.ptr;
            pthread_mutex_lock(&r->watch_lock);
            if (r->gone != NULL && (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
                r->gone(r->gone_arg);
                r->gone = NULL;
            }
            pthread_mutex_unlock(&r->watch_lock);
        }
    }
    return NULL;
}

void fastcgi_watch(struct fastcgi_request *r, void (*gone)(void *arg), void *arg)
{
    pthread_mutex_lock(&r->watch_lock);
    r->gone = gone;
    r->gone_arg = arg;
    pthread_mutex_unlock(&r->watch_lock);
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = r};
    if (gone != NULL && r->fcgx.ipcFd >= 0) {
        r->is_watched = epoll_ctl(server.epoll_fd, r->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, r->fcgx.ipcFd, &event) == 0;
    } else if (r->is_watched) {
        epoll_ctl(server.epoll_fd, EPOLL_CTL_DEL, r->fcgx.ipcFd, &event);
        r->is_watched = false;
    }
}

/* --- requests ------------------------------------------------------------------------------------------------------ */

const char *fastcgi_param(const struct fastcgi_request *r, const char *name)
{
    return FCGX_GetParam(name, r->fcgx.envp);
}

/* Is CONTENT_LENGTH, where the server gave it, the number of bytes that came? */
static bool is_length_right(const struct fastcgi_request *r, size_t n)
{
    const char *length = fastcgi_param(r, "CONTENT_LENGTH");
    int64_t v;
    return length == NULL || *length == '\0' || (conf_parse_integer(length, &v) && *length != '-' && (uint64_t)v == n);
}

enum err fastcgi_read_body(struct fastcgi_request *r, size_t limit_bytes, struct buf *out)
{
    char block[16384];
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

/* --- threads ------------------------------------------------------------------------------------------------------- */

static bool start_thread(void);

static void serve_one(struct fastcgi_request *r)
{
    atomic_fetch_add(&server.n_active, 1);
    /* The last waiting thread has just got a connection: let another one wait. */
    if (atomic_fetch_sub(&server.n_waiting, 1) == 1 && !atomic_load(&server.is_stopping)) {
        (void)start_thread();
    }
    r->is_gone = false;
    server.handler(r, server.arg);
    fastcgi_watch(r, NULL, NULL);
    FCGX_Finish_r(&r->fcgx);
    atomic_fetch_sub(&server.n_active, 1);
    atomic_fetch_add(&server.n_waiting, 1);
}

static void *connection_thread(void *arg)
{
    struct fastcgi_request *r = arg;
    while (!atomic_load(&server.is_stopping)) {
        int rc = FCGX_Accept_r(&r->fcgx);
        if (rc == 0) {
            serve_one(r);
        } else if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ENOBUFS) {
            log_line("warn", "accept_failed errno=%d", -rc);
            struct timespec pause = {.tv_nsec = 50000000};
            nanosleep(&pause, NULL);
        }
    }
    FCGX_Free(&r->fcgx, 1);
    atomic_fetch_sub(&server.n_waiting, 1);
    return NULL;
}

static bool start_thread(void)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_mutex_lock(&server.lock);
    int i = atomic_load(&server.n_threads);
    bool ok = i < server.max_threads;
    if (ok) {
        struct fastcgi_request *r = &server.requests[i];
        *r = (struct fastcgi_request){.is_gone = false};
        pthread_mutex_init(&r->watch_lock, NULL);
        FCGX_InitRequest(&r->fcgx, server.fd, FCGI_FAIL_ACCEPT_ON_INTR);
        atomic_fetch_add(&server.n_waiting, 1);
        ok = pthread_create(&server.threads[i], &attr, connection_thread, r) == 0;
        if (ok) {
            atomic_fetch_add(&server.n_threads, 1);
        } else {
            atomic_fetch_sub(&server.n_waiting, 1);
        }
    }
    pthread_mutex_unlock(&server.lock);
    pthread_attr_destroy(&attr);
    return ok;
}

static void on_wake(int signal) { (void)signal; }

enum err fastcgi_start(int fd, int max_connections, fastcgi_handler handler, void *arg, struct err_info *info)
{
    server.fd = fd;
    server.handler = handler;
    server.arg = arg;
    server.max_threads = max_connections;
    server.threads = mem_zalloc_array((size_t)max_connections, sizeof *server.threads, MEM_GENERAL);
    server.requests = mem_zalloc_array((size_t)max_connections, sizeof *server.requests, MEM_GENERAL);
    server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct sigaction wake = {.sa_handler = on_wake}; /* without SA_RESTART: accept must return */
    sigaction(WAKE_SIGNAL, &wake, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    setenv("LIBFCGI_OS_CLOSE_POLL_TIMEOUT", "100", 0); /* ms libfcgi waits for nginx to close; 2,000 by default */
    pthread_t thread;
    bool ok = server.threads != NULL && server.requests != NULL && server.epoll_fd >= 0 && FCGX_Init() == 0 &&
              pthread_create(&thread, NULL, watcher, NULL) == 0 && pthread_detach(thread) == 0;
    for (int i = 0; i < MIN_OF(FIRST_THREADS, max_connections) && ok; i++) {
        ok = start_thread();
    }
    return ok ? ERR_OK : err_set(info, ERR_INTERNAL, NULL, "cannot start the FastCGI threads: %s", strerror(errno));
}

void fastcgi_stop(void)
{
    atomic_store(&server.is_stopping, true);
    while (atomic_load(&server.n_waiting) > 0) { /* a signal may come just before accept: send until all have seen it */
        pthread_mutex_lock(&server.lock);
        for (int i = 0; i < atomic_load(&server.n_threads) && atomic_load(&server.n_waiting) > 0; i++) {
            if (server.threads[i] != 0) {
                pthread_kill(server.threads[i], WAKE_SIGNAL);
            }
        }
        pthread_mutex_unlock(&server.lock);
        struct timespec pause = {.tv_nsec = 5000000};
        nanosleep(&pause, NULL);
    }
}

int fastcgi_n_active(void) { return atomic_load(&server.n_active); }
