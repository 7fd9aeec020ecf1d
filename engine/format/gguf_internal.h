/* Shared by the files of the GGUF reader and their tests. */
#ifndef INFCGI_FORMAT_GGUF_INTERNAL_H
#define INFCGI_FORMAT_GGUF_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/quant/row_mapped.h"

struct gguf {
    struct io_map map; /* if is_borrowed: fd -1 and not owned */
    bool is_borrowed;
    uint32_t version;
    uint64_t alignment;
    uint64_t data_offset;
    struct gguf_kv *kv; /* file order */
    size_t n_kv;
    struct gguf_tensor *tensors; /* file order */
    struct row_mapped *rows;     /* [n_tensors] rows of the file's tensors; or NULL */
    size_t n_tensors;
    uint32_t *kv_by_key;        /* indexes sorted by key */
    uint32_t *tensors_by_name;  /* indexes sorted by name */
    struct gguf **parts;        /* [n_more] other files of a split model, whose tensors are among `tensors`; or NULL */
    const struct io_map **more; /* [n_more] maps of the other files with data */
    size_t n_more;
    struct arena arena;             /* holds what gguf_build and gguf_join_scales made */
    const struct gguf_words *words; /* OPTIONAL: of its source */
    void (*release)(void *arg);     /* OPTIONAL: called by gguf_close */
    void *release_arg;
};

enum {
    GGUF_HEADER_BYTES = 24,       /* magic, version, two counts */
    GGUF_MIN_KV_BYTES = 13,       /* smallest record seen: key length 8, type 4, value 1 */
    GGUF_MIN_TENSOR_BYTES = 24,   /* name length 8, dimension count 4, type 4, offset 8 */
    GGUF_DEFAULT_ALIGNMENT = 32,  /* GGUF specification */
    GGUF_MIN_ALIGNMENT = 8,       /* GGUF specification: a multiple of 8 */
    GGUF_MAX_ALIGNMENT = 1 << 20, /* own limit: well above any page or cache line */
};

/* Returns the bytes of a scalar type in the file; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

/* Parses g->map into the directory (gguf_parse.c). */
MUST_CHECK enum err gguf_parse(struct gguf *g, struct err_info *info);

/* Opens and parses one file, whole or a part. */
MUST_CHECK enum err gguf_open_file(const char *path, struct gguf **out, struct err_info *info);

/* If *g is a part of a split model, opens the other parts next to it at `path` (NULL: *g comes from memory) and makes
 * *g the whole (gguf_split.c). On failure the caller still closes *g, NULL or not. ERR_BAD_SPLIT, and errors of opening
 * the other parts; the message then begins with the part's name. */
MUST_CHECK enum err gguf_join_parts(const char *path, struct gguf **g, struct err_info *info);

/* gguf_layout.c. Both functions need all records of their kind; info->offset is the position of the later record.
 *
 * - gguf_index_keys fills kv_by_key. ERR_DUPLICATE_KEY.
 * - gguf_place_tensors fills tensors_by_name, checks the layout, converts each tensor's offset from the data section's
 *   to the file's, and sets its data. records_end: offset after the last tensor record. ERR_BAD_TENSOR_NAME (twice),
 *   ERR_BAD_SHAPE (Q2_0), ERR_BAD_OFFSET, ERR_TENSOR_OVERLAP (or a hole, or bytes of no tensor), ERR_TRUNCATED. */
MUST_CHECK enum err gguf_index_keys(struct gguf *g, struct err_info *info);
MUST_CHECK enum err gguf_place_tensors(struct gguf *g, uint64_t records_end, struct err_info *info);

/* Multiplies weights of type NVFP4 by the factors in their tensors "X.scale", which leave the directory
 * (gguf_scales.c). ERR_UNSUPPORTED_TYPE, ERR_BAD_SHAPE, ERR_BAD_HPARAM (about the factors), ERR_NOMEM. */
MUST_CHECK enum err gguf_join_scales(struct gguf *g, struct err_info *info);

/* Fills tensors_by_name. Returns the later of two tensors with the same name, or NULL. */
const struct gguf_tensor *gguf_index_tensors(struct gguf *g);

/* Returns the rows of a tensor whose data is set. Numbers beyond 32 bits become the largest one, which readers of rows
 * reject. */
struct row_mapped gguf_rows_of(const struct gguf_tensor *t);

/* Compares two strings: bytes, then length. */
int gguf_str_order(struct gguf_str a, struct gguf_str b);

#endif
