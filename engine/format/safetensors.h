/* Reads one SafeTensors file [safetensors 0.5 format, README of huggingface/safetensors]: a directory of tensors over a
 * read-only map. 8 bytes of header length, a JSON object of that length, then the data, tiled by the tensors without
 * holes. Every length, shape and range is checked against the file; data is never copied. Threads: after
 * safetensors_open the object is read-only and can be shared. */
#ifndef INFCGI_FORMAT_SAFETENSORS_H
#define INFCGI_FORMAT_SAFETENSORS_H

#include "engine/base/err.h"
#include "engine/base/io.h"

#include <stddef.h>
#include <stdint.h>

/* Limits of the reader (docs/formats/safetensors.md). */
enum {
    SAFETENSORS_MAX_HEADER_BYTES = 32 << 20, /* the format allows 100 MB, which would parse for seconds */
    SAFETENSORS_MAX_TENSORS = 1 << 16,
    SAFETENSORS_MAX_VALUES = 1 << 20, /* of the header: names, dtypes, dimensions, offsets */
    SAFETENSORS_MAX_DIMS = 8,
    SAFETENSORS_MAX_NAME_BYTES = 255,
};

/* Element types: X(enum, name in the file, bits). */
#define SAFETENSORS_DTYPES(X)                                                                                          \
    X(ST_BOOL, "BOOL", 8)                                                                                              \
    X(ST_U8, "U8", 8)                                                                                                  \
    X(ST_I8, "I8", 8)                                                                                                  \
    X(ST_F8_E4M3, "F8_E4M3", 8)                                                                                        \
    X(ST_F8_E5M2, "F8_E5M2", 8)                                                                                        \
    X(ST_F8_E8M0, "F8_E8M0", 8)                                                                                        \
    X(ST_U16, "U16", 16)                                                                                               \
    X(ST_I16, "I16", 16)                                                                                               \
    X(ST_F16, "F16", 16)                                                                                               \
    X(ST_BF16, "BF16", 16)                                                                                             \
    X(ST_U32, "U32", 32)                                                                                               \
    X(ST_I32, "I32", 32)                                                                                               \
    X(ST_F32, "F32", 32)                                                                                               \
    X(ST_U64, "U64", 64)                                                                                               \
    X(ST_I64, "I64", 64)                                                                                               \
    X(ST_F64, "F64", 64)

enum st_dtype {
#define ST_ENUM(id, name, bits) id,
    SAFETENSORS_DTYPES(ST_ENUM)
#undef ST_ENUM
        ST_DTYPE_COUNT
};

struct st_tensor {
    const char *name; /* UTF-8, NUL-terminated; owned by the object */
    enum st_dtype dtype;
    int n_dims;                          /* 0 .. 8 */
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* dims[n_dims - 1] is the row length (fastest), the reverse of GGUF */
    const void *data;                    /* in the map; unaligned */
    uint64_t bytes;                      /* exact size */
};

struct safetensors;

/* Opens and checks the file at `path`. ERR_FILE, ERR_IO, ERR_NOMEM, ERR_TRUNCATED_HEADER, ERR_BAD_HEADER_LENGTH,
 * ERR_BAD_HEADER, ERR_JSON_TOO_DEEP, ERR_DUPLICATE_KEY, ERR_COUNT_EXCEEDS_FILE, ERR_BAD_TENSOR_NAME, ERR_BAD_DTYPE,
 * ERR_BAD_SHAPE, ERR_BAD_OFFSET, ERR_TENSOR_OVERLAP (or a hole, or bytes of no tensor), ERR_SIZE_MISMATCH,
 * ERR_TRUNCATED. The caller owns *out until safetensors_close. */
MUST_CHECK enum err safetensors_open(const char *path, struct safetensors **out, struct err_info *info);

/* Parses bytes already in memory (tests, fuzzing). `data` is borrowed until safetensors_close. */
MUST_CHECK enum err safetensors_open_memory(const void *data, size_t n, struct safetensors **out,
                                            struct err_info *info);
void safetensors_close(struct safetensors **s);

size_t safetensors_n_tensors(const struct safetensors *s);
/* Returns tensor i in the order of their data. */
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i);
const struct io_map *safetensors_map(const struct safetensors *s);

const char *st_dtype_name(enum st_dtype dtype); /* "BF16" */
unsigned st_dtype_bits(enum st_dtype dtype);

#endif
