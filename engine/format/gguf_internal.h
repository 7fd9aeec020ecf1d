/* Shared by the files of the GGUF reader and their tests. */
#ifndef INFCGI_FORMAT_GGUF_INTERNAL_H
#define INFCGI_FORMAT_GGUF_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/format/gguf.h"

struct gguf {
    struct io_map map; /* fd -1 and not ours when is_borrowed */
    bool is_borrowed;
    uint32_t version;
    uint64_t alignment;
    uint64_t data_offset;
    struct gguf_kv *kv; /* file order */
    size_t n_kv;
    struct gguf_tensor *tensors; /* file order */
    size_t n_tensors;
    uint32_t *kv_by_key;       /* indexes sorted by key */
    uint32_t *tensors_by_name; /* indexes sorted by name */
};

enum {
    GGUF_HEADER_BYTES = 24,       /* magic, version, two counts */
    GGUF_MIN_KV_BYTES = 13,       /* key length 8, one key byte... at least a type 4 and a value 1 */
    GGUF_MIN_TENSOR_BYTES = 24,   /* name length 8, n_dims 4, type 4, offset 8 */
    GGUF_DEFAULT_ALIGNMENT = 32,  /* GGUF specification */
    GGUF_MAX_ALIGNMENT = 1 << 20,
};

/* Bytes of a scalar type in the file; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

/* Parses g->map into the directory (gguf_parse.c). */
MUST_CHECK enum err gguf_parse(struct gguf *g, struct err_info *info);

/* Order of two strings: bytes, then length. */
int gguf_str_order(struct gguf_str a, struct gguf_str b);

#endif
