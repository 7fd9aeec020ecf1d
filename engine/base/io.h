/* The only door to files: read-only maps of model files, small whole-file reads, and replacing a file. Refuses
 * everything that is not a regular file without blocking on it. Threads: safe anywhere; a map may be read by all
 * threads. */
#ifndef INFCGI_BASE_IO_H
#define INFCGI_BASE_IO_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is there a folder at `path`? */
bool io_is_folder(const char *path);

/* The last part of a path, of *n bytes, without slashes behind it; it is the path's. */
const char *io_base_name(const char *path, size_t *n);

struct io_map {
    const unsigned char *data; /* `bytes` bytes, read-only; NULL for an empty file */
    size_t bytes;
    int64_t mtime_ns; /* when the file was last written, as the file system says */
    int fd;           /* kept open so that io_map_shrunk can look; -1 when closed */
};

/* Maps the file at `path`. ERR_FILE (missing, directory, FIFO, device, socket, unreadable: info names which),
 * ERR_IO, ERR_NOMEM. The caller owns *out until io_map_close. */
MUST_CHECK enum err io_map_open(const char *path, struct io_map *out, struct err_info *info);
void io_map_close(struct io_map *map);

/* Tells the system that bytes [offset, offset+n) will not be needed again, so that they stop counting as resident. */
void io_map_drop(const struct io_map *map, size_t offset, size_t n);

/* True when the file has become shorter than the map (reading there would raise SIGBUS). */
bool io_map_shrunk(const struct io_map *map);

/* Appends a whole regular file to `out` (initialised by the caller), which may then hold limit_bytes at most.
 * ERR_FILE, ERR_TOO_LARGE, ERR_IO, ERR_NOMEM. */
MUST_CHECK enum err io_read_file(const char *path, size_t limit_bytes, struct buf *out, struct err_info *info);

/* The beginning of a file of the system, as /proc has them: at most cap - 1 bytes and a NUL; "" when it cannot be read. */
void io_read_start(const char *path, char *out, size_t cap);

struct io_part {
    const void *data;
    size_t bytes;
};

/* Makes the file at `path` the n parts one behind the other, or leaves it as it is: writes path.tmp, syncs it and
 * renames it, so that a reader or a crash finds the old file or the new one. Who has the old one mapped keeps it. The
 * file is for its owner alone (mode 0600). ERR_AGAIN: another process is writing path.tmp; ERR_FILE: it cannot be
 * created; ERR_IO: the rest, a full disk for one. On failure path.tmp is gone. goes_on: OPTIONAL, asked again and again
 * while it writes; false: ERR_CANCELLED. */
MUST_CHECK enum err io_replace_file(const char *path, const struct io_part *parts, size_t n, bool (*goes_on)(void *arg),
                                    void *arg, struct err_info *info);

enum { IO_MAX_PATH_BYTES = 4096 };

/* A file being made: what is appended goes to path.tmp, which io_writer_commit syncs and gives its name. Fields are
 * private. Ends by io_writer_commit or io_writer_abort. */
struct io_writer {
    int fd;
    char path[IO_MAX_PATH_BYTES], tmp[IO_MAX_PATH_BYTES];
};

/* mode: of the new file, less the umask. ERR_AGAIN: another process is writing path.tmp; ERR_FILE: it cannot be
 * created; ERR_IO. */
MUST_CHECK enum err io_writer_open(struct io_writer *w, const char *path, unsigned mode, struct err_info *info);

/* Takes room for `bytes` in all where the file system can do that, so that a full disk shows at once. ERR_IO. */
MUST_CHECK enum err io_writer_reserve(struct io_writer *w, uint64_t bytes, struct err_info *info);

/* ERR_IO, a full disk for one; the writer must still be ended. */
MUST_CHECK enum err io_writer_append(struct io_writer *w, const void *data, size_t n, struct err_info *info);

/* may_replace: a file at `path` is replaced; else it stays and the commit fails. ERR_IO; path.tmp is then gone. */
MUST_CHECK enum err io_writer_commit(struct io_writer *w, bool may_replace, struct err_info *info);

/* Removes path.tmp; nothing when the writer has ended. */
void io_writer_abort(struct io_writer *w);

/* The same without waiting for the disk: after a power failure the file may be anything, so its reader must be able to tell. */
MUST_CHECK enum err io_writer_publish(struct io_writer *w, bool may_replace, struct err_info *info);

/* Reads the n bytes of the regular file at `path`, no link. ERR_NONE: there is none; ERR_FILE: it is something else, or has another
 * length; ERR_IO. */
MUST_CHECK enum err io_read_exact(const char *path, void *out, size_t n, struct err_info *info);

/* Makes the folder at `path` (mode 0700), not those above it, unless it is there. ERR_FILE: it cannot be made, or is no folder, or
 * not of this user alone. */
MUST_CHECK enum err io_private_folder(const char *path, struct err_info *info);

struct io_entry {
    const char *name; /* in its folder */
    uint64_t bytes;
    int64_t mtime_ns;
};

/* Calls `each` for every regular file of a folder, in no order, until it says false; files that vanish meanwhile are left out.
 * ERR_FILE: the folder cannot be read. */
MUST_CHECK enum err io_walk_folder(const char *path, bool (*each)(void *arg, const struct io_entry *e), void *arg,
                                   struct err_info *info);

/* Removes what a writer left at `tmp`, its path with ".tmp" behind, when it died before it was done; nothing there is no error.
 * ERR_AGAIN: one is at work there, in this process or another. ERR_FILE: no regular file. ERR_IO. */
enum err io_remove_abandoned(const char *tmp);

/* Removes a file; one that is not there is no error. Sets when it was last written. ERR_IO. */
enum err io_remove(const char *path);
enum err io_set_mtime(const char *path, int64_t mtime_ns);

/* Opens a file that lines are put behind, and makes it where there is none (mode 0640, less the umask). *fd is the caller's
 * until io_append_close. ERR_FILE: it cannot be opened, or is no regular file. */
MUST_CHECK enum err io_append_open(const char *path, int *fd, struct err_info *info);

/* Puts n bytes behind what is there, with one system call, so that lines of several threads and processes stay whole.
 * *n_written says how many came in, also of a failure. ERR_IO: not all of them, a full disk for one. */
MUST_CHECK enum err io_append(int fd, const void *data, size_t n, size_t *n_written);
void io_append_close(int fd);

/* Is there anything at `path`? A link that leads nowhere counts. */
bool io_exists(const char *path);

/* Tests: makes the n-th system call of this module from now on (0 = the next) fail with `errno_value`, once. */
void io_fail_at(long n, int errno_value);
bool io_fault_fired(void);

#endif
