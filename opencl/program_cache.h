/* Programs built by a driver, kept in a folder for the next start, one file per program.
 *
 *   header   64 bytes: magic, bytes of the payload, digest of the inputs, and the SHA-256 of all but itself
 *   payload  the driver's binary; empty: its compiler rejects the program
 *
 * A driver trusts a binary, and rusticl ends the process if it is not its own. So a file's payload reaches the driver
 * only if the checksum is right and the sources, options, device and driver are those that it was built from. Other
 * files are ignored and replaced. The checksum guards against accidents: a user who can write to the folder can change
 * what is computed. Threads: one at a time. */
#ifndef INFCGI_OPENCL_PROGRAM_CACHE_H
#define INFCGI_OPENCL_PROGRAM_CACHE_H

#include "engine/backend/backend.h"
#include "engine/base/buf.h"
#include "engine/base/io.h"

enum { PROGRAM_CACHE_NOTE_BYTES = 512, PROGRAM_CACHE_SUM_BYTES = 32 };

/* Initialize with zeros and a folder. */
struct program_cache {
    const char *folder;                  /* OPTIONAL, borrowed; NULL: nothing is kept */
    enum backend_pack_state state;       /* MAPPED: all requested programs came from files */
    char note[PROGRAM_CACHE_NOTE_BYTES]; /* the first file that could not be used or written, and why; or "" */
};

/* A file of the folder. */
struct program_file {
    char path[IO_MAX_PATH_BYTES];
    unsigned char of[PROGRAM_CACHE_SUM_BYTES];
};

/* Finds the file for `names`, whose contents also depend on `of`; both are lists of texts that end with NULL. If `of`
 * changes, the file of the same names is replaced. */
void program_cache_find(const struct program_cache *c, const char *const *names, const char *const *of,
                        struct program_file *out);

/* Reads the payload into `out`, replacing its contents. Returns false if no valid file exists. */
bool program_cache_read(struct program_cache *c, const struct program_file *f, struct buf *out);

/* Writes n bytes as the payload; a failure becomes the note. */
void program_cache_write(struct program_cache *c, const struct program_file *f, const void *data, size_t n);

#endif
