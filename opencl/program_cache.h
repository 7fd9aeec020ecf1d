/* What a driver built, kept in a folder for the next start: a file for each program.
 *
 *   header   64 bytes: magic, bytes of the payload, what it was made of, and the SHA-256 of all but itself
 *   payload  the driver's binary; none: its compiler refuses the program
 *
 * A driver takes a binary for its own work, and rusticl ends the process where it is not. So nothing of a file goes
 * there before the sum is right and the sources, the options, the device and its driver are those that it was made of. What
 * does not fit is ignored, and replaced. The sum guards against accidents: who can write into the folder can change what
 * is computed. Threads: one at a time. */
#ifndef INFCGI_OPENCL_PROGRAM_CACHE_H
#define INFCGI_OPENCL_PROGRAM_CACHE_H

#include "engine/backend/backend.h"
#include "engine/base/buf.h"
#include "engine/base/io.h"

enum { PROGRAM_CACHE_NOTE_BYTES = 512, PROGRAM_CACHE_SUM_BYTES = 32 };

/* Zeroed, and with a folder. */
struct program_cache {
    const char *folder;                  /* OPTIONAL, borrowed: none is kept */
    enum backend_pack_state state;       /* MAPPED: all that was asked for came from files */
    char note[PROGRAM_CACHE_NOTE_BYTES]; /* the first file that could not be used, or written, and why; or "" */
};

/* A file of the folder. */
struct program_file {
    char path[IO_MAX_PATH_BYTES];
    unsigned char of[PROGRAM_CACHE_SUM_BYTES];
};

/* The file of what `names` tells apart, which is made of `of`, too: lists of texts that end with NULL. When `of` changes,
 * the file of the same names is replaced. */
void program_cache_find(const struct program_cache *c, const char *const *names, const char *const *of,
                        struct program_file *out);

/* The payload, which takes the place of what `out` holds. False: there is none that fits. */
bool program_cache_read(struct program_cache *c, const struct program_file *f, struct buf *out);

/* Keeps n bytes; a failure is a note. */
void program_cache_write(struct program_cache *c, const struct program_file *f, const void *data, size_t n);

#endif
