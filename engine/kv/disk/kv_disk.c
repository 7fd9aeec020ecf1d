/* Two threads and a lock. The lock is held only briefly, never during a call that can wait for the disk, because the
 * scheduler takes it. */
#include "engine/kv/disk/kv_disk.h"

#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/thread.h"
#include "engine/kv/disk/kv_index.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS_BYTES = 32 << 20, /* size of the slots of one kind and direction ... */
    MIN_SLOTS = 2,          /* ... but at least this many slots ... */
    MAX_SLOTS = 64,         /* ... and at most this many */
    NICEST = 19,
    IO_CLASS_IDLE = 3, /* ioprio_set(2): use the disk only when it is idle */
    IO_CLASS_SHIFT = 13,
    TOUCHES = 64,        /* files whose time is updated together */
    ROOM_PART = 16,      /* part of the limit that is freed at a time */
    MAX_FILES = 1 << 18, /* known per folder; beyond that it counts as full */
    WINDOW_S = 64,       /* uses within this time count as one */
};
#define PAUSE_NS  30000000000u /* between a failed write and the next try */
#define RESCAN_NS 60000000000u /* other processes write into the folder, too */
#define TOUCH_NS  5000000000u

enum direction { READS, WRITES, DIRECTIONS };
enum stage { FREE, FILLING, QUEUED, WORKING, DONE };

struct slot {
    struct kv_disk_slot outside; /* must be first: the caller's part */
    enum stage stage;
    uint64_t number;     /* order in which slots were queued */
    unsigned char *file; /* head and payload */
};

struct kv_disk {
    struct kv_disk_config cfg;
    char path[IO_MAX_PATH_BYTES];
    struct kv_name key;
    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t wake[DIRECTIONS];
    struct slot *slots[DIRECTIONS][KV_SNAPSHOT_KINDS]; /* [n_slots] */
    int n_slots[KV_SNAPSHOT_KINDS];
    uint64_t next_number;
    struct kv_index index;
    struct kv_index gone; /* files found absent or removed during a scan, which can have seen them before */
    bool is_scanning;
    bool has_touched; /* a file of the index is touched */
    bool is_stopping, has_reported;
    uint64_t paused_until, scanned_at, touched_at;
    struct kv_disk_stats stats;
    uint64_t counts[KV_DISK_COUNTS];
    pthread_mutex_t listen_lock; /* guards the next two fields; taken while no other lock is held */
    void (*listen)(void *arg);
    void *listen_arg;
    pthread_t threads[DIRECTIONS];
    int n_started;
    /* Only the writer uses it. */
    struct kv_file *touches; /* [TOUCHES] */
};

/* --- files -------------------------------------------------------------------------------------------------------- */

static size_t file_bytes(const struct kv_disk *d, enum kv_snapshot_kind kind)
{
    return KV_SNAPSHOT_HEAD_BYTES + d->cfg.bytes[kind];
}

/* kv_disk_open checked that the path fits. */
static void path_of(const struct kv_disk *d, const char *file, char out[IO_MAX_PATH_BYTES])
{
    size_t n = strlen(d->path);
    memcpy(out, d->path, n);
    out[n] = '/';
    memcpy(out + n + 1, file, strlen(file) + 1);
}

static void path_of_name(const struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name,
                         char out[IO_MAX_PATH_BYTES])
{
    char file[KV_SNAPSHOT_FILE_BYTES];
    kv_snapshot_file(kind, name, file);
    path_of(d, file, out);
}

/* Returns the time of a use now. Within one window, earlier pages count as used later, so that they are evicted
 * last. */
static int64_t use_now(int32_t depth)
{
    int64_t window = clock_unix_seconds() / WINDOW_S * WINDOW_S + WINDOW_S,
            after_ms = MIN_OF(depth, (int32_t)WINDOW_S * 1000 - 1);
    return window * 1000000000 - after_ms * 1000000;
}

/* Call it under the lock. */
static void note_use(struct kv_disk *d, struct kv_file *f, int32_t depth)
{
    int64_t now = use_now(depth);
    if (now > f->used_ns) {
        f->used_ns = now;
        f->is_touched = d->has_touched = true;
    }
}

static void call_listener(struct kv_disk *d)
{
    pthread_mutex_lock(&d->listen_lock);
    if (d->listen != NULL) {
        d->listen(d->listen_arg);
    }
    pthread_mutex_unlock(&d->listen_lock);
}

void kv_disk_listen(struct kv_disk *d, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&d->listen_lock);
    d->listen = fn;
    d->listen_arg = arg;
    pthread_mutex_unlock(&d->listen_lock);
}

/* Adds the file to the index; if memory is out, it stays unknown. Call it under the lock. */
static void know(struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name, int64_t used_ns)
{
    const struct kv_file f = {.name = *name, .kind = kind, .bytes = file_bytes(d, kind), .used_ns = used_ns};
    (void)!kv_index_put(&d->index, &f);
}

/* Removes the file from the index. If memory is out, a scan under way is not used. Call it under the lock. */
static void forget(struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    const struct kv_file f = {.name = *name, .kind = kind, .bytes = file_bytes(d, kind)};
    kv_index_remove(&d->index, kind, name);
    if (d->is_scanning && kv_index_put(&d->gone, &f) != ERR_OK) {
        d->is_scanning = false;
    }
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Returns the slot of this stage that was queued first. Call it under the lock. */
static struct slot *oldest(struct kv_disk *d, enum direction dir, enum stage stage)
{
    struct slot *best = NULL;
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        for (int i = 0; i < d->n_slots[k]; i++) {
            struct slot *s = &d->slots[dir][k][i];
            best = s->stage == stage && (best == NULL || s->number < best->number) ? s : best;
        }
    }
    return best;
}

/* Reads the file and removes it if it is invalid. */
static enum err read_slot(struct kv_disk *d, struct slot *s)
{
    struct kv_disk_slot *o = &s->outside;
    char path[IO_MAX_PATH_BYTES];
    struct err_info why = {0};
    size_t n = d->cfg.bytes[o->what.kind];
    path_of_name(d, o->what.kind, &o->what.name, path);
    enum err err = io_read_exact(path, s->file, KV_SNAPSHOT_HEAD_BYTES + n, &why);
    bool is_bad =
        err == ERR_FILE || (err == ERR_OK && kv_snapshot_fault(&o->what, &d->cfg.fingerprint, s->file, n) != NULL);
    if (is_bad) {
        (void)io_remove(path);
    }
    pthread_mutex_lock(&d->lock);
    struct kv_file *f = kv_index_find(&d->index, o->what.kind, &o->what.name);
    if (err == ERR_OK && !is_bad) {
        d->stats.n_read++;
        d->stats.bytes_read += KV_SNAPSHOT_HEAD_BYTES + n;
        if (f != NULL) {
            note_use(d, f, o->depth);
        }
    } else {
        forget(d, o->what.kind, &o->what.name);
        d->stats.n_refused += is_bad;
        d->stats.n_read_errors += err == ERR_IO;
    }
    pthread_mutex_unlock(&d->lock);
    return is_bad ? ERR_NONE : err;
}

static void *reader_main(void *arg)
{
    struct kv_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->is_stopping) {
        struct slot *s = oldest(d, READS, QUEUED);
        if (s == NULL) {
            pthread_cond_wait(&d->wake[READS], &d->lock);
            continue;
        }
        s->stage = WORKING;
        pthread_mutex_unlock(&d->lock);
        enum err err = read_slot(d, s);
        pthread_mutex_lock(&d->lock);
        s->outside.err = err;
        s->stage = DONE;
        pthread_mutex_unlock(&d->lock);
        call_listener(d);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* --- the folder's contents ---------------------------------------------------------------------------------------- */

struct scan {
    struct kv_disk *d;
    struct kv_index found;
    int64_t latest_ns; /* later uses come from a clock that was set back since */
    bool has_later;
};

/* A file from the future would outlast all used ones: it counts as used now, and its time is updated. */
static void bound_use(struct scan *s, struct kv_file *f)
{
    if (f->used_ns > s->latest_ns) {
        f->used_ns = s->latest_ns;
        f->is_touched = s->has_later = true;
    }
}

static bool scan_entry(void *arg, const struct io_entry *e)
{
    struct scan *s = arg;
    struct kv_file f = {.bytes = e->bytes, .used_ns = e->mtime_ns};
    size_t n = strlen(e->name);
    if (n > 4 && strcmp(e->name + n - 4, ".tmp") == 0) {
        char path[IO_MAX_PATH_BYTES];
        path_of(s->d, e->name, path);
        (void)io_remove_abandoned(path); /* a working writer keeps its file */
        return true;
    }
    bound_use(s, &f);
    bool is_ours = n + 1 < IO_MAX_PATH_BYTES && kv_snapshot_of_file(e->name, &f.kind, &f.name) && f.bytes != 0;
    return !is_ours || (s->found.n < MAX_FILES && kv_index_put(&s->found, &f) == ERR_OK);
}

/* Rescans the folder. Uses not yet written to files stay known. If memory is out, nothing changes. */
static void rescan(struct kv_disk *d)
{
    struct scan s = {.d = d, .latest_ns = use_now(0)};
    struct err_info ignored;
    pthread_mutex_lock(&d->lock);
    d->is_scanning = true;
    pthread_mutex_unlock(&d->lock);
    bool is_read = io_walk_folder(d->path, scan_entry, &s, &ignored) == ERR_OK;
    pthread_mutex_lock(&d->lock);
    d->scanned_at = clock_now_ns();
    if (is_read && d->is_scanning) {
        for (size_t i = 0; i < d->gone.n; i++) {
            kv_index_remove(&s.found, d->gone.files[i].kind, &d->gone.files[i].name);
        }
        for (size_t i = 0; i < d->index.n; i++) {
            const struct kv_file *old = &d->index.files[i];
            struct kv_file *f = old->is_touched ? kv_index_find(&s.found, old->kind, &old->name) : NULL;
            if (f != NULL) {
                f->used_ns = MAX_OF(f->used_ns, old->used_ns);
                f->is_touched = true;
                bound_use(&s, f);
            }
        }
        d->has_touched = d->has_touched || s.has_later;
        struct kv_index old = d->index;
        d->index = s.found;
        s.found = old;
    }
    d->is_scanning = false;
    kv_index_fini(&d->gone);
    pthread_mutex_unlock(&d->lock);
    kv_index_fini(&s.found);
}

/* Removes the least recently used files if the folder exceeds its limit. */
static void make_room(struct kv_disk *d)
{
    pthread_mutex_lock(&d->lock);
    bool is_over = d->index.bytes > d->cfg.limit_bytes || d->index.n >= MAX_FILES;
    bool is_old = clock_now_ns() - d->scanned_at > RESCAN_NS;
    pthread_mutex_unlock(&d->lock);
    if (is_over || is_old) {
        rescan(d);
    }
    pthread_mutex_lock(&d->lock);
    uint64_t limit = d->index.n >= MAX_FILES ? MIN_OF(d->cfg.limit_bytes, d->index.bytes) : d->cfg.limit_bytes;
    bool is_full = d->index.bytes > d->cfg.limit_bytes || d->index.n >= MAX_FILES;
    size_t n;
    struct kv_file *files = is_full ? kv_index_oldest(&d->index, limit - limit / ROOM_PART, &n) : NULL;
    for (size_t i = 0; files != NULL && i < n; i++) {
        kv_index_remove(&d->index, files[i].kind, &files[i].name);
    }
    d->stats.n_evicted += files != NULL ? n : 0;
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; files != NULL && i < n; i++) {
        char path[IO_MAX_PATH_BYTES];
        path_of_name(d, files[i].kind, &files[i].name, path);
        (void)io_remove(path);
    }
    mem_free(files);
}

/* Updates the files' times of use for other processes and the next start. */
static void touch_files(struct kv_disk *d)
{
    size_t n = TOUCHES;
    while (n == TOUCHES) {
        n = 0;
        pthread_mutex_lock(&d->lock);
        for (size_t i = 0; i < d->index.n && n < TOUCHES; i++) {
            if (d->index.files[i].is_touched) {
                d->touches[n++] = d->index.files[i];
                d->index.files[i].is_touched = false;
            }
        }
        d->has_touched = n == TOUCHES;
        d->touched_at = clock_now_ns();
        pthread_mutex_unlock(&d->lock);
        for (size_t i = 0; i < n; i++) {
            char path[IO_MAX_PATH_BYTES];
            path_of_name(d, d->touches[i].kind, &d->touches[i].name, path);
            (void)io_set_mtime(path, d->touches[i].used_ns);
        }
    }
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static enum err write_file(struct kv_disk *d, struct slot *s, struct err_info *why)
{
    struct kv_disk_slot *o = &s->outside;
    char path[IO_MAX_PATH_BYTES];
    size_t n = d->cfg.bytes[o->what.kind];
    struct io_writer w;
    path_of_name(d, o->what.kind, &o->what.name, path);
    kv_snapshot_seal(&o->what, &d->cfg.fingerprint, s->file, n);
    TRY(io_writer_open(&w, path, 0600, why));
    enum err err = io_writer_append(&w, s->file, KV_SNAPSHOT_HEAD_BYTES + n, why);
    if (err != ERR_OK) {
        io_writer_abort(&w);
        return err;
    }
    TRY(io_writer_commit(&w, IO_REPLACE, why));
    (void)io_set_mtime(path, use_now(o->depth));
    return ERR_OK;
}

static void tell(struct kv_disk *d, const struct err_info *why)
{
    char text[sizeof why->text + 64];
    snprintf(text, sizeof text, why != NULL ? "no snapshots are written for now: %s" : "snapshots are written again",
             why != NULL ? why->text : "");
    if (d->cfg.tell != NULL) {
        d->cfg.tell(d->cfg.tell_arg, text);
    }
}

static void write_slot(struct kv_disk *d, struct slot *s)
{
    struct err_info why = {0};
    const struct kv_snapshot what = s->outside.what;
    enum err err = kv_disk_is_paused(d) ? ERR_AGAIN : write_file(d, s, &why);
    pthread_mutex_lock(&d->lock);
    bool is_new = false;
    if (err == ERR_OK) {
        d->stats.n_written++;
        d->stats.bytes_written += file_bytes(d, what.kind);
        know(d, what.kind, &what.name, use_now(s->outside.depth));
        is_new = d->has_reported;
        d->has_reported = false;
    } else if (err != ERR_AGAIN) { /* ERR_AGAIN: another process is writing it */
        d->stats.n_write_errors++;
        d->paused_until = clock_now_ns() + PAUSE_NS;
        is_new = !d->has_reported;
        d->has_reported = true;
    }
    pthread_mutex_unlock(&d->lock);
    if (is_new) {
        tell(d, err == ERR_OK ? NULL : &why);
    }
    if (err == ERR_OK) {
        make_room(d);
    }
}

/* Waits for something to write, or until files' times must be updated. Call it under the lock. */
static void wait_for_work(struct kv_disk *d)
{
    if (d->has_touched) {
        struct timespec at = thread_until(clock_now_ns() + TOUCH_NS);
        (void)pthread_cond_timedwait(&d->wake[WRITES], &d->lock, &at);
    } else {
        pthread_cond_wait(&d->wake[WRITES], &d->lock);
    }
}

static void *writer_main(void *arg)
{
    struct kv_disk *d = arg;
    pid_t self = (pid_t)syscall(SYS_gettid);
    (void)setpriority(PRIO_PROCESS, (id_t)self, NICEST); /* must not slow down threads that compute */
    (void)syscall(SYS_ioprio_set, 1 /* 1: a thread */, self, IO_CLASS_IDLE << IO_CLASS_SHIFT);
    rescan(d);
    make_room(d);
    pthread_mutex_lock(&d->lock);
    for (;;) {
        bool is_due = d->has_touched && (d->is_stopping || clock_now_ns() - d->touched_at > TOUCH_NS);
        struct slot *s = oldest(d, WRITES, QUEUED);
        if (s == NULL && !is_due) {
            if (d->is_stopping) {
                break;
            }
            wait_for_work(d);
            continue;
        }
        if (s != NULL) {
            s->stage = WORKING;
        }
        pthread_mutex_unlock(&d->lock);
        if (is_due) {
            touch_files(d);
        }
        if (s != NULL) {
            write_slot(d, s);
            kv_disk_end_write(d, &s->outside, false);
            call_listener(d);
        }
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* --- the scheduler's side ----------------------------------------------------------------------------------------- */

enum err kv_disk_root(const struct kv_disk *d, const char *salt, struct kv_name *out)
{
    return kv_name_root(&d->key, &d->cfg.fingerprint, salt, out);
}

/* Returns whether the file exists. An unknown file can be another process's: then checks the folder, up to *looks_left
 * times. */
static bool find_file(struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name, int32_t depth,
                      int *looks_left)
{
    pthread_mutex_lock(&d->lock);
    struct kv_file *f = kv_index_find(&d->index, kind, name);
    if (f != NULL) {
        note_use(d, f, depth);
    }
    pthread_mutex_unlock(&d->lock);
    if (f != NULL || *looks_left == 0) {
        return f != NULL;
    }
    --*looks_left;
    char path[IO_MAX_PATH_BYTES];
    path_of_name(d, kind, name, path);
    if (!io_exists(path)) {
        return false;
    }
    ++*looks_left;
    pthread_mutex_lock(&d->lock);
    know(d, kind, name, use_now(depth));
    pthread_mutex_unlock(&d->lock);
    return true;
}

int32_t kv_disk_probe(struct kv_disk *d, const struct kv_name *names, int32_t n)
{
    int32_t n_found = 0;
    int looks = 1;
    while (n_found < n && find_file(d, KV_SNAPSHOT_PAGE, &names[n_found], n_found, &looks)) {
        n_found++;
    }
    looks = 4; /* prompts keep few states, at their end */
    while (d->cfg.bytes[KV_SNAPSHOT_STATE] != 0 && n_found > 0 &&
           !find_file(d, KV_SNAPSHOT_STATE, &names[n_found - 1], n_found - 1, &looks)) {
        n_found--;
    }
    return n_found;
}

bool kv_disk_has(struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    pthread_mutex_lock(&d->lock);
    bool has = kv_index_find(&d->index, kind, name) != NULL;
    pthread_mutex_unlock(&d->lock);
    return has;
}

static struct slot *take_free(struct kv_disk *d, enum direction dir, enum kv_snapshot_kind kind)
{
    for (int i = 0; i < d->n_slots[kind]; i++) {
        if (d->slots[dir][kind][i].stage == FREE) {
            d->slots[dir][kind][i].stage = FILLING;
            return &d->slots[dir][kind][i];
        }
    }
    return NULL;
}

struct kv_disk_slot *kv_disk_begin_write(struct kv_disk *d, enum kv_snapshot_kind kind)
{
    pthread_mutex_lock(&d->lock);
    struct slot *s = take_free(d, WRITES, kind);
    pthread_mutex_unlock(&d->lock);
    return s != NULL ? &s->outside : NULL;
}

void kv_disk_end_write(struct kv_disk *d, struct kv_disk_slot *slot, bool is_filled)
{
    struct slot *s = (struct slot *)slot;
    pthread_mutex_lock(&d->lock);
    s->stage = is_filled ? QUEUED : FREE;
    s->number = ++d->next_number;
    pthread_cond_signal(&d->wake[WRITES]);
    pthread_mutex_unlock(&d->lock);
}

bool kv_disk_is_paused(struct kv_disk *d)
{
    pthread_mutex_lock(&d->lock);
    bool is_paused = clock_now_ns() < d->paused_until;
    pthread_mutex_unlock(&d->lock);
    return is_paused;
}

bool kv_disk_ask(struct kv_disk *d, const struct kv_snapshot *what, int32_t depth, uint64_t ticket)
{
    pthread_mutex_lock(&d->lock);
    struct slot *s = take_free(d, READS, what->kind);
    if (s != NULL) {
        s->outside.what = *what;
        s->outside.depth = depth;
        s->outside.ticket = ticket;
        s->number = ++d->next_number;
        s->stage = QUEUED;
        pthread_cond_signal(&d->wake[READS]);
    }
    pthread_mutex_unlock(&d->lock);
    return s != NULL;
}

struct kv_disk_slot *kv_disk_take(struct kv_disk *d)
{
    pthread_mutex_lock(&d->lock);
    struct slot *s = oldest(d, READS, DONE);
    if (s != NULL) {
        s->stage = FILLING;
    }
    pthread_mutex_unlock(&d->lock);
    return s != NULL ? &s->outside : NULL;
}

void kv_disk_give(struct kv_disk *d, struct kv_disk_slot *slot)
{
    pthread_mutex_lock(&d->lock);
    ((struct slot *)slot)->stage = FREE;
    pthread_mutex_unlock(&d->lock);
}

void kv_disk_count(struct kv_disk *d, enum kv_disk_count what, uint64_t n)
{
    pthread_mutex_lock(&d->lock);
    d->counts[what] += n;
    pthread_mutex_unlock(&d->lock);
}

void kv_disk_get_stats(struct kv_disk *d, struct kv_disk_stats *out)
{
    pthread_mutex_lock(&d->lock);
    *out = d->stats;
    out->files = d->index.n;
    out->bytes = d->index.bytes;
    out->limit_bytes = d->cfg.limit_bytes;
    out->n_late = d->counts[KV_DISK_LATE];
    out->n_dropped = d->counts[KV_DISK_DROPPED];
    out->restored_tokens = d->counts[KV_DISK_RESTORED];
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        for (int i = 0; i < d->n_slots[k]; i++) {
            out->pending += d->slots[WRITES][k][i].stage != FREE;
        }
    }
    pthread_mutex_unlock(&d->lock);
}

/* --- start and end ------------------------------------------------------------------------------------------------ */

/* Reads the folder's key, or makes it. */
static enum err open_key(struct kv_disk *d, struct err_info *info)
{
    char path[IO_MAX_PATH_BYTES];
    struct io_writer w;
    path_of(d, "key", path);
    enum err err = io_read_exact(path, &d->key, sizeof d->key, info);
    if (err != ERR_NONE && err != ERR_FILE) {
        return err;
    }
    if (getrandom(&d->key, sizeof d->key, 0) != (ssize_t)sizeof d->key) {
        return err_set(info, ERR_IO, NULL, "no random numbers: %s", strerror(errno));
    }
    bool replaces = err == ERR_FILE; /* cut: snapshots of the old key are lost */
    err = io_writer_open(&w, path, 0600, info);
    if (err == ERR_OK && (err = io_writer_append(&w, &d->key, sizeof d->key, info)) != ERR_OK) {
        io_writer_abort(&w);
    }
    err = err == ERR_OK ? io_writer_commit(&w, IO_SYNC | (replaces ? IO_REPLACE : 0u), info) : err;
    struct timespec pause = {.tv_nsec = 10000000};
    struct err_info ignored;
    for (int i = 0; i < 100; i++) { /* another process can be making the key: retry */
        if (io_read_exact(path, &d->key, sizeof d->key, &ignored) == ERR_OK) {
            return ERR_OK;
        }
        if (err != ERR_AGAIN) {
            break;
        }
        nanosleep(&pause, NULL);
    }
    return err != ERR_OK ? err : err_set(info, ERR_IO, NULL, "%s cannot be read again", path);
}

static enum err make_slots(struct kv_disk *d)
{
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        if (k == KV_SNAPSHOT_STATE && d->cfg.bytes[k] == 0) {
            continue;
        }
        size_t bytes = file_bytes(d, (enum kv_snapshot_kind)k);
        d->n_slots[k] = (int)MIN_OF(MAX_OF((size_t)SLOTS_BYTES / bytes, (size_t)MIN_SLOTS), (size_t)MAX_SLOTS);
        for (int dir = 0; dir < DIRECTIONS; dir++) {
            struct slot *slots = mem_zalloc_array((size_t)d->n_slots[k], sizeof *slots, MEM_KV);
            d->slots[dir][k] = slots;
            TRY_MEM(slots != NULL);
            for (int i = 0; i < d->n_slots[k]; i++) {
                slots[i].file = mem_map(bytes, MEM_KV); /* takes memory on first use */
                TRY_MEM(slots[i].file != NULL);
                slots[i].outside.payload = slots[i].file + KV_SNAPSHOT_HEAD_BYTES;
            }
        }
    }
    d->touches = mem_zalloc_array(TOUCHES, sizeof *d->touches, MEM_KV);
    TRY_MEM(d->touches != NULL);
    return ERR_OK;
}

static void free_slots(struct kv_disk *d)
{
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        for (int dir = 0; dir < DIRECTIONS; dir++) {
            for (int i = 0; d->slots[dir][k] != NULL && i < d->n_slots[k]; i++) {
                mem_unmap(d->slots[dir][k][i].file, file_bytes(d, (enum kv_snapshot_kind)k), MEM_KV);
            }
            mem_free(d->slots[dir][k]);
        }
    }
    mem_free(d->touches);
}

static enum err start_threads(struct kv_disk *d, struct err_info *info)
{
    void *(*const mains[DIRECTIONS])(void *) = {[READS] = reader_main, [WRITES] = writer_main};
    int rc = 0;
    while (rc == 0 && d->n_started < DIRECTIONS) {
        rc = thread_start(&d->threads[d->n_started], NULL, mains[d->n_started], d);
        d->n_started += rc == 0;
    }
    return rc == 0 ? ERR_OK
                   : err_set(info, ERR_INTERNAL, NULL, "cannot start a thread for snapshots: %s", strerror(rc));
}

static enum err open_all(struct kv_disk *d, struct err_info *info)
{
    uint64_t least = 0;
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        least = MAX_OF(least, (uint64_t)file_bytes(d, (enum kv_snapshot_kind)k) * ROOM_PART);
    }
    if (d->cfg.limit_bytes < least) {
        return err_set(info, ERR_CONFIG, "cache-disk-mib",
                       "cache-disk-mib: expected %llu or more for snapshots of this model, found %llu",
                       (unsigned long long)(least >> 20) + 1, (unsigned long long)d->cfg.limit_bytes >> 20);
    }
    struct err_info why = {0};
    if (io_private_folder(d->path, &why) != ERR_OK) {
        return err_set(info, ERR_CONFIG, "cache-dir", "cache-dir: %.400s", why.text);
    }
    TRY(open_key(d, info));
    TRY_MEM_FOR(make_slots(d) == ERR_OK, info, "out of memory for snapshots");
    return start_threads(d, info);
}

enum err kv_disk_open(const struct kv_disk_config *cfg, struct kv_disk **out, struct err_info *info)
{
    *out = NULL;
    size_t n = strlen(cfg->path);
    if (n + KV_SNAPSHOT_FILE_BYTES + 8 > IO_MAX_PATH_BYTES) {
        return err_set(info, ERR_CONFIG, "cache-dir", "cache-dir: expected a path of less than %d bytes, found %zu",
                       IO_MAX_PATH_BYTES - KV_SNAPSHOT_FILE_BYTES - 8, n);
    }
    struct kv_disk *d = mem_zalloc(sizeof *d, MEM_KV);
    TRY_MEM_FOR(d != NULL, info, "out of memory for snapshots");
    d->cfg = *cfg;
    memcpy(d->path, cfg->path, n + 1);
    d->cfg.path = d->path;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->listen_lock, NULL);
    for (int i = 0; i < DIRECTIONS; i++) {
        thread_cond_init(&d->wake[i]);
    }
    enum err err = open_all(d, info);
    if (err != ERR_OK) {
        kv_disk_close(&d);
        return err;
    }
    *out = d;
    return ERR_OK;
}

void kv_disk_close(struct kv_disk **disk)
{
    struct kv_disk *d = *disk;
    if (d == NULL) {
        return;
    }
    pthread_mutex_lock(&d->lock);
    d->is_stopping = true;
    for (int i = 0; i < DIRECTIONS; i++) {
        pthread_cond_signal(&d->wake[i]);
    }
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->n_started; i++) {
        pthread_join(d->threads[i], NULL);
    }
    for (int i = 0; i < DIRECTIONS; i++) {
        pthread_cond_destroy(&d->wake[i]);
    }
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->listen_lock);
    free_slots(d);
    kv_index_fini(&d->index);
    mem_free(d);
    *disk = NULL;
}
