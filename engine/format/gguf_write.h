/* Writing a GGUF file, version 3 [GGUF specification, ggml docs/gguf.md]: a directory in memory, data piece by piece,
 * so that a model of any size takes little memory. Threads: one file, one thread. */
#ifndef INFCGI_FORMAT_GGUF_WRITE_H
#define INFCGI_FORMAT_GGUF_WRITE_H

#include "engine/format/gguf.h"

struct gguf_sink; /* where a tensor's bytes go */

struct gguf_write_options {
    bool may_replace; /* a file of that name is replaced; else it is an error */

    /* OPTIONAL: gives the data of t, tensor i of g: exactly t->bytes through gguf_sink_put, in order. NULL: the data
     * is t->data; a tensor without then is ERR_INTERNAL. What it returns but ERR_OK ends
     * gguf_write, which has then written nothing. */
    enum err (*fill)(void *arg, const struct gguf_tensor *t, size_t i, struct gguf_sink *to, struct err_info *info);
    void *arg;
};

/* Writes keys and tensors of g, in their order, to path.tmp, syncs it and names it `path`: a reader or a crash finds
 * the whole file or none. Data is aligned as general.alignment says, else to 32 bytes. ERR_FILE (cannot be created, or
 * is there and must not be replaced), ERR_AGAIN (another process is writing it), ERR_IO (a full disk for one, looked
 * for before anything is written), ERR_NOMEM, ERR_INTERNAL (`fill` gave another number of bytes), what `fill` returns.
 * On failure nothing is left, but for a path.tmp of somebody else that cannot be emptied. */
MUST_CHECK enum err gguf_write(const char *path, const struct gguf *g, const struct gguf_write_options *o,
                               struct err_info *info);

/* For `fill`. ERR_IO. */
MUST_CHECK enum err gguf_sink_put(struct gguf_sink *to, const void *data, size_t n, struct err_info *info);

/* Bytes of a value as the file has it, string lengths included. */
uint64_t gguf_value_bytes(const struct gguf_kv *kv);

#endif
