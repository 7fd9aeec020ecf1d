/* Making a struct gguf from keys and tensors that come from elsewhere, so that whoever reads a model reads one thing.
 *
 * Keys and values are copied; tensor data is borrowed. Out of memory is remembered and reported by gguf_build_finish.
 * Threads: a builder belongs to one thread. */
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
    enum err err;                   /* ERR_OK, or the first thing that failed */
};

void gguf_build_init(struct gguf_build *b);
void gguf_build_fini(struct gguf_build *b); /* without finish */

/* Metadata, as gguf_find will find it. `value`: a value of the type's size; an array's n of them, packed. */
void gguf_build_scalar(struct gguf_build *b, const char *key, enum gguf_type type, const void *value);
void gguf_build_array(struct gguf_build *b, const char *key, enum gguf_type elem_type, uint64_t n, const void *values);
void gguf_build_u32(struct gguf_build *b, const char *key, uint32_t v);
void gguf_build_f32(struct gguf_build *b, const char *key, float v);
void gguf_build_bool(struct gguf_build *b, const char *key, bool v);
void gguf_build_str(struct gguf_build *b, const char *key, const char *s, size_t n);
/* An array of strings is begun with their number and total length, then filled one by one. */
unsigned char *gguf_build_strs(struct gguf_build *b, const char *key, uint64_t n, uint64_t total_bytes);
void gguf_build_put_str(unsigned char **cursor, const char *s, size_t n); /* *cursor may be NULL */

/* The value of a key of another model. */
void gguf_build_copy(struct gguf_build *b, const char *key, const struct gguf_kv *kv);

/* A tensor; everything of *t but the name is taken as it is, and t->data and t->source must outlive the result. Without
 * a source, its rows are those at t->data. */
void gguf_build_tensor(struct gguf_build *b, const char *name, const struct gguf_tensor *t);

/* t's rows become those of the source: a matrix, or n of one shape, [n_in, n_out, n]. NULL is out of memory. */
void gguf_build_rows(struct gguf_build *b, struct gguf_tensor *t, const struct row_source *source, uint64_t n);

/* The tensor of that name so far, borrowed until the next one is added; NULL when there is none. */
const struct gguf_tensor *gguf_build_find(const struct gguf_build *b, const char *name);

/* The object; the builder is empty afterwards. maps: of the n files that tensors' data is in, which must stay as they
 * are until release(arg), which gguf_close calls: it closes them. ERR_NOMEM, ERR_DUPLICATE_KEY, ERR_BAD_TENSOR_NAME
 * (twice). On failure nothing is released. The caller owns *out until gguf_close. */
MUST_CHECK enum err gguf_build_finish(struct gguf_build *b, const struct io_map *const *maps, size_t n,
                                      void (*release)(void *arg), void *arg, struct gguf **out, struct err_info *info);

#endif
