/* Builds small GGUF files in memory for tests, valid and invalid ones.
 *
 * A file is made in three steps: gguf_writer_init, any number of additions in file order, gguf_writer_finish. For an
 * invalid file, set the public fields (version, n_kv, n_tensors, alignment) before finish, or add raw bytes. Nothing
 * here is checked; buf_ok(out) reports lack of memory. Threads: a writer belongs to one thread. */
#ifndef INFCGI_TESTS_GGUF_WRITER_H
#define INFCGI_TESTS_GGUF_WRITER_H

#include "engine/base/buf.h"
#include "engine/format/gguf.h"

struct gguf_writer {
    uint32_t version;    /* 3 after init */
    uint64_t n_kv;       /* goes into the header; counted by the additions */
    uint64_t n_tensors;  /* likewise */
    uint64_t alignment;  /* of tensor data, a power of two; 32 after init; see gguf_writer_alignment */
    struct buf kv;       /* metadata records so far */
    struct buf tensors;  /* tensor records so far */
    struct buf data;     /* tensor data so far, each tensor padded to the alignment */
    bool is_last_padded; /* false after init: the file ends with the last tensor's last byte */
    size_t last_bytes;   /* data.len without the padding after the last tensor */
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_fini(struct gguf_writer *w);

/* Add metadata. `value` points to a value of the type's size (bool: one byte), or for an array to n of them, packed. */
void gguf_writer_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, const void *value);
void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type elem_type, uint64_t n,
                       const void *values);
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value);
void gguf_writer_str_n(struct gguf_writer *w, const char *key, const char *value, size_t n);
void gguf_writer_str_array(struct gguf_writer *w, const char *key, uint64_t n, const char *const *values);

/* Writes general.alignment and uses it from now on; call it before the first tensor. */
void gguf_writer_alignment(struct gguf_writer *w, uint32_t alignment);

/* Adds a tensor. dims[0] is the row length. `data` NULL writes zeros. */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype type, int n_dims, const uint64_t *dims,
                        const void *data);

/* Adds only the record of a tensor, with these fields, counted in n_tensors; no data. */
void gguf_writer_tensor_record(struct gguf_writer *w, const char *name, size_t name_len, uint32_t type, uint32_t n_dims,
                               const uint64_t *dims, uint64_t offset);

/* Adds the start of a metadata record, counted in n_kv: key of key_len bytes and the type. Follow it with append_*. */
void gguf_writer_kv_head(struct gguf_writer *w, const char *key, size_t key_len, uint32_t type);

/* Append little-endian numbers to `b`, for handmade records. */
void gguf_writer_append_u32(struct buf *b, uint32_t v);
void gguf_writer_append_u64(struct buf *b, uint64_t v);

/* Writes the whole file into `out` (initialized by the caller). The writer can be changed and finished again. */
void gguf_writer_finish(const struct gguf_writer *w, struct buf *out);

/* Writes bytes to a new file at `path`; false: failed. */
MUST_CHECK bool gguf_writer_save(const struct buf *bytes, const char *path);

#endif
