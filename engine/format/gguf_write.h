/* Writes a GGUF file, version 3 [GGUF specification, ggml docs/gguf.md]: the directory is in memory, the data is
 * written piece by piece, so a model of any size takes little memory. Threads: one per file. */
#ifndef INFCGI_FORMAT_GGUF_WRITE_H
#define INFCGI_FORMAT_GGUF_WRITE_H

#include "engine/format/gguf.h"

struct gguf_sink; /* receives a tensor's bytes */

struct gguf_write_options {
    bool may_replace; /* replace a file of that name; else that is an error */

    /* OPTIONAL: writes the data of t, tensor i of g: exactly t->bytes through gguf_sink_put, in order. NULL: the data
     * is t->data; a tensor without data is then ERR_INTERNAL. Any result except ERR_OK stops gguf_write, which then
     * leaves no file. */
    enum err (*fill)(void *arg, const struct gguf_tensor *t, size_t i, struct gguf_sink *to, struct err_info *info);
    void *arg;
};

/* Writes keys and tensors of g, in their order, to path.tmp, syncs it and renames it to `path`: a reader or a crash
 * finds the whole file or none. Data is aligned to general.alignment, else to 32 bytes. ERR_FILE (cannot be created, or
 * exists and must not be replaced), ERR_AGAIN (another process is writing it), ERR_IO (for example a full disk, which
 * is checked before anything is written), ERR_NOMEM, ERR_INTERNAL (`fill` wrote another number of bytes), errors of
 * `fill`. On failure nothing is left, except a path.tmp of another user that cannot be emptied. */
MUST_CHECK enum err gguf_write(const char *path, const struct gguf *g, const struct gguf_write_options *o,
                               struct err_info *info);

/* Writes bytes, for `fill`. ERR_IO. */
MUST_CHECK enum err gguf_sink_put(struct gguf_sink *to, const void *data, size_t n, struct err_info *info);

/* Returns the bytes of a value in the file, including string lengths. */
uint64_t gguf_value_bytes(const struct gguf_kv *kv);

#endif
