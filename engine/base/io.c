/* open, fstat, mmap, read, write and rename, all in one module so that tests can make them fail. O_NONBLOCK makes the
 * open of a FIFO return immediately; fstat then rejects it. */
#include "engine/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long fail_countdown = -1;
static atomic_int fail_errno;
static atomic_bool fault_fired;

void io_fail_at(long n, int errno_value)
{
    atomic_store(&fault_fired, false);
    atomic_store(&fail_errno, errno_value);
    atomic_store(&fail_countdown, n);
}

bool io_fault_fired(void) { return atomic_load(&fault_fired); }

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) < 0 || atomic_fetch_sub(&fail_countdown, 1) != 0) {
        return false;
    }
    atomic_store(&fault_fired, true);
    errno = atomic_load(&fail_errno);
    return true;
}

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode)) {
        return "a directory";
    }
    if (S_ISFIFO(mode)) {
        return "a FIFO";
    }
    if (S_ISSOCK(mode)) {
        return "a socket";
    }
    return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "not a regular file";
}

/* Opens path, checks that it is a regular file, and fills *st. */
static enum err open_regular(const char *path, int *fd, struct stat *st, struct err_info *info)
{
    int f = must_fail() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f < 0) {
        return err_set(info, ERR_FILE, NULL, "expected a readable file, found: %s", strerror(errno));
    }
    enum err err = ERR_OK;
    if (must_fail() || fstat(f, st) != 0) {
        err = err_set(info, ERR_IO, NULL, "cannot stat the file: %s", strerror(errno));
    } else if (!S_ISREG(st->st_mode)) {
        err = err_set(info, ERR_FILE, NULL, "expected a regular file, found %s", kind_of(st->st_mode));
    }
    if (err != ERR_OK) {
        close(f);
        return err;
    }
    *fd = f;
    return ERR_OK;
}

bool io_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool io_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

enum err io_map_open(const char *path, struct io_map *out, struct err_info *info)
{
    *out = (struct io_map){.fd = -1};
    int fd;
    struct stat st;
    TRY(open_regular(path, &fd, &st, info));
    void *p = NULL;
    if (st.st_size > 0) {
        p = must_fail() ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            enum err err =
                err_set(info, errno == ENOMEM ? ERR_NOMEM : ERR_IO, NULL, "cannot map the file: %s", strerror(errno));
            close(fd);
            return err;
        }
    }
    int64_t mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    *out = (struct io_map){.data = p, .bytes = (size_t)st.st_size, .mtime_ns = mtime_ns, .fd = fd};
    return ERR_OK;
}

void io_map_close(struct io_map *map)
{
    if (map->data != NULL) {
        munmap((void *)map->data, map->bytes);
    }
    if (map->fd >= 0) {
        close(map->fd);
    }
    *map = (struct io_map){.fd = -1};
}

void io_map_drop(const struct io_map *map, size_t offset, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = (offset + page - 1) / page * page; /* only whole pages inside the range */
    size_t to = (offset + n) / page * page;
    if (map->data != NULL && from < to && to <= map->bytes) {
        (void)madvise((void *)(map->data + from), to - from, MADV_DONTNEED); /* failure is harmless */
    }
}

void io_want(const void *data, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = (uintptr_t)data % page;
    (void)madvise((char *)(uintptr_t)data - skip, n + skip, MADV_WILLNEED); /* failure only makes it slower */
}

bool io_map_shrunk(const struct io_map *map)
{
    struct stat st;
    return map->fd >= 0 && (fstat(map->fd, &st) != 0 || (size_t)st.st_size < map->bytes);
}

enum err io_read_file(const char *path, size_t limit_bytes, struct buf *out, struct err_info *info)
{
    int fd;
    struct stat st;
    TRY(open_regular(path, &fd, &st, info));
    enum err err = ERR_OK;
    char block[16384];
    for (;;) {
        ssize_t n = must_fail() ? -1 : read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            err = err_set(info, ERR_IO, NULL, "cannot read %s: %s", path, strerror(errno));
            break;
        }
        if (n == 0) {
            break;
        }
        if ((size_t)n > limit_bytes - MIN_OF(out->len, limit_bytes)) {
            err = err_set(info, ERR_TOO_LARGE, NULL, "%s: expected at most %zu bytes", path, limit_bytes);
            break;
        }
        buf_append(out, block, (size_t)n);
        if ((err = buf_ok(out)) != ERR_OK) {
            break;
        }
    }
    close(fd);
    return err;
}

void io_read_start(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, cap - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    out[MAX_OF(n, 0)] = '\0';
}

/* --- making a file ---------------------------------------------------------------------------------------------- */

enum { WRITE_BYTES = 16 << 20 }; /* size of one write, far below Linux's limit */

/* Locks an unfinished file exclusively: the lock distinguishes a killed process's leftover from a working writer's
 * file. Between open and lock the other writer can rename the file; then it is not ours. */
static enum err lock_unfinished(int fd, const char *tmp, struct err_info *info)
{
    struct stat ours, named;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return err_set(info, ERR_AGAIN, NULL, "another process is writing %s", tmp);
    }
    if (fstat(fd, &ours) != 0 || lstat(tmp, &named) != 0 || ours.st_ino != named.st_ino ||
        ours.st_dev != named.st_dev) {
        return err_set(info, ERR_AGAIN, NULL, "another process has just written %s", tmp);
    }
    if (!S_ISREG(ours.st_mode)) {
        return err_set(info, ERR_FILE, NULL, "%s: expected a regular file, found %s", tmp, kind_of(ours.st_mode));
    }
    return ERR_OK;
}

/* Opens `tmp` for writing, or takes it over from a process that was killed. */
static enum err open_for_writing(const char *tmp, unsigned mode, int *fd, struct err_info *info)
{
    int f = must_fail() ? -1 : open(tmp, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY, mode);
    if (f < 0) {
        return err_set(info, ERR_FILE, NULL, "cannot create %s: %s", tmp, strerror(errno));
    }
    enum err err = lock_unfinished(f, tmp, info);
    if (err == ERR_OK && (must_fail() || ftruncate(f, 0) != 0)) {
        err = err_set(info, ERR_IO, NULL, "cannot empty %s: %s", tmp, strerror(errno));
    }
    if (err != ERR_OK) {
        close(f);
        return err;
    }
    *fd = f;
    return ERR_OK;
}

enum err io_remove_abandoned(const char *tmp)
{
    struct err_info ignored;
    int f = must_fail() ? -1 : open(tmp, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (f < 0) {
        return errno == ENOENT ? ERR_OK : ERR_IO;
    }
    enum err err = lock_unfinished(f, tmp, &ignored);
    if (err == ERR_OK) {
        err = io_remove(tmp); /* still locked, so no process has taken it over */
    }
    close(f);
    return err;
}

const char *io_base_name(const char *path, size_t *n)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    for (begin = end; begin > 0 && path[begin - 1] != '/';) {
        begin--;
    }
    *n = end - begin;
    return path + begin;
}

/* Makes the new name survive a power failure. Ignores file systems that cannot sync folders. */
static void sync_folder_of(const char *path)
{
    char folder[IO_MAX_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1, slash == NULL ? "." : path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

enum err io_writer_open(struct io_writer *w, const char *path, unsigned mode, struct err_info *info)
{
    *w = (struct io_writer){.fd = -1};
    size_t n = strlen(path);
    if (n + sizeof ".tmp" > sizeof w->tmp) {
        return err_set(info, ERR_FILE, NULL, "expected a path of less than %d bytes, found a longer one",
                       IO_MAX_PATH_BYTES - 4);
    }
    memcpy(w->path, path, n + 1);
    memcpy(w->tmp, path, n);
    memcpy(w->tmp + n, ".tmp", sizeof ".tmp");
    return open_for_writing(w->tmp, mode, &w->fd, info);
}

enum err io_writer_reserve(struct io_writer *w, uint64_t bytes, struct err_info *info)
{
    if (must_fail() || fallocate(w->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) != 0) {
        bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        if (is_full) { /* other errors mean the file system does not support it; writing shows a full disk */
            return err_set(info, ERR_IO, NULL, "%s: no room for %llu bytes: %s", w->tmp, (unsigned long long)bytes,
                           strerror(errno));
        }
    }
    return ERR_OK;
}

enum err io_writer_append(struct io_writer *w, const void *data, size_t n, struct err_info *info)
{
    const unsigned char *at = data;
    while (n > 0) {
        ssize_t done = must_fail() ? -1 : write(w->fd, at, MIN_OF(n, (size_t)WRITE_BYTES));
        if (done < 0 && errno != EINTR) {
            return err_set(info, ERR_IO, NULL, "cannot write %s: %s", w->tmp, strerror(errno));
        }
        at += MAX_OF(done, 0);
        n -= (size_t)MAX_OF(done, 0);
    }
    return ERR_OK;
}

void io_writer_abort(struct io_writer *w)
{
    if (w->fd >= 0) {
        (void)unlink(w->tmp); /* still locked, so it is ours */
        close(w->fd);
        w->fd = -1;
    }
}

/* Renames without replacing an existing file. Old file systems cannot do that: there it checks first. */
static int rename_to_new(const char *from, const char *to)
{
    struct stat st;
    int rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc == 0 || (errno != EINVAL && errno != ENOSYS)) {
        return rc;
    }
    if (lstat(to, &st) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(from, to);
}

enum err io_writer_commit(struct io_writer *w, unsigned flags, struct err_info *info)
{
    bool syncs = (flags & IO_SYNC) != 0, may_replace = (flags & IO_REPLACE) != 0;
    enum err err = ERR_OK;
    if (syncs && (must_fail() || fsync(w->fd) != 0)) {
        err = err_set(info, ERR_IO, NULL, "cannot sync %s: %s", w->tmp, strerror(errno));
    } else if (must_fail() || (may_replace ? rename(w->tmp, w->path) : rename_to_new(w->tmp, w->path)) != 0) {
        err = err_set(info, ERR_IO, NULL, "cannot rename %s: %s", w->tmp, strerror(errno));
    }
    if (err != ERR_OK) {
        io_writer_abort(w);
        return err;
    }
    if (syncs) {
        sync_folder_of(w->path);
    }
    close(w->fd);
    w->fd = -1;
    return ERR_OK;
}

enum err io_replace_file(const char *path, const struct io_part *parts, size_t n, bool (*goes_on)(void *arg), void *arg,
                         struct err_info *info)
{
    struct io_writer w;
    TRY(io_writer_open(&w, path, 0600, info));
    enum err err = ERR_OK;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        const unsigned char *at = parts[i].data;
        for (size_t left = parts[i].bytes, now; left > 0 && err == ERR_OK; at += now, left -= now) {
            now = MIN_OF(left, (size_t)WRITE_BYTES);
            err = goes_on == NULL || goes_on(arg) ? io_writer_append(&w, at, now, info) : ERR_CANCELLED;
        }
    }
    if (err != ERR_OK) {
        io_writer_abort(&w);
        return err;
    }
    return io_writer_commit(&w, IO_SYNC | IO_REPLACE, info);
}

/* --- folders of files --------------------------------------------------------------------------------------------- */

static enum err read_all(int fd, const char *path, unsigned char *at, size_t n, struct err_info *info)
{
    while (n > 0) {
        ssize_t got = must_fail() ? -1 : read(fd, at, n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return err_set(info, ERR_IO, NULL, "cannot read %s: %s", path,
                           got < 0 ? strerror(errno) : "it became shorter");
        }
        at += got;
        n -= (size_t)got;
    }
    return ERR_OK;
}

enum err io_read_exact(const char *path, void *out, size_t n, struct err_info *info)
{
    struct stat st;
    int fd = must_fail() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0) {
        enum err why = errno == ENOENT ? ERR_NONE : errno == ELOOP ? ERR_FILE : ERR_IO;
        return err_set(info, why, NULL, "cannot open %s: %s", path, strerror(errno));
    }
    enum err err = ERR_OK;
    if (must_fail() || fstat(fd, &st) != 0) {
        err = err_set(info, ERR_IO, NULL, "cannot stat %s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != n) {
        err = err_set(info, ERR_FILE, NULL, "%s: expected a file of %zu bytes, found %s of %llu", path, n,
                      S_ISREG(st.st_mode) ? "one" : kind_of(st.st_mode), (unsigned long long)st.st_size);
    } else {
        err = read_all(fd, path, out, n, info);
    }
    close(fd);
    return err;
}

enum err io_private_folder(const char *path, struct err_info *info)
{
    struct stat st;
    if ((must_fail() || mkdir(path, 0700) != 0) && errno != EEXIST) {
        return err_set(info, ERR_FILE, NULL, "cannot make the folder %s: %s", path, strerror(errno));
    }
    if (must_fail() || stat(path, &st) != 0) {
        return err_set(info, ERR_FILE, NULL, "cannot stat %s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        return err_set(info, ERR_FILE, NULL,
                       "%s: expected a folder of user %u with mode 0700, found %s of user %u with mode %04o", path,
                       (unsigned)geteuid(), S_ISDIR(st.st_mode) ? "one" : kind_of(st.st_mode), (unsigned)st.st_uid,
                       (unsigned)(st.st_mode & 07777));
    }
    return ERR_OK;
}

enum err io_walk_folder(const char *path, bool (*each)(void *arg, const struct io_entry *e), void *arg,
                        struct err_info *info)
{
    DIR *dir = must_fail() ? NULL : opendir(path);
    if (dir == NULL) {
        return err_set(info, ERR_FILE, NULL, "cannot read the folder %s: %s", path, strerror(errno));
    }
    struct dirent *found;
    bool goes_on = true;
    while (goes_on && (found = readdir(dir)) != NULL) {
        struct stat st;
        if (fstatat(dirfd(dir), found->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            const struct io_entry e = {.name = found->d_name,
                                       .bytes = (uint64_t)st.st_size,
                                       .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
            goes_on = each(arg, &e);
        }
    }
    closedir(dir);
    return ERR_OK;
}

enum err io_remove(const char *path)
{
    return !must_fail() && (unlink(path) == 0 || errno == ENOENT) ? ERR_OK : ERR_IO;
}

enum err io_set_mtime(const char *path, int64_t mtime_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(mtime_ns / 1000000000), .tv_nsec = (long)(mtime_ns % 1000000000)};
    const struct timespec times[2] = {at, at};
    return !must_fail() && utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0 ? ERR_OK : ERR_IO;
}

/* --- appending ---------------------------------------------------------------------------------------------------- */

enum err io_append_open(const char *path, int *fd, struct err_info *info)
{
    struct stat st;
    int f = must_fail() ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
    if (f < 0) {
        return err_set(info, ERR_FILE, NULL, "expected a file that can be written, found: %s", strerror(errno));
    }
    if (fstat(f, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(f);
        return err_set(info, ERR_FILE, NULL, "expected a regular file, found %s", kind_of(st.st_mode));
    }
    *fd = f;
    return ERR_OK;
}

enum err io_append(int fd, const void *data, size_t n, size_t *n_written)
{
    ssize_t k = must_fail() ? -1 : write(fd, data, n);
    *n_written = k > 0 ? (size_t)k : 0;
    return *n_written == n ? ERR_OK : ERR_IO;
}

void io_append_close(int fd) { close(fd); }
