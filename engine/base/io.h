/* File access: read-only maps of model files, small whole-file reads, and replacing a file. No other module opens
 * files. Rejects everything except regular files without blocking on it. Threads: safe from any; all threads can read a
 * map. */
#ifndef INFCGI_BASE_IO_H
#define INFCGI_BASE_IO_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether `path` is a folder. */
bool io_is_folder(const char *path);

/* Returns the last part of a path, *n bytes without trailing slashes; it points into the path. */
const char *io_base_name(const char *path, size_t *n);

struct io_map {
    const unsigned char *data; /* `bytes` bytes, read-only; NULL for an empty file */
    size_t bytes;
    int64_t mtime_ns; /* last modification, from the file system */
    int fd;           /* kept open for io_map_shrunk; -1: closed */
};

/* Maps the file at `path`. ERR_FILE (missing, directory, FIFO, device, socket, unreadable: info names which), ERR_IO,
 * ERR_NOMEM. The caller owns *out until io_map_close. */
MUST_CHECK enum err io_map_open(const char *path, struct io_map *out, struct err_info *info);
void io_map_close(struct io_map *map);

/* Tells the system that bytes [offset, offset+n) are no longer needed, so that they stop counting as resident. */
void io_map_drop(const struct io_map *map, size_t offset, size_t n);

/* Asks the system to read the n bytes at `data`, in a map, before they are needed. Does not wait. A hint. */
void io_want(const void *data, size_t n);

/* Returns whether the file has become shorter than the map (reading there would raise SIGBUS). */
bool io_map_shrunk(const struct io_map *map);

/* Appends a whole regular file to `out`, initialised by the caller, up to limit_bytes in all. ERR_FILE, ERR_TOO_LARGE,
 * ERR_IO, ERR_NOMEM. */
MUST_CHECK enum err io_read_file(const char *path, size_t limit_bytes, struct buf *out, struct err_info *info);

/* Reads the beginning of a system file such as those in /proc: up to cap - 1 bytes and a NUL; "" if it cannot be
 * read. */
void io_read_start(const char *path, char *out, size_t cap);

struct io_part {
    const void *data;
    size_t bytes;
};

/* Replaces the file at `path` by the n concatenated parts, or leaves it unchanged: writes path.tmp, syncs and renames
 * it, so a reader or a crash finds either the old or the new file. Existing maps keep the old file. Only the owner can
 * access the file (mode 0600). goes_on: OPTIONAL, called repeatedly while it writes; false: ERR_CANCELLED. ERR_AGAIN:
 * another process is writing path.tmp; ERR_FILE: it cannot be created; ERR_IO: other errors, such as a full disk. On
 * failure path.tmp is removed. */
MUST_CHECK enum err io_replace_file(const char *path, const struct io_part *parts, size_t n, bool (*goes_on)(void *arg),
                                    void *arg, struct err_info *info);

enum { IO_MAX_PATH_BYTES = 4096 };

/* A file being written: appended bytes go to path.tmp, which io_writer_commit renames. The caller ends it with
 * io_writer_commit or io_writer_abort. Fields are private. */
struct io_writer {
    int fd;
    char path[IO_MAX_PATH_BYTES], tmp[IO_MAX_PATH_BYTES];
};

/* Starts writing. mode: of the new file, less the umask. ERR_AGAIN: another process is writing path.tmp; ERR_FILE: it
 * cannot be created; ERR_IO. */
MUST_CHECK enum err io_writer_open(struct io_writer *w, const char *path, unsigned mode, struct err_info *info);

/* Reserves `bytes` in all if the file system can, so that a full disk shows immediately. ERR_IO. */
MUST_CHECK enum err io_writer_reserve(struct io_writer *w, uint64_t bytes, struct err_info *info);

/* Appends bytes. ERR_IO, for example if the disk is full; the caller must still end the writer. */
MUST_CHECK enum err io_writer_append(struct io_writer *w, const void *data, size_t n, struct err_info *info);

/* Renames path.tmp. flags: IO_SYNC: syncs it first; without, after a power failure the file can have any contents, so
 * its reader must be able to detect that. IO_REPLACE: replace a file at `path`; without, that file stays and the commit
 * fails. ERR_IO; path.tmp is then removed. */
enum { IO_SYNC = 1, IO_REPLACE = 2 };
MUST_CHECK enum err io_writer_commit(struct io_writer *w, unsigned flags, struct err_info *info);

/* Removes path.tmp; does nothing if the writer has ended. */
void io_writer_abort(struct io_writer *w);

/* Reads the n bytes of the regular file at `path`, not through a link. ERR_NONE: no such file; ERR_FILE: it is
 * something else or has another length; ERR_IO. */
MUST_CHECK enum err io_read_exact(const char *path, void *out, size_t n, struct err_info *info);

/* Makes the folder at `path` (mode 0700) unless it exists, but not its parents. ERR_FILE: it cannot be made, is not a
 * folder, or does not belong to this user only. */
MUST_CHECK enum err io_private_folder(const char *path, struct err_info *info);

struct io_entry {
    const char *name; /* within its folder */
    uint64_t bytes;
    int64_t mtime_ns;
};

/* Calls `each` for every regular file of a folder, in no order, until it returns false. Skips files that vanish during
 * the walk. ERR_FILE: the folder cannot be read. */
MUST_CHECK enum err io_walk_folder(const char *path, bool (*each)(void *arg, const struct io_entry *e), void *arg,
                                   struct err_info *info);

/* Removes the file `tmp`, a path with ".tmp" appended, that a killed writer left; succeeds if it does not exist.
 * ERR_AGAIN: a writer of this or another process is using it. ERR_FILE: not a regular file. ERR_IO. */
enum err io_remove_abandoned(const char *tmp);

/* io_remove removes a file and succeeds if it does not exist. io_set_mtime sets a file's modification time. ERR_IO. */
enum err io_remove(const char *path);
enum err io_set_mtime(const char *path, int64_t mtime_ns);

/* Opens a file for appending lines, and makes it if it does not exist (mode 0640, less the umask). *fd is the caller's
 * until io_append_close. ERR_FILE: it cannot be opened, or is not a regular file. */
MUST_CHECK enum err io_append_open(const char *path, int *fd, struct err_info *info);

/* Appends n bytes with one system call, so that lines of several threads and processes stay whole. *n_written: bytes
 * written, also after a failure. ERR_IO: not all were written, for example because the disk is full. */
MUST_CHECK enum err io_append(int fd, const void *data, size_t n, size_t *n_written);
void io_append_close(int fd);

/* Returns whether anything exists at `path`. A dangling link counts. */
bool io_exists(const char *path);

/* For tests: makes the n-th system call of this module from now on (0: the next) fail with `errno_value`, once. */
void io_fail_at(long n, int errno_value);
bool io_fault_fired(void);

#endif
