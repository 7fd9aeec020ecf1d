/* Files: maps, whole reads, limits, things that are no files, and faults at each system call. */
#include "engine/base/io.h"

#include "tests/support/folder.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *io_suite(void);

static char path[64];

static void setup(void) { snprintf(path, sizeof path, "%s", folder_file("file")); }

/* A file of n bytes that count up. */
static void write_file(size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < n; i++) {
        fputc((int)(i % 251), f);
    }
    ck_assert_int_eq(fclose(f), 0);
}

static bool counts_up(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != i % 251) {
            return false;
        }
    }
    return true;
}

START_TEST(a_map_shows_the_file)
{
    static const size_t sizes[] = {0, 1, 4096, 100001};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        write_file(sizes[i]);
        struct io_map m;
        ck_assert_int_eq(io_map_open(path, &m, NULL), ERR_OK);
        ck_assert_uint_eq(m.bytes, sizes[i]);
        ck_assert((m.data == NULL) == (sizes[i] == 0));
        ck_assert(counts_up(m.data, m.bytes));
        io_map_drop(&m, 0, m.bytes);
        io_map_drop(&m, 1, 5000);              /* beyond a small file: nothing happens */
        ck_assert(counts_up(m.data, m.bytes)); /* dropped pages come back from the file */
        ck_assert(!io_map_shrunk(&m));
        if (sizes[i] > 0) {
            ck_assert_int_eq(truncate(path, (off_t)sizes[i] - 1), 0);
            ck_assert(io_map_shrunk(&m));
            ck_assert_int_eq(truncate(path, (off_t)sizes[i] + 10), 0);
            ck_assert(!io_map_shrunk(&m)); /* longer is no danger */
        }
        io_map_close(&m);
        ck_assert_int_eq(m.fd, -1);
        ck_assert_ptr_null(m.data);
        io_map_close(&m); /* twice does no harm */
        ck_assert(!io_map_shrunk(&m));
    }
}
END_TEST

START_TEST(reads_keep_to_the_limit)
{
    static const size_t sizes[] = {0, 1, 16384, 16385, 70000};
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        write_file(sizes[i]);
        buf_reset(&b);
        ck_assert_int_eq(io_read_file(path, sizes[i], &b, NULL), ERR_OK);
        ck_assert_uint_eq(b.len, sizes[i]);
        ck_assert(counts_up((const unsigned char *)b.data, b.len));
        struct err_info info = {0};
        buf_reset(&b);
        if (sizes[i] > 0) {
            ck_assert_int_eq(io_read_file(path, sizes[i] - 1, &b, &info), ERR_TOO_LARGE);
            ck_assert_int_eq(info.code, ERR_TOO_LARGE);
        }
    }
    buf_fini(&b);
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_without_waiting)
{
    struct io_map m;
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    const char *const paths[] = {folder_path(), path, "/dev/zero", "/dev/null", "", "/tmp/no/such/file"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct err_info info = {0};
        ck_assert_msg(io_map_open(paths[i], &m, &info) == ERR_FILE, "%s", paths[i]);
        ck_assert_int_eq(m.fd, -1);
        ck_assert_ptr_nonnull(strstr(info.text, "expected a re"));
        ck_assert_msg(io_read_file(paths[i], 100, &b, NULL) == ERR_FILE, "%s", paths[i]);
    }
    buf_fini(&b);
}
END_TEST

static int count_open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 64; fd++) {
        struct stat st;
        n += fstat(fd, &st) == 0;
    }
    return n;
}

START_TEST(every_call_may_fail)
{
    write_file(40000);
    int open_files = count_open_files();
    size_t live = mem_live();
    int n_faults = 0;
    bool fired = true;
    for (long n = 0; fired; n++) {
        struct io_map m;
        io_fail_at(n, EIO);
        enum err err = io_map_open(path, &m, NULL);
        fired = io_fault_fired();
        ck_assert_int_eq(err, !fired ? ERR_OK : n == 0 ? ERR_FILE : ERR_IO);
        io_map_close(&m);
        ck_assert_int_eq(count_open_files(), open_files);
        n_faults += fired;
    }
    ck_assert_int_eq(n_faults, 3); /* open, fstat, mmap */
    n_faults = 0;
    fired = true;
    for (long n = 0; fired; n++) {
        struct buf b;
        struct err_info info = {0};
        buf_init(&b, 0, MEM_GENERAL);
        io_fail_at(n, EIO);
        enum err err = io_read_file(path, 100000, &b, &info);
        fired = io_fault_fired();
        ck_assert_int_eq(err, !fired ? ERR_OK : n == 0 ? ERR_FILE : ERR_IO);
        ck_assert(!fired || strstr(info.text, strerror(EIO)) != NULL);
        buf_fini(&b);
        ck_assert_int_eq(count_open_files(), open_files);
        ck_assert_uint_eq(mem_live(), live);
        n_faults += fired;
    }
    ck_assert_int_eq(n_faults, 6); /* open, fstat, three blocks and the end */
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    io_fail_at(3, EINTR); /* a signal in the middle costs nothing */
    ck_assert_int_eq(io_read_file(path, 100000, &b, NULL), ERR_OK);
    ck_assert(io_fault_fired());
    ck_assert(b.len == 40000 && counts_up((const unsigned char *)b.data, b.len));
    buf_reset(&b);
    buf_fini(&b);
    buf_init(&b, 0, MEM_GENERAL);
    mem_fail_at(0);
    ck_assert_int_eq(io_read_file(path, 100000, &b, NULL), ERR_NOMEM);
    mem_fail_at(-1);
    buf_fini(&b);
    struct io_map m;
    io_fail_at(2, ENOMEM);
    ck_assert_int_eq(io_map_open(path, &m, NULL), ERR_NOMEM);
    io_fail_at(-1, 0);
    ck_assert_int_eq(count_open_files(), open_files);
}
END_TEST

/* --- replacing a file ------------------------------------------------------------------------------------------- */

static char tmp_path[80];

static void setup_tmp(void)
{
    setup();
    snprintf(tmp_path, sizeof tmp_path, "%s.tmp", path);
}

static void teardown_tmp(void)
{
    ck_assert_msg(access(tmp_path, F_OK) != 0, "%s was left behind", tmp_path);
    folder_remove();
}

/* What write_file(n) writes, in parts of 1, 0 and n - 1 bytes. */
static enum err replace(size_t n, struct err_info *info)
{
    unsigned char *bytes = malloc(n);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (unsigned char)(i % 251);
    }
    const struct io_part parts[] = {{bytes, 1}, {NULL, 0}, {bytes + 1, n - 1}};
    enum err err = io_replace_file(path, parts, ARRAY_LEN(parts), NULL, NULL, info);
    free(bytes);
    return err;
}

static size_t file_bytes(void)
{
    struct stat st;
    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

START_TEST(a_file_is_replaced)
{
    ck_assert_int_eq(replace(100000, NULL), ERR_OK);
    struct io_map old, new;
    ck_assert_int_eq(io_map_open(path, &old, NULL), ERR_OK);
    ck_assert_int_eq(replace(50, NULL), ERR_OK);
    ck_assert_int_eq(io_map_open(path, &new, NULL), ERR_OK);
    ck_assert(old.bytes == 100000 && counts_up(old.data, old.bytes) && !io_map_shrunk(&old));
    ck_assert(new.bytes == 50 && counts_up(new.data, new.bytes));
    io_map_close(&old);
    io_map_close(&new);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    FILE *f = fopen(tmp_path, "w"); /* as a process that died in the middle leaves it, longer than ours */
    ck_assert(f != NULL && fputs("left behind", f) >= 0 && fclose(f) == 0);
    ck_assert_int_eq(replace(5, NULL), ERR_OK);
    ck_assert_uint_eq(file_bytes(), 5);
}
END_TEST

START_TEST(replacing_fails_whole_at_any_step)
{
    static const int errnos[] = {EIO, ENOSPC, EROFS};
    int open_files = count_open_files();
    ck_assert_int_eq(replace(10, NULL), ERR_OK);
    for (size_t k = 0; k < ARRAY_LEN(errnos); k++) {
        long n = 0;
        for (bool fired = true; fired; n++) {
            struct err_info info = {0};
            ck_assert_int_eq(replace(10, NULL), ERR_OK);
            io_fail_at(n, errnos[k]);
            enum err err = replace(40, &info);
            fired = io_fault_fired();
            io_fail_at(-1, 0);
            ck_assert_int_eq(err, !fired ? ERR_OK : n == 0 ? ERR_FILE : ERR_IO);
            ck_assert(!fired || strstr(info.text, strerror(errnos[k])) != NULL);
            ck_assert_uint_eq(file_bytes(), fired ? 10 : 40);
            ck_assert_int_eq(access(tmp_path, F_OK), fired && n == 1 ? 0 : -1); /* not emptied: not ours to remove */
            ck_assert_int_eq(count_open_files(), open_files);
        }
        ck_assert_int_eq(n, 7); /* open, ftruncate, two writes, fsync, rename, and the good run */
    }
    io_fail_at(2, EINTR); /* a signal in the middle costs nothing */
    ck_assert_int_eq(replace(60, NULL), ERR_OK);
    ck_assert(io_fault_fired() && file_bytes() == 60);
    io_fail_at(-1, 0);
}
END_TEST

START_TEST(only_one_writes_at_a_time)
{
    struct err_info info = {0};
    int fd = open(tmp_path, O_WRONLY | O_CREAT, 0600);
    ck_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
    ck_assert_int_eq(replace(10, &info), ERR_AGAIN);
    ck_assert_ptr_nonnull(strstr(info.text, "another process"));
    ck_assert_int_eq(io_remove_abandoned(tmp_path), ERR_AGAIN);
    ck_assert_int_eq(access(tmp_path, F_OK), 0);
    close(fd);
    ck_assert_int_eq(replace(10, NULL), ERR_OK);
}
END_TEST

START_TEST(what_a_dead_writer_left_is_removed)
{
    int open_files = count_open_files();
    ck_assert_int_eq(io_remove_abandoned(tmp_path), ERR_OK); /* nothing is there */
    int fd = open(tmp_path, O_WRONLY | O_CREAT, 0600);
    ck_assert(fd >= 0 && close(fd) == 0);
    for (long n = 0; n < 2; n++) { /* open, unlink */
        io_fail_at(n, EIO);
        ck_assert_int_eq(io_remove_abandoned(tmp_path), ERR_IO);
        ck_assert(io_fault_fired() && access(tmp_path, F_OK) == 0);
        io_fail_at(-1, 0);
    }
    ck_assert_int_eq(io_remove_abandoned(tmp_path), ERR_OK);
    ck_assert_int_ne(access(tmp_path, F_OK), 0);
    ck_assert_int_eq(symlink(path, tmp_path), 0); /* never followed */
    ck_assert_int_eq(io_remove_abandoned(tmp_path), ERR_IO);
    ck_assert_int_eq(unlink(tmp_path), 0);
    ck_assert_int_eq(mkfifo(tmp_path, 0600), 0); /* never waited for */
    ck_assert_int_eq(io_remove_abandoned(tmp_path), ERR_IO);
    ck_assert_int_eq(unlink(tmp_path), 0);
    ck_assert_int_eq(count_open_files(), open_files);
}
END_TEST

START_TEST(a_place_that_takes_no_file_is_named)
{
    struct err_info info = {0};
    const struct io_part part = {"x", 1};
    ck_assert_int_eq(io_replace_file("/nowhere/at/all", &part, 1, NULL, NULL, &info), ERR_FILE);
    ck_assert_ptr_nonnull(strstr(info.text, "/nowhere/at/all.tmp"));
    ck_assert_int_eq(mkdir(tmp_path, 0700), 0);
    ck_assert_int_eq(replace(10, &info), ERR_FILE);
    ck_assert_int_eq(rmdir(tmp_path), 0);
    ck_assert_int_eq(symlink("/tmp/elsewhere", tmp_path), 0); /* never followed */
    ck_assert_int_eq(replace(10, &info), ERR_FILE);
    ck_assert_int_eq(unlink(tmp_path), 0);
    ck_assert_int_eq(mkfifo(tmp_path, 0600), 0); /* never waited for */
    ck_assert_int_eq(replace(10, &info), ERR_FILE);
    ck_assert_int_eq(unlink(tmp_path), 0);
    char longest[5000];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    ck_assert_int_eq(io_replace_file(longest, &part, 1, NULL, NULL, &info), ERR_FILE);
}
END_TEST

START_TEST(a_path_has_a_last_part)
{
    static const char *const rows[][2] = {{"m.gguf", "m.gguf"}, {"/a/b/m.gguf", "m.gguf"},
                                          {"a/m.hf/", "m.hf"},  {"a//m.hf//", "m.hf"},
                                          {".", "."},           {"", ""}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n;
        const char *base = io_base_name(rows[i][0], &n);
        ck_assert_msg(n == strlen(rows[i][1]) && memcmp(base, rows[i][1], n) == 0, "%s: %.*s", rows[i][0], (int)n,
                      base);
    }
}
END_TEST

static bool count_entry(void *arg, const struct io_entry *e)
{
    int *n = arg;
    ck_assert_uint_eq(e->bytes, 4);
    return ++*n < 3;
}

START_TEST(files_of_a_folder_are_walked_read_touched_and_removed)
{
    struct err_info info = {0};
    char data[5] = "", private[4096];
    int n = 0;
    snprintf(private, sizeof private, "%s", folder_file("private"));
    ck_assert_int_eq(io_private_folder(private, &info), ERR_OK);
    ck_assert_int_eq(io_private_folder(private, &info), ERR_OK);
    for (int i = 0; i < 4; i++) {
        char name[] = "private/0";
        name[8] = (char)('0' + i);
        folder_write(name, "data", 4);
        ck_assert_int_eq(io_walk_folder(private, count_entry, &n, &info), ERR_OK);
    }
    ck_assert_int_eq(n, 1 + 2 + 1 + 1); /* three ended it, and so did each after that */
    const char *file = folder_file("private/0");
    ck_assert_int_eq(io_read_exact(file, data, 4, &info), ERR_OK);
    ck_assert_str_eq(data, "data");
    ck_assert_int_eq(io_read_exact(file, data, 3, &info), ERR_FILE);
    ck_assert_int_eq(io_read_exact(file, data, 5, &info), ERR_FILE);
    ck_assert_int_eq(io_read_exact(private, data, 4, &info), ERR_FILE);
    ck_assert_int_eq(io_read_exact(folder_file("private/none"), data, 4, &info), ERR_NONE);
    ck_assert_int_eq(symlink(file, folder_file("private/link")), 0);
    ck_assert_int_eq(io_read_exact(folder_file("private/link"), data, 4, &info), ERR_FILE);
    ck_assert_int_eq(io_set_mtime(file, 1234567890123456789), ERR_OK);
    struct io_map map;
    ck_assert_int_eq(io_map_open(file, &map, &info), ERR_OK);
    ck_assert_int_eq(map.mtime_ns, 1234567890123456789);
    io_map_close(&map);
    ck_assert_int_eq(io_remove(file), ERR_OK);
    ck_assert_int_eq(io_remove(file), ERR_OK); /* it is not there */
    ck_assert_int_eq(io_set_mtime(file, 1), ERR_IO);
    ck_assert_int_eq(io_walk_folder(folder_file("none"), count_entry, &n, &info), ERR_FILE);
    ck_assert_int_eq(chmod(private, 0701), 0);
    ck_assert_int_eq(io_private_folder(private, &info), ERR_FILE);
    ck_assert_int_eq(io_private_folder(folder_file("private/1"), &info), ERR_FILE);
    folder_remove();
}
END_TEST

Suite *io_suite(void)
{
    Suite *s = suite_create("io");
    TCase *c = tcase_create("io");
    tcase_add_checked_fixture(c, setup, folder_remove);
    tcase_add_test(c, a_map_shows_the_file);
    tcase_add_test(c, reads_keep_to_the_limit);
    tcase_add_test(c, what_is_no_regular_file_is_refused_without_waiting);
    tcase_add_test(c, every_call_may_fail);
    tcase_add_test(c, a_path_has_a_last_part);
    tcase_add_test(c, files_of_a_folder_are_walked_read_touched_and_removed);
    suite_add_tcase(s, c);
    TCase *w = tcase_create("replace");
    tcase_add_checked_fixture(w, setup_tmp, teardown_tmp);
    tcase_add_test(w, a_file_is_replaced);
    tcase_add_test(w, replacing_fails_whole_at_any_step);
    tcase_add_test(w, only_one_writes_at_a_time);
    tcase_add_test(w, what_a_dead_writer_left_is_removed);
    tcase_add_test(w, a_place_that_takes_no_file_is_named);
    suite_add_tcase(s, w);
    return s;
}
