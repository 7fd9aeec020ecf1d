/* Builds a struct gguf from keys and tensors of another format, so that readers of models need only one. Keys and
 * values are copied; tensor data is borrowed. Lack of memory is recorded and returned by gguf_build_finish. Threads: a
 * builder belongs to one thread. */
#ifndef INFCGI_FORMAT_GGUF_BUILD_H
#define INFCGI_FORMAT_GGUF_BUILD_H

#include "engine/base/mem.h"
#include "engine/format/gguf.h"

struct gguf_build {
    struct arena arena; /* keys, values, names; also for data that tensors need */
    struct gguf_kv *kv;
    size_t n_kv, cap_kv;
    struct gguf_tensor *tensors;
    size_t n_tensors, cap_tensors;
    const struct gguf_words *words; /* OPTIONAL: in the arena */
    enum err err;                   /* ERR_OK, or the first failure */
};

void gguf_build_init(struct gguf_build *b);
void gguf_build_fini(struct gguf_build *b); /* instead of finish */

/* Add metadata for gguf_find. `value`: a value of the type's size; for an array n packed values. */
void gguf_build_scalar(struct gguf_build *b, const char *key, enum gguf_type type, const void *value);
void gguf_build_array(struct gguf_build *b, const char *key, enum gguf_type elem_type, uint64_t n, const void *values);
void gguf_build_u32(struct gguf_build *b, const char *key, uint32_t v);
void gguf_build_f32(struct gguf_build *b, const char *key, float v);
void gguf_build_bool(struct gguf_build *b, const char *key, bool v);
void gguf_build_str(struct gguf_build *b, const char *key, const char *s, size_t n);
/* Begins an array of strings, given their number and total length; the caller then adds each one. */
unsigned char *gguf_build_strs(struct gguf_build *b, const char *key, uint64_t n, uint64_t total_bytes);
void gguf_build_put_str(unsigned char **cursor, const char *s, size_t n); /* *cursor can be NULL */

/* Copies a key of another model with its value. */
void gguf_build_copy(struct gguf_build *b, const struct gguf_kv *kv);

/* Adds a tensor. All of *t is taken unchanged, except its name if `name` is another (OPTIONAL); t->data and t->source
 * must outlive the result. Without a source, its rows are those at t->data. */
void gguf_build_tensor(struct gguf_build *b, const char *name, const struct gguf_tensor *t);

/* Makes the source's rows those of t: a matrix, or n of one shape, [n_in, n_out, n]. A NULL source means that memory is
 * out. */
void gguf_build_rows(struct gguf_build *b, struct gguf_tensor *t, const struct row_source *source, uint64_t n);

/* Returns the tensor of that name, borrowed until the next one is added; NULL if there is none. */
struct gguf_tensor *gguf_build_find(const struct gguf_build *b, const char *name);

/* The files that contain tensors' data. They must stay until gguf_close calls release(arg), which closes them. */
struct gguf_files {
    const struct io_map *const *maps;
    size_t n;
    void (*release)(void *arg);
    void *arg;
};

/* Makes the object; the builder is empty afterwards. files: OPTIONAL; *files is copied. ERR_NOMEM, ERR_DUPLICATE_KEY,
 * ERR_BAD_TENSOR_NAME (twice). On failure nothing is released. The caller owns *out until gguf_close. */
MUST_CHECK enum err gguf_build_finish(struct gguf_build *b, const struct gguf_files *files, struct gguf **out,
                                      struct err_info *info);

#endif
