/* Each line is one write to a file opened for appending, so lines stay whole even with other writers. */
#include "fcgi/tenant/journal.h"

#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "engine/base/json_write.h"
#include "fcgi/ground/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

static struct {
    pthread_rwlock_t lock; /* guards path and fd */
    const char *path;
    int fd;
    atomic_bool is_torn;   /* the last line is incomplete: the next begins with a line feed */
    atomic_bool is_losing; /* so that the log reports the loss once */
    atomic_ullong n_lost;
} journal = {.lock = PTHREAD_RWLOCK_INITIALIZER, .fd = -1};

enum err journal_open(const char *path, struct err_info *info)
{
    struct err_info why = {0};
    if (io_append_open(path, &journal.fd, &why) != ERR_OK) {
        return err_set(info, ERR_CONFIG, "usage-log", "usage-log: %.300s: %s", path, why.text);
    }
    journal.path = path;
    return ERR_OK;
}

void journal_close(void)
{
    pthread_rwlock_wrlock(&journal.lock);
    if (journal.fd >= 0) {
        io_append_close(journal.fd);
    }
    journal.fd = -1;
    journal.path = NULL;
    pthread_rwlock_unlock(&journal.lock);
}

void journal_reopen(void)
{
    struct err_info why = {0};
    int fd;
    if (journal.path == NULL) {
        return;
    }
    if (io_append_open(journal.path, &fd, &why) != ERR_OK) {
        log_line("error", "usage_log_kept reason=\"%s\"", why.text);
        return;
    }
    pthread_rwlock_wrlock(&journal.lock);
    int old = journal.fd;
    journal.fd = fd;
    atomic_store(&journal.is_torn, false);
    pthread_rwlock_unlock(&journal.lock);
    io_append_close(old);
    log_line("info", "usage_log_reopened");
}

uint64_t journal_lost(void) { return atomic_load(&journal.n_lost); }

static void append(const struct buf *line)
{
    size_t n_feed = atomic_exchange(&journal.is_torn, false) ? 0 : 1, written; /* the text begins with a line feed */
    if (io_append(journal.fd, line->data + n_feed, line->len - n_feed, &written) == ERR_OK) {
        if (atomic_exchange(&journal.is_losing, false)) {
            log_line("info", "usage_log_goes_on lost=%llu", (unsigned long long)journal_lost());
        }
        return;
    }
    if (written > 0 || n_feed == 0) {
        atomic_store(&journal.is_torn, true);
    }
    atomic_fetch_add(&journal.n_lost, 1);
    if (!atomic_exchange(&journal.is_losing, true)) {
        log_line("error", "usage_log_loses_lines path=\"%s\"", journal.path);
    }
}

static void write_text(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, ",\"%s\":", name);
    json_write_cstr(out, value);
}

static void write_ms(struct buf *out, const char *name, uint64_t ns)
{
    buf_printf(out, ",\"%s_ms\":%.3f", name, (double)ns / 1e6);
}

void journal_write(const struct journal_entry *e)
{
    char now[CLOCK_UTC_BYTES];
    struct buf line;
    pthread_rwlock_rdlock(&journal.lock);
    if (journal.fd >= 0) {
        buf_init(&line, 0, MEM_GENERAL);
        buf_printf(&line, "\n{\"time\":\"%s\"", clock_utc(clock_unix_seconds(), now));
        write_text(&line, "id", e->id);
        write_text(&line, "tenant", e->tenant);
        write_text(&line, "path", e->path);
        write_text(&line, "model", e->model != NULL ? e->model : "");
        buf_printf(&line, ",\"status\":%d", e->status);
        write_text(&line, "code", err_code(e->err));
        write_text(&line, "finish", e->finish);
        buf_printf(&line,
                   ",\"tokens_in\":%" PRId64 ",\"tokens_cached\":%" PRId64 ",\"tokens_out\":%" PRId64
                   ",\"tokens_reasoning\":%" PRId64,
                   e->tokens.prompt, e->tokens.cached, e->tokens.completion, e->tokens.reasoning);
        write_ms(&line, "queue", e->queue_ns);
        write_ms(&line, "prefill", e->prefill_ns);
        write_ms(&line, "decode", e->decode_ns);
        write_ms(&line, "total", e->total_ns);
        buf_puts(&line, "}\n");
        if (buf_ok(&line) == ERR_OK) {
            append(&line);
        } else {
            atomic_fetch_add(&journal.n_lost, 1);
        }
        buf_fini(&line);
    }
    pthread_rwlock_unlock(&journal.lock);
}
