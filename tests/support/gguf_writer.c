/* The GGUF builder. Little-endian hosts only, like the reader. */
#include "tests/support/gguf_writer.h"

#include <stdio.h>
#include <string.h>

void gguf_writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){.version = 3, .alignment = 32};
    buf_init(&w->kv, 0, MEM_GENERAL);
    buf_init(&w->tensors, 0, MEM_GENERAL);
    buf_init(&w->data, 0, MEM_GENERAL);
}

void gguf_writer_fini(struct gguf_writer *w)
{
    buf_fini(&w->kv);
    buf_fini(&w->tensors);
    buf_fini(&w->data);
}

void gguf_writer_append_u32(struct buf *b, uint32_t v) { buf_append(b, &v, sizeof v); }
void gguf_writer_append_u64(struct buf *b, uint64_t v) { buf_append(b, &v, sizeof v); }

static void append_str(struct buf *b, const char *s, size_t n)
{
    gguf_writer_append_u64(b, n);
    buf_append(b, s, n);
}

static void pad(struct buf *b, uint64_t alignment)
{
    while (buf_ok(b) == ERR_OK && b->len % alignment != 0) {
        buf_putc(b, '\0');
    }
}

static size_t type_bytes(enum gguf_type type)
{
    static const size_t bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return bytes[type];
}

void gguf_writer_kv_head(struct gguf_writer *w, const char *key, size_t key_len, uint32_t type)
{
    append_str(&w->kv, key, key_len);
    gguf_writer_append_u32(&w->kv, type);
    w->n_kv++;
}

void gguf_writer_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, const void *value)
{
    gguf_writer_kv_head(w, key, strlen(key), type);
    buf_append(&w->kv, value, type_bytes(type));
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type elem_type, uint64_t n, const void *values)
{
    gguf_writer_kv_head(w, key, strlen(key), GGUF_ARRAY);
    gguf_writer_append_u32(&w->kv, elem_type);
    gguf_writer_append_u64(&w->kv, n);
    buf_append(&w->kv, values, (size_t)n * type_bytes(elem_type));
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v) { gguf_writer_scalar(w, key, GGUF_U32, &v); }
void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t v) { gguf_writer_scalar(w, key, GGUF_U64, &v); }
void gguf_writer_f32(struct gguf_writer *w, const char *key, float v) { gguf_writer_scalar(w, key, GGUF_F32, &v); }

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v)
{
    unsigned char byte = v ? 1 : 0;
    gguf_writer_scalar(w, key, GGUF_BOOL, &byte);
}

void gguf_writer_str_n(struct gguf_writer *w, const char *key, const char *value, size_t n)
{
    gguf_writer_kv_head(w, key, strlen(key), GGUF_STRING);
    append_str(&w->kv, value, n);
}

void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_writer_str_n(w, key, value, strlen(value));
}

void gguf_writer_str_array(struct gguf_writer *w, const char *key, uint64_t n, const char *const *values)
{
    gguf_writer_array(w, key, GGUF_STRING, n, NULL); /* strings have no fixed size: nothing follows the count yet */
    for (uint64_t i = 0; i < n; i++) {
        append_str(&w->kv, values[i], strlen(values[i]));
    }
}

void gguf_writer_alignment(struct gguf_writer *w, uint32_t alignment)
{
    gguf_writer_u32(w, "general.alignment", alignment);
    w->alignment = alignment;
}

void gguf_writer_tensor_record(struct gguf_writer *w, const char *name, size_t name_len, uint32_t type, uint32_t n_dims,
                               const uint64_t *dims, uint64_t offset)
{
    append_str(&w->tensors, name, name_len);
    gguf_writer_append_u32(&w->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 2 * GGUF_MAX_DIMS; i++) { /* a lie about n_dims needs no billion dims */
        gguf_writer_append_u64(&w->tensors, dims[i]);
    }
    gguf_writer_append_u32(&w->tensors, type);
    gguf_writer_append_u64(&w->tensors, offset);
    w->n_tensors++;
}

void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype type, int n_dims, const uint64_t *dims,
                        const void *data)
{
    gguf_writer_tensor_record(w, name, strlen(name), dtype_in_file(type), (uint32_t)n_dims, dims, w->data.len);
    uint64_t n_rows = 1, bytes;
    for (int i = 1; i < n_dims; i++) {
        n_rows *= dims[i];
    }
    if (!dtype_tensor_bytes(type, dims[0], n_rows, &bytes)) {
        w->data.err = ERR_INTERNAL; /* the test asked for a shape that cannot be: shows in buf_ok */
        return;
    }
    if (data != NULL) {
        buf_append(&w->data, data, (size_t)bytes);
    } else {
        for (uint64_t i = 0; i < bytes; i++) {
            buf_putc(&w->data, '\0');
        }
    }
    w->last_bytes = w->data.len;
    pad(&w->data, w->alignment);
}

void gguf_writer_finish(const struct gguf_writer *w, struct buf *out)
{
    buf_reset(out);
    buf_append(out, "GGUF", 4);
    gguf_writer_append_u32(out, w->version);
    gguf_writer_append_u64(out, w->n_tensors);
    gguf_writer_append_u64(out, w->n_kv);
    buf_append(out, w->kv.data, w->kv.len);
    buf_append(out, w->tensors.data, w->tensors.len);
    if (w->data.len > 0) {
        pad(out, w->alignment);
        buf_append(out, w->data.data, w->is_last_padded ? w->data.len : w->last_bytes);
    }
    if (out->err == ERR_OK) {
        out->err = w->kv.err != ERR_OK ? w->kv.err : w->tensors.err != ERR_OK ? w->tensors.err : w->data.err;
    }
}

bool gguf_writer_save(const struct buf *bytes, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        return false;
    }
    bool ok = fwrite(bytes->data, 1, bytes->len, f) == bytes->len;
    return fclose(f) == 0 && ok;
}
