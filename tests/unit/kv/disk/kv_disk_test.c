/* The folder of snapshots: what is written is read again, by the next process too; what was cut, changed or planted counts as absent and
 * goes; a disk that is full or fails is told of once; two processes share a folder. */
#include "engine/kv/disk/kv_disk.h"

#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "tests/support/folder.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

Suite *kv_disk_suite(void);

enum { PAGE = 80, STATE = 24, FILE_BYTES = KV_SNAPSHOT_HEAD_BYTES + PAGE };

static atomic_int n_told;

static void on_told(void *arg, const char *text)
{
    (void)arg;
    ck_assert(strstr(text, "snapshots") != NULL);
    atomic_fetch_add(&n_told, 1);
}

static struct kv_disk *open_disk(uint64_t limit_bytes, uint8_t model)
{
    struct kv_disk *d;
    struct err_info info = {0};
    struct kv_disk_config cfg = {.path = folder_file("cache"),
                                 .limit_bytes = limit_bytes,
                                 .fingerprint = {{model}},
                                 .bytes = {PAGE, STATE},
                                 .tell = on_told};
    ck_assert_msg(kv_disk_open(&cfg, &d, &info) == ERR_OK, "%s", info.text);
    return d;
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* The n-th page of a chain, and its payload. */
static struct kv_snapshot page_of(const struct kv_disk *d, int n, enum kv_snapshot_kind kind)
{
    struct kv_snapshot s = {.kind = kind};
    struct kv_name parent;
    ck_assert_int_eq(kv_disk_root(d, "salt", &parent), ERR_OK);
    for (int i = 0; i <= n; i++) {
        for (int k = 0; k < KV_PAGE_TOKENS; k++) {
            s.tokens[k] = i * 100 + k;
        }
        ck_assert_int_eq(kv_name_child(&parent, s.tokens, &s.name), ERR_OK);
        parent = s.name;
    }
    return s;
}

static void write_one(struct kv_disk *d, int n, enum kv_snapshot_kind kind)
{
    struct kv_disk_slot *slot;
    while ((slot = kv_disk_begin_write(d, kind)) == NULL) {
        pause_ms(1);
    }
    slot->what = page_of(d, n, kind);
    slot->depth = n;
    memset(slot->payload, n + 1, kind == KV_SNAPSHOT_PAGE ? PAGE : STATE);
    kv_disk_end_write(d, slot, true);
}

static struct kv_disk_stats stats_of(struct kv_disk *d)
{
    struct kv_disk_stats s;
    kv_disk_get_stats(d, &s);
    return s;
}

static void wait_written(struct kv_disk *d, uint64_t n)
{
    for (int i = 0; i < 5000 && stats_of(d).n_written + stats_of(d).n_write_errors < n; i++) {
        pause_ms(1);
    }
    ck_assert_uint_ge(stats_of(d).n_written + stats_of(d).n_write_errors, n);
}

/* What reading gives; the payload is looked at. */
static enum err read_one(struct kv_disk *d, int n, enum kv_snapshot_kind kind)
{
    const struct kv_snapshot what = page_of(d, n, kind);
    ck_assert(kv_disk_ask(d, &what, n, 77));
    struct kv_disk_slot *slot;
    while ((slot = kv_disk_take(d)) == NULL) {
        pause_ms(1);
    }
    enum err err = slot->err;
    ck_assert_uint_eq(slot->ticket, 77);
    for (int i = 0; err == ERR_OK && i < (kind == KV_SNAPSHOT_PAGE ? PAGE : STATE); i++) {
        ck_assert_int_eq(((unsigned char *)slot->payload)[i], n + 1);
    }
    kv_disk_give(d, slot);
    return err;
}

static const char *path_of(const struct kv_disk *d, int n, enum kv_snapshot_kind kind)
{
    static char path[4096];
    char file[KV_SNAPSHOT_FILE_BYTES];
    struct kv_snapshot s = page_of(d, n, kind);
    kv_snapshot_file(kind, &s.name, file);
    snprintf(path, sizeof path, "%s/%s", folder_file("cache"), file);
    return path;
}

static void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(what_was_written_is_read_by_the_next_process)
{
    struct kv_disk *d = open_disk(1 << 20, 1);
    write_one(d, 0, KV_SNAPSHOT_PAGE);
    write_one(d, 1, KV_SNAPSHOT_PAGE);
    write_one(d, 1, KV_SNAPSHOT_STATE);
    kv_disk_close(&d); /* writes what was handed on */
    d = open_disk(1 << 20, 1);
    struct kv_name names[3] = {page_of(d, 0, KV_SNAPSHOT_PAGE).name, page_of(d, 1, KV_SNAPSHOT_PAGE).name,
                               page_of(d, 2, KV_SNAPSHOT_PAGE).name};
    ck_assert_int_eq(kv_disk_probe(d, names, 3), 2);
    ck_assert_int_eq(kv_disk_probe(d, names, 1), 0); /* a state is after the second alone */
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_OK);
    ck_assert_int_eq(read_one(d, 1, KV_SNAPSHOT_PAGE), ERR_OK);
    ck_assert_int_eq(read_one(d, 1, KV_SNAPSHOT_STATE), ERR_OK);
    ck_assert_int_eq(read_one(d, 2, KV_SNAPSHOT_PAGE), ERR_NONE);
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_STATE), ERR_NONE);
    struct kv_disk_stats s = stats_of(d);
    ck_assert(s.n_read == 3 && s.n_refused == 0 && s.n_read_errors == 0);
    struct stat st;
    ck_assert(stat(path_of(d, 0, KV_SNAPSHOT_PAGE), &st) == 0 && (st.st_mode & 0777) == 0600);
    ck_assert(stat(folder_file("cache"), &st) == 0 && (st.st_mode & 0777) == 0700);
    ck_assert(stat(folder_file("cache/key"), &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_size == KV_NAME_BYTES);
    kv_disk_close(&d);
    d = open_disk(1 << 20, 2); /* another model sees nothing of it */
    names[0] = page_of(d, 0, KV_SNAPSHOT_PAGE).name;
    ck_assert_int_eq(kv_disk_probe(d, names, 1), 0);
    kv_disk_close(&d);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* A file of every length, with every byte another one, of another page, of another model, and what is no file. */
START_TEST(what_is_not_as_it_was_counts_as_absent_and_goes)
{
    unsigned char good[FILE_BYTES + 1] = {0}, bad[FILE_BYTES + 1];
    struct kv_disk *d = open_disk(1 << 20, 1);
    write_one(d, 0, KV_SNAPSHOT_PAGE);
    write_one(d, 1, KV_SNAPSHOT_PAGE);
    wait_written(d, 2);
    ck_assert_uint_eq(folder_read(path_of(d, 0, KV_SNAPSHOT_PAGE), (char *)good, FILE_BYTES + 1), FILE_BYTES);
    uint64_t n_refused = 0;
    for (size_t n = 0; n <= FILE_BYTES + 1; n++) {
        put_file(path_of(d, 0, KV_SNAPSHOT_PAGE), good, n);
        ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), n == FILE_BYTES ? ERR_OK : ERR_NONE);
        n_refused += n != FILE_BYTES;
    }
    for (size_t i = 0; i < FILE_BYTES; i++) {
        memcpy(bad, good, sizeof bad);
        bad[i] ^= (unsigned char)(1 + i % 255);
        put_file(path_of(d, 0, KV_SNAPSHOT_PAGE), bad, FILE_BYTES);
        ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_NONE);
        ck_assert(access(path_of(d, 0, KV_SNAPSHOT_PAGE), F_OK) != 0);
        n_refused++;
    }
    put_file(path_of(d, 2, KV_SNAPSHOT_PAGE), good, FILE_BYTES); /* whole, but of other tokens */
    ck_assert_int_eq(read_one(d, 2, KV_SNAPSHOT_PAGE), ERR_NONE);
    ck_assert_int_eq(mkfifo(path_of(d, 0, KV_SNAPSHOT_PAGE), 0600), 0);
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_NONE);
    put_file(folder_file("elsewhere"), good, FILE_BYTES);
    ck_assert_int_eq(symlink(folder_file("elsewhere"), path_of(d, 0, KV_SNAPSHOT_PAGE)), 0);
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_NONE);
    ck_assert(access(folder_file("elsewhere"), F_OK) == 0);
    ck_assert_uint_eq(stats_of(d).n_refused, n_refused + 3);
    ck_assert_int_eq(read_one(d, 1, KV_SNAPSHOT_PAGE), ERR_OK);
    kv_disk_close(&d);
    folder_remove();
}
END_TEST

/* The scan at the start can have seen a file that a read removes before the scan ends. The folder has many files, so that it takes
 * longer than the read. */
START_TEST(what_a_read_removes_during_a_scan_is_not_known_again)
{
    enum { OTHERS = 2000, TRIES = 20 };
    struct kv_disk *d = open_disk(1 << 20, 1);
    char path[4096];
    for (int i = 0; i < OTHERS; i++) {
        snprintf(path, sizeof path, "%s/%064x.page", folder_file("cache"), i);
        put_file(path, "", 1);
    }
    for (int i = 0; i < TRIES; i++) {
        put_file(path_of(d, i, KV_SNAPSHOT_PAGE), "cut", 3);
        kv_disk_close(&d);
        d = open_disk(1 << 20, 1);
        const struct kv_snapshot what = page_of(d, i, KV_SNAPSHOT_PAGE);
        nanosleep(&(struct timespec){.tv_nsec = i * 50000}, NULL); /* now before the scan, now within it */
        ck_assert_int_eq(read_one(d, i, KV_SNAPSHOT_PAGE), ERR_NONE);
        while (stats_of(d).files == 0) {
            pause_ms(1);
        }
        ck_assert(!kv_disk_has(d, what.kind, &what.name));
        ck_assert_uint_eq(stats_of(d).files, OTHERS);
    }
    kv_disk_close(&d);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(a_key_that_was_cut_is_made_anew)
{
    struct kv_disk *d = open_disk(1 << 20, 1);
    struct kv_name first, again;
    ck_assert_int_eq(kv_disk_root(d, NULL, &first), ERR_OK);
    kv_disk_close(&d);
    d = open_disk(1 << 20, 1);
    ck_assert_int_eq(kv_disk_root(d, NULL, &again), ERR_OK);
    ck_assert_mem_eq(&first, &again, sizeof first);
    kv_disk_close(&d);
    put_file(folder_file("cache/key"), "short", 5);
    d = open_disk(1 << 20, 1);
    ck_assert_int_eq(kv_disk_root(d, NULL, &again), ERR_OK);
    ck_assert_mem_ne(&first, &again, sizeof first);
    kv_disk_close(&d);
    folder_remove();
}
END_TEST

START_TEST(a_folder_that_others_may_read_is_refused)
{
    struct kv_disk *d;
    struct err_info info = {0};
    struct kv_disk_config cfg = {.path = folder_file("cache"), .limit_bytes = 1 << 20, .bytes = {PAGE, 0}};
    ck_assert_int_eq(mkdir(cfg.path, 0700), 0);
    ck_assert_int_eq(chmod(cfg.path, 0750), 0);
    ck_assert_int_eq(kv_disk_open(&cfg, &d, &info), ERR_CONFIG);
    ck_assert(strncmp(info.text, "cache-dir: /", 12) == 0 && strstr(info.text, "0700") != NULL &&
              strstr(info.text, "0750") != NULL);
    cfg.path = folder_write_text("file", "x");
    ck_assert_int_eq(kv_disk_open(&cfg, &d, &info), ERR_CONFIG);
    cfg.path = folder_file("no/folder");
    ck_assert_int_eq(kv_disk_open(&cfg, &d, &info), ERR_CONFIG);
    cfg.path = folder_file("small");
    cfg.limit_bytes = 1000;
    ck_assert_int_eq(kv_disk_open(&cfg, &d, &info), ERR_CONFIG);
    ck_assert(strstr(info.text, "cache-disk-mib") != NULL);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* Every system call of a write fails once: the file is there as a whole or not at all, and it is told once. */
START_TEST(a_disk_that_fails_stops_snapshots_and_nothing_else)
{
    static const int codes[] = {ENOSPC, EIO, EROFS};
    bool was_there[2] = {false};
    for (long n = 0;; n++) {
        atomic_store(&n_told, 0);
        struct kv_disk *d = open_disk(1 << 20, 1);
        pause_ms(2); /* its first look at the folder */
        io_fail_at(n, codes[n % 3]);
        write_one(d, 0, KV_SNAPSHOT_PAGE);
        wait_written(d, 1);
        bool fired = io_fault_fired();
        struct kv_disk_stats s = stats_of(d);
        io_fail_at(-1, 0);
        if (s.n_write_errors != 0) {
            ck_assert(kv_disk_is_paused(d));
            pause_ms(5);
            ck_assert_int_eq(atomic_load(&n_told), 1);
        }
        ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), s.n_write_errors != 0 ? ERR_NONE : ERR_OK);
        was_there[s.n_write_errors == 0] = true;
        kv_disk_close(&d);
        folder_clear();
        if (!fired) {
            break;
        }
    }
    ck_assert(was_there[0] && was_there[1]);
    folder_remove();
}
END_TEST

START_TEST(a_read_that_fails_is_no_reason_to_remove_the_file)
{
    struct kv_disk *d = open_disk(1 << 20, 1);
    write_one(d, 0, KV_SNAPSHOT_PAGE);
    wait_written(d, 1);
    pause_ms(5);
    for (long n = 0; n < 3; n++) { /* open, fstat, read */
        io_fail_at(n, EIO);
        ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_IO);
        ck_assert(io_fault_fired());
    }
    io_fail_at(-1, 0);
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_OK);
    ck_assert_uint_eq(stats_of(d).n_read_errors, 3);
    kv_disk_close(&d);
    folder_remove();
}
END_TEST

/* Pages of 0..n) that are there, if those that are not come after them; else -1. */
static int count_pages(const struct kv_disk *d, int n)
{
    int n_there = 0;
    for (int i = 0; i < n; i++) {
        bool is_there = access(path_of(d, i, KV_SNAPSHOT_PAGE), F_OK) == 0;
        if (is_there && i != n_there) {
            return -1;
        }
        n_there += is_there;
    }
    return n_there;
}

START_TEST(the_least_used_goes_and_of_one_prompt_the_end)
{
    enum { ROOM = 20 };
    struct kv_disk *d = open_disk(ROOM * FILE_BYTES, 1);
    for (int i = 0; i < ROOM; i++) {
        write_one(d, i, KV_SNAPSHOT_PAGE);
    }
    wait_written(d, ROOM);
    ck_assert_uint_eq(stats_of(d).n_evicted, 0);
    write_one(d, ROOM, KV_SNAPSHOT_PAGE);
    wait_written(d, ROOM + 1);
    for (int i = 0; i < 1000 && stats_of(d).n_evicted == 0; i++) {
        pause_ms(1);
    }
    struct kv_disk_stats s = stats_of(d);
    ck_assert_uint_ge(s.n_evicted, 2); /* some room is made */
    ck_assert_uint_le(s.bytes, ROOM * FILE_BYTES);
    for (int i = 0; i < 1000 && count_pages(d, ROOM + 1) != (int)s.files;
         i++) { /* they are forgotten first, and then removed */
        pause_ms(1);
    }
    int n_left = count_pages(d, ROOM + 1);
    ck_assert_int_eq(n_left, (int)s.files);
    kv_disk_close(&d);
    folder_remove();
}
END_TEST

START_TEST(what_is_used_is_told_to_its_file)
{
    struct kv_disk *d = open_disk(1 << 20, 1);
    write_one(d, 0, KV_SNAPSHOT_PAGE);
    wait_written(d, 1);
    char path[4096];
    snprintf(path, sizeof path, "%s", path_of(d, 0, KV_SNAPSHOT_PAGE));
    kv_disk_close(&d);
    ck_assert_int_eq(io_set_mtime(path, 1000000000), ERR_OK);
    d = open_disk(1 << 20, 1);
    struct kv_name name = page_of(d, 0, KV_SNAPSHOT_PAGE).name;
    for (int i = 0; i < 1000 && !kv_disk_has(d, KV_SNAPSHOT_PAGE, &name); i++) {
        pause_ms(1);
    }
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_OK);
    kv_disk_close(&d);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_gt(st.st_mtime, 1000000);
    folder_remove();
}
END_TEST

/* The clock was ten years ahead, or is ten after now. */
START_TEST(files_from_the_future_go_in_their_turn)
{
    enum { OLD = 4, ROOM = 20 };
    struct kv_disk *d = open_disk(ROOM * FILE_BYTES, 1);
    char old[OLD][4096];
    for (int i = 0; i < OLD; i++) {
        write_one(d, i, KV_SNAPSHOT_PAGE);
        snprintf(old[i], sizeof old[i], "%s", path_of(d, i, KV_SNAPSHOT_PAGE));
    }
    wait_written(d, OLD);
    kv_disk_close(&d);
    int64_t future = (clock_unix_seconds() + 10 * 365 * 86400) * 1000000000;
    for (int i = 0; i < OLD; i++) {
        ck_assert_int_eq(io_set_mtime(old[i], future), ERR_OK);
    }
    d = open_disk(ROOM * FILE_BYTES, 1);
    kv_disk_close(&d); /* which tells files that they were used */
    for (int i = 0; i < OLD; i++) {
        struct stat st;
        ck_assert_int_eq(stat(old[i], &st), 0);
        ck_assert_int_le(st.st_mtime, clock_unix_seconds() + 64);
        ck_assert_int_eq(io_set_mtime(old[i], (int64_t)(st.st_mtime - 128) * 1000000000),
                         ERR_OK); /* two minutes pass */
    }
    d = open_disk(ROOM * FILE_BYTES, 1);
    for (int i = OLD; i <= ROOM; i++) { /* one too many: the oldest go, and those are these */
        write_one(d, i, KV_SNAPSHOT_PAGE);
    }
    wait_written(d, ROOM - OLD + 1);
    for (int i = 0; i < 1000 && stats_of(d).n_evicted == 0; i++) {
        pause_ms(1);
    }
    uint64_t n_evicted = stats_of(d).n_evicted;
    kv_disk_close(&d);
    int n_gone = 0;
    for (int i = 0; i < OLD; i++) {
        n_gone += access(old[i], F_OK) != 0;
    }
    ck_assert_uint_ge(n_evicted, 1);
    ck_assert_int_eq(n_gone, (int)MIN_OF(n_evicted, (uint64_t)OLD));
    folder_remove();
}
END_TEST

/* Files appear and vanish under a process by what another does. */
START_TEST(two_processes_share_a_folder)
{
    struct kv_disk *a = open_disk(1 << 20, 1), *b = open_disk(1 << 20, 1);
    struct kv_name names[2] = {page_of(a, 0, KV_SNAPSHOT_PAGE).name, page_of(b, 1, KV_SNAPSHOT_PAGE).name};
    pause_ms(5);
    write_one(a, 0, KV_SNAPSHOT_PAGE);
    write_one(a, 0, KV_SNAPSHOT_STATE);
    write_one(a, 1, KV_SNAPSHOT_PAGE);
    write_one(a, 1, KV_SNAPSHOT_STATE);
    wait_written(a, 4);
    ck_assert_int_eq(kv_disk_probe(b, names, 2), 2);
    ck_assert_int_eq(read_one(b, 1, KV_SNAPSHOT_PAGE), ERR_OK);
    ck_assert_int_eq(unlink(path_of(a, 1, KV_SNAPSHOT_PAGE)), 0);
    ck_assert_int_eq(read_one(a, 1, KV_SNAPSHOT_PAGE), ERR_NONE); /* a knew it */
    ck_assert(!kv_disk_has(a, KV_SNAPSHOT_PAGE, &names[1]));
    ck_assert_int_eq(kv_disk_probe(a, names, 2), 1);
    ck_assert_uint_eq(stats_of(a).n_read_errors + stats_of(a).n_refused, 0);
    for (int i = 0; i < 50; i++) { /* the same files at the same time */
        write_one(a, i, KV_SNAPSHOT_PAGE);
        write_one(b, i, KV_SNAPSHOT_PAGE);
    }
    kv_disk_close(&a);
    kv_disk_close(&b);
    a = open_disk(1 << 20, 1);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(read_one(a, i, KV_SNAPSHOT_PAGE), ERR_OK);
    }
    kv_disk_close(&a);
    folder_remove();
}
END_TEST

/* Of any age; what is being written stays. */
START_TEST(what_a_dead_process_left_half_written_goes)
{
    struct kv_disk *d = open_disk(1 << 20, 1);
    char held[4096], left[3][4096];
    const int64_t ages_s[] = {0, 1000000000, -10 * 365 * 86400};
    snprintf(held, sizeof held, "%s.tmp", path_of(d, 0, KV_SNAPSHOT_PAGE));
    for (int i = 0; i < 3; i++) {
        snprintf(left[i], sizeof left[i], "%s.tmp", path_of(d, i + 1, KV_SNAPSHOT_PAGE));
    }
    kv_disk_close(&d);
    put_file(held, "half", 4);
    int fd = open(held, O_WRONLY);
    ck_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
    for (int i = 0; i < 3; i++) {
        put_file(left[i], "half", 4);
        ck_assert_int_eq(io_set_mtime(left[i], (clock_unix_seconds() - ages_s[i]) * 1000000000), ERR_OK);
    }
    d = open_disk(1 << 20, 1);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 5000 && access(left[i], F_OK) == 0; k++) {
            pause_ms(1);
        }
        ck_assert(access(left[i], F_OK) != 0);
    }
    write_one(d, 1, KV_SNAPSHOT_PAGE);
    wait_written(d, 1);
    ck_assert_int_eq(read_one(d, 1, KV_SNAPSHOT_PAGE), ERR_OK);
    ck_assert_int_eq(access(held, F_OK), 0);
    close(fd);
    write_one(d, 0, KV_SNAPSHOT_PAGE); /* takes it over */
    wait_written(d, 2);
    ck_assert_int_eq(read_one(d, 0, KV_SNAPSHOT_PAGE), ERR_OK);
    kv_disk_close(&d);
    folder_remove();
}
END_TEST

START_TEST(failed_allocations_leave_nothing)
{
    struct kv_disk_config cfg = {.path = folder_file("cache"), .limit_bytes = 1 << 20, .bytes = {PAGE, STATE}};
    for (long n = 0;; n++) {
        struct kv_disk *d;
        struct err_info info = {0};
        mem_fail_at(n);
        enum err err = kv_disk_open(&cfg, &d, &info);
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert(err == ERR_OK || (err == ERR_NOMEM && fired));
        kv_disk_close(&d);
        ck_assert_uint_eq(mem_live(), 0);
        if (!fired) {
            break;
        }
    }
    folder_remove();
}
END_TEST

Suite *kv_disk_suite(void)
{
    Suite *s = suite_create("kv_disk");
    TCase *c = tcase_create("kv_disk");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, what_was_written_is_read_by_the_next_process);
    tcase_add_test(c, what_is_not_as_it_was_counts_as_absent_and_goes);
    tcase_add_test(c, what_a_read_removes_during_a_scan_is_not_known_again);
    tcase_add_test(c, a_key_that_was_cut_is_made_anew);
    tcase_add_test(c, a_folder_that_others_may_read_is_refused);
    tcase_add_test(c, a_disk_that_fails_stops_snapshots_and_nothing_else);
    tcase_add_test(c, a_read_that_fails_is_no_reason_to_remove_the_file);
    tcase_add_test(c, the_least_used_goes_and_of_one_prompt_the_end);
    tcase_add_test(c, what_is_used_is_told_to_its_file);
    tcase_add_test(c, files_from_the_future_go_in_their_turn);
    tcase_add_test(c, two_processes_share_a_folder);
    tcase_add_test(c, what_a_dead_process_left_half_written_goes);
    tcase_add_test(c, failed_allocations_leave_nothing);
    suite_add_tcase(s, c);
    return s;
}
