/* The ring and its writer. */
#include "fcgi/ground/log.h"

#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "fcgi/ground/number.h"
#include "fcgi/ground/words.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LINES = LOG_LINES,
    LINE_BYTES = LOG_LINE_BYTES,
    WAKE_MS = 100,  /* between two checks for the end, while stderr is blocked */
    END_MS = 1000,  /* time stderr can stay blocked at the end; lines that do not fit by then are lost, */
    LOST_MS = 2000, /* and so is a writer blocked by another process on the same pipe */
};

static struct {
    char text[LINES][LINE_BYTES];
    uint64_t n_put, n_written; /* taken by the writer */
    uint64_t n_out;            /* on stderr */
    bool is_running, is_stopping, is_over;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ready;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};

static atomic_ullong n_dropped;
static atomic_ullong give_up_ns = UINT64_MAX; /* when waiting for stderr ends */

uint64_t log_dropped(void) { return atomic_load(&n_dropped); }

/* --- levels ------------------------------------------------------------------------------------------------------ */

static const char *const levels[] = {"error", "warn", "info"};
static atomic_int level = ARRAY_LEN(levels) - 1;

const char *log_level_name(int i) { return i >= 0 && i < (int)ARRAY_LEN(levels) ? levels[i] : NULL; }

int log_level(void) { return atomic_load(&level); }

void log_set_level(int i) { atomic_store(&level, i); }

static bool is_wanted(const char *name)
{
    int most = log_level();
    for (int i = 0; i <= most; i++) {
        if (strcmp(name, levels[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* --- where lines go ----------------------------------------------------------------------------------------------- */

static const char *log_path; /* of --log-file */
static atomic_bool is_journal;

void log_find_journal(const char *journal_stream)
{
    struct stat st;
    int64_t device = 0, inode = 0;
    const char *colon = journal_stream != NULL ? number_parse_digits(journal_stream, &device) : NULL;
    bool is_given = colon != NULL && *colon == ':' && number_parse(colon + 1, &inode);
    bool is_same =
        is_given && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == (dev_t)device && st.st_ino == (ino_t)inode;
    atomic_store(&is_journal, is_same);
}

const char *log_priority(const char *of_level)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>"}; /* of levels */
    for (size_t i = 0; i < ARRAY_LEN(levels) && atomic_load(&is_journal); i++) {
        if (strncmp(of_level, levels[i], strlen(levels[i])) == 0) {
            return priorities[i];
        }
    }
    return "";
}

static enum err open_file(struct err_info *info)
{
    struct err_info why = {0};
    int fd;
    if (io_append_open(log_path, &fd, &why) != ERR_OK) {
        return err_set(info, ERR_CONFIG, "log-file", "log-file: %.300s: %s", log_path, why.text);
    }
    (void)dup2(fd, STDERR_FILENO);
    io_append_close(fd);
    atomic_store(&is_journal, false);
    return ERR_OK;
}

enum err log_to_file(const char *path, struct err_info *info)
{
    log_path = path;
    return open_file(info);
}

void log_reopen(void)
{
    struct err_info info = {0};
    if (log_path == NULL) {
        return;
    }
    if (open_file(&info) != ERR_OK) {
        log_line("error", "log_file_kept reason=\"%s\"", info.text);
    } else {
        log_line("info", "log_file_reopened");
    }
}

/* --- the ring ---------------------------------------------------------------------------------------------------- */

bool log_read(uint64_t *at, char line[LOG_LINE_BYTES])
{
    pthread_mutex_lock(&ring.lock);
    uint64_t oldest = ring.n_put > LINES ? ring.n_put - LINES : 0;
    *at = MAX_OF(*at, oldest);
    bool is_there = *at < ring.n_put;
    if (is_there) {
        memcpy(line, ring.text[(*at)++ % LINES], LINE_BYTES);
    }
    pthread_mutex_unlock(&ring.lock);
    return is_there;
}

uint64_t log_n_lines(void)
{
    pthread_mutex_lock(&ring.lock);
    uint64_t n = ring.n_put;
    pthread_mutex_unlock(&ring.lock);
    return n;
}

/* Writes a line to stderr, which can be a pipe without a reader. stdio is not used, because its lock would then delay
 * the process's exit. */
static void put(const char *text)
{
    char line[LINE_BYTES + 4];
    const char *of_level = strchr(text, ' ');
    size_t n = (size_t)snprintf(line, sizeof line, "%s%s", of_level != NULL ? log_priority(of_level + 1) : "", text),
           at = 0;
    while (at < n) {
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        int n_ready = poll(&p, 1, clock_now_ns() < atomic_load(&give_up_ns) ? WAKE_MS : 0);
        ssize_t k = n_ready > 0 ? write(STDERR_FILENO, line + at, n - at) : 0;
        bool is_lost =
            k < 0 ? errno != EINTR && errno != EAGAIN : n_ready == 0 && clock_now_ns() >= atomic_load(&give_up_ns);
        if (is_lost) {
            atomic_fetch_add(&n_dropped, 1);
            return;
        }
        at += (size_t)MAX_OF(k, 0);
    }
}

static void *writer(void *arg)
{
    (void)arg;
    char line[LINE_BYTES];
    pthread_mutex_lock(&ring.lock);
    for (;;) {
        while (ring.n_put == ring.n_written && !ring.is_stopping) {
            pthread_cond_wait(&ring.ready, &ring.lock);
        }
        if (ring.n_put == ring.n_written) {
            break;
        }
        memcpy(line, ring.text[ring.n_written++ % LINES], sizeof line);
        pthread_mutex_unlock(&ring.lock);
        put(line);
        pthread_mutex_lock(&ring.lock);
        ring.n_out = ring.n_written;
    }
    ring.is_over = true;
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

enum err log_start(struct err_info *info)
{
    ring.is_stopping = ring.is_over = false;
    atomic_store(&give_up_ns, UINT64_MAX);
    int rc = pthread_create(&ring.thread, NULL, writer, NULL);
    if (rc != 0) {
        return err_set(info, ERR_INTERNAL, NULL, "cannot start the thread of the log: %s", strerror(rc));
    }
    (void)pthread_setname_np(ring.thread, "log");
    ring.is_running = true;
    return ERR_OK;
}

/* Gives other threads a millisecond. Called with the lock held. */
static void yield_lock(void)
{
    pthread_mutex_unlock(&ring.lock);
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_mutex_lock(&ring.lock);
}

void log_stop(void)
{
    if (!ring.is_running) {
        return;
    }
    atomic_store(&give_up_ns, clock_now_ns() + END_MS * 1000000ull);
    pthread_mutex_lock(&ring.lock);
    ring.is_stopping = true;
    pthread_cond_signal(&ring.ready);
    for (int i = 0; i < LOST_MS && !ring.is_over; i++) {
        yield_lock();
    }
    bool is_over = ring.is_over;
    pthread_mutex_unlock(&ring.lock);
    (void)(is_over ? pthread_join(ring.thread, NULL) : pthread_detach(ring.thread));
    ring.is_running = false;
}

void log_flush(unsigned ms)
{
    pthread_mutex_lock(&ring.lock);
    uint64_t until = ring.n_put;
    for (unsigned i = 0; i < ms && ring.is_running && ring.n_out < until; i++) {
        yield_lock();
    }
    pthread_mutex_unlock(&ring.lock);
}

/* Formats the line with its newline and returns its length. */
static size_t format(char line[LINE_BYTES], const char *of_level, const char *fmt, va_list args)
{
    char utc[CLOCK_UTC_BYTES];
    int64_t now = clock_unix_ms();
    (void)clock_utc(now / 1000, utc);
    size_t n = (size_t)snprintf(line, LINE_BYTES, "%.19s.%03dZ %s ", utc, (int)(now % 1000), of_level);
    int more = vsnprintf(line + n, LINE_BYTES - n - 1, fmt, args);
    n = MIN_OF(n + (size_t)MAX_OF(more, 0), (size_t)LINE_BYTES - 2);
    line[n] = '\0';
    words_flatten(line);
    line[n] = '\n';
    line[n + 1] = '\0';
    return n + 1;
}

bool log_line_to(const char *path, const char *of_level, const char *fmt, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    size_t n = format(line, of_level, fmt, args);
    va_end(args);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    bool ok = fd >= 0 && write(fd, line, n) == (ssize_t)n;
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

void log_line(const char *of_level, const char *fmt, ...)
{
    char line[LINE_BYTES];
    if (!is_wanted(of_level)) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)format(line, of_level, fmt, args);
    va_end(args);
    if (!ring.is_running) {
        put(line);
        return;
    }
    pthread_mutex_lock(&ring.lock);
    if (ring.n_put - ring.n_written == LINES) {
        atomic_fetch_add(&n_dropped, 1);
    } else {
        memcpy(ring.text[ring.n_put++ % LINES], line, sizeof line);
        pthread_cond_signal(&ring.ready);
    }
    pthread_mutex_unlock(&ring.lock);
}
