/* Reads a GGUF model file, version 2 or 3 [GGUF specification, ggml docs/gguf.md]: metadata and a tensor directory over
 * a read-only map. Every count, offset and size is checked against the file before memory is allocated; data is never
 * copied. A split model, PREFIX-00001-of-00003.gguf and so on, is opened by the name of any of its files and looks like
 * one file. Threads: after gguf_open the object is read-only and can be shared. */
#ifndef INFCGI_FORMAT_GGUF_H
#define INFCGI_FORMAT_GGUF_H

#include "engine/base/err.h"
#include "engine/base/io.h"
#include "engine/tensor/dtype.h"
#include "engine/tensor/row_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Metadata value types; values are the file's ids. */
enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_TYPE_COUNT
};

/* Kinds of vocabulary entries: the values of tokenizer.ggml.token_type. */
enum token_kind {
    TOKEN_HOLE = 0, /* in no file: no token has the id */
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* special tokens such as <|im_end|>, not shown */
    TOKEN_USER_DEFINED = 4, /* found in the text before the model runs, and shown; a mark or text (tokenizer_marks.c) */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* Limits of the reader; a file beyond them is rejected with the limit's name (docs/formats/gguf.md). */
enum {
    GGUF_MAX_DIMS = 4,
    GGUF_MAX_KEYS = 65536,
    GGUF_MAX_KEY_BYTES = 256,
    GGUF_MAX_STRING_BYTES = 16 << 20,
    GGUF_MAX_ARRAY = 1 << 24,
    GGUF_MAX_TENSORS = 65536,
    GGUF_MAX_TENSOR_NAME_BYTES = 63,
};

/* Bytes borrowed from the map; not NUL-terminated. */
struct gguf_str {
    const char *data;
    size_t len;
};

/* Return whether the bytes are `text`, or end with it. */
bool gguf_str_is(struct gguf_str s, const char *text);
bool gguf_str_ends(struct gguf_str s, const char *text);

struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type;       /* GGUF_ARRAY for arrays */
    enum gguf_type elem_type;  /* of an array; else == type */
    uint64_t n;                /* elements; 1 for a scalar */
    const unsigned char *data; /* first element in the map, unaligned, little-endian */
    uint64_t offset;           /* of the record in the file, for messages */
};

struct gguf_tensor {
    struct gguf_str name;
    enum dtype type;
    int n_dims;                      /* 1..4 */
    uint64_t dims[GGUF_MAX_DIMS];    /* dims[0] is the row length (fastest); unused ones are 1 */
    const struct row_source *source; /* its rows, dims[1] * dims[2] * dims[3] of them */
    const void *data;                /* address of all rows, aligned to the file's alignment; NULL: not in one piece */
    uint64_t bytes;                  /* exact size */
    uint64_t offset;                 /* of the data in its file */
};

struct gguf;

/* Opens and checks the file at `path`, and the other parts of a split model. Any code of the "model files" part of
 * ERR_LIST, ERR_NOMEM, ERR_IO; info->offset is the position of the fault. The caller owns *out until gguf_close. */
MUST_CHECK enum err gguf_open(const char *path, struct gguf **out, struct err_info *info);
void gguf_close(struct gguf **g);

/* Parses bytes already in memory (tests, fuzzing). `data` is borrowed until gguf_close. */
MUST_CHECK enum err gguf_open_memory(const void *data, size_t n, struct gguf **out, struct err_info *info);

uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_alignment(const struct gguf *g);
uint64_t gguf_data_offset(const struct gguf *g);     /* where tensor data starts in the first file */
const struct io_map *gguf_map(const struct gguf *g); /* of the first file, for io_map_shrunk; fd -1: memory */
size_t gguf_n_files(const struct gguf *g);           /* 1, or the parts of a split model */
uint64_t gguf_file_bytes(const struct gguf *g);      /* of all files */
bool gguf_shrunk(const struct gguf *g);              /* io_map_shrunk of any file */
int64_t gguf_mtime_ns(const struct gguf *g);         /* last modification of the newest file */

/* Tells the system that n bytes at `data`, in one of the maps, are no longer needed (io_map_drop). */
void gguf_drop(const struct gguf *g, const void *data, uint64_t n);

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
/* Returns the entry, or NULL; O(log n). */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed getters. If the key is absent, *_or functions return `fallback` and the others ERR_BAD_HPARAM. A key of another
 * type is ERR_BAD_TYPE (an integer accepts any integer type whose value fits; a float accepts f32 and f64). info names
 * the key, what was expected and what was found, and the offset. */
MUST_CHECK enum err gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct err_info *info);
MUST_CHECK enum err gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t fallback, uint64_t *out,
                                    struct err_info *info);
MUST_CHECK enum err gguf_get_f64(const struct gguf *g, const char *key, double *out, struct err_info *info);
MUST_CHECK enum err gguf_get_f64_or(const struct gguf *g, const char *key, double fallback, double *out,
                                    struct err_info *info);
MUST_CHECK enum err gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *out,
                                     struct err_info *info);
MUST_CHECK enum err gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err_info *info);
/* *out = {NULL, 0} if absent. */
MUST_CHECK enum err gguf_get_str_or_null(const struct gguf *g, const char *key, struct gguf_str *out,
                                         struct err_info *info);

/* Returns the array `key` with elements of exactly `elem_type`; *out->n is its length. ERR_BAD_HPARAM if absent. */
MUST_CHECK enum err gguf_get_array(const struct gguf *g, const char *key, enum gguf_type elem_type,
                                   const struct gguf_kv **out, struct err_info *info);

/* Iterates over a string array: *cursor starts as kv->data; returns the next string and advances the cursor. Call it at
 * most kv->n times. gguf_open has checked the lengths. */
struct gguf_str gguf_next_str(const unsigned char **cursor);

/* Return element i of a numeric array (i < kv->n), as a double or a signed integer (u64 beyond INT64_MAX saturates). */
double gguf_elem_f64(const struct gguf_kv *kv, uint64_t i);
int64_t gguf_elem_i64(const struct gguf_kv *kv, uint64_t i);

/* Rewrites errors about keys and tensors in the words of the source that they were made from (gguf_build.h). */
struct gguf_words {
    void (*tell)(const struct gguf_words *w, struct err_info *info); /* changes where and text */
};
/* Rewrites an error about g's keys and tensors in the words of g's source; leaves errors of GGUF files unchanged. info
 * OPTIONAL. */
void gguf_tell(const struct gguf *g, struct err_info *info);

const char *gguf_type_name(enum gguf_type type); /* "u32" */

#endif
