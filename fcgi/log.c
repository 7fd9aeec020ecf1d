/* The ring and its writer. */
#include "fcgi/log.h"

#include "engine/base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LINES = 1024, LINE_BYTES = 512 };

static struct {
    char text[LINES][LINE_BYTES];
    unsigned n_put, n_written;
    bool is_running, is_stopping;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ready;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};

static atomic_ullong n_dropped;

uint64_t log_dropped(void) { return atomic_load(&n_dropped); }

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
        fputs(line, stderr);
        pthread_mutex_lock(&ring.lock);
    }
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

enum err log_start(void)
{
    if (pthread_create(&ring.thread, NULL, writer, NULL) != 0) {
        return ERR_INTERNAL;
    }
    ring.is_running = true;
    return ERR_OK;
}

void log_stop(void)
{
    if (!ring.is_running) {
        return;
    }
    pthread_mutex_lock(&ring.lock);
    ring.is_stopping = true;
    pthread_cond_signal(&ring.ready);
    pthread_mutex_unlock(&ring.lock);
    pthread_join(ring.thread, NULL);
    ring.is_running = false;
}

void log_line(const char *level, const char *fmt, ...)
{
    char line[LINE_BYTES];
    int64_t now = clock_unix_seconds();
    time_t seconds = (time_t)now;
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ ", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, "%s ", level);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - n - 1, fmt, args);
    va_end(args);
    n = more < 0 ? n : n + (size_t)more < sizeof line - 2 ? n + (size_t)more : sizeof line - 2;
    for (size_t i = 0; i < n; i++) {
        line[i] = (unsigned char)line[i] < 0x20 || line[i] == 0x7F ? ' ' : line[i]; /* one line, no terminal codes */
    }
    line[n] = '\n';
    line[n + 1] = '\0';
    if (!ring.is_running) {
        fputs(line, stderr);
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
