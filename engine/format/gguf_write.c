#include "engine/format/gguf_write.h"

#include "engine/base/ck.h"
#include "engine/format/gguf_internal.h"

#include <inttypes.h>
#include <string.h>

enum { VERSION = 3 };

struct gguf_sink {
    struct io_writer file;
    uint64_t left; /* bytes that the current tensor still needs */
};

enum err gguf_sink_put(struct gguf_sink *to, const void *data, size_t n, struct err_info *info)
{
    if (n > to->left) {
        return err_set(info, ERR_INTERNAL, NULL, "a tensor got more bytes than it has");
    }
    to->left -= n;
    return io_writer_append(&to->file, data, n, info);
}

uint64_t gguf_value_bytes(const struct gguf_kv *kv)
{
    if (kv->elem_type != GGUF_STRING) {
        return kv->n * gguf_type_bytes(kv->elem_type);
    }
    const unsigned char *cursor = kv->data;
    for (uint64_t i = 0; i < kv->n; i++) {
        (void)gguf_next_str(&cursor);
    }
    return (uint64_t)(cursor - kv->data);
}

/* --- the directory ------------------------------------------------------------------------------------------------ */

static void put_u32(struct buf *b, uint32_t v) { buf_append(b, &v, sizeof v); }
static void put_u64(struct buf *b, uint64_t v) { buf_append(b, &v, sizeof v); }

static void put_str(struct buf *b, struct gguf_str s)
{
    put_u64(b, s.len);
    buf_append(b, s.data, s.len);
}

static void put_kv(struct buf *b, const struct gguf_kv *kv)
{
    put_str(b, kv->key);
    put_u32(b, (uint32_t)kv->type);
    if (kv->type == GGUF_ARRAY) {
        put_u32(b, (uint32_t)kv->elem_type);
        put_u64(b, kv->n);
    }
    buf_append(b, kv->data, (size_t)gguf_value_bytes(kv));
}

static void put_tensor(struct buf *b, const struct gguf_tensor *t, uint64_t offset)
{
    put_str(b, t->name);
    put_u32(b, (uint32_t)t->n_dims);
    for (int i = 0; i < t->n_dims; i++) {
        put_u64(b, t->dims[i]);
    }
    put_u32(b, (uint32_t)dtype_in_file(t->type));
    put_u64(b, offset);
}

/* Writes everything before the data, padded; *data_bytes: bytes of data that follow. */
static enum err put_directory(const struct gguf *g, uint64_t alignment, struct buf *b, uint64_t *data_bytes,
                              struct err_info *info)
{
    buf_append(b, "GGUF", 4);
    put_u32(b, VERSION);
    put_u64(b, gguf_n_tensors(g));
    put_u64(b, gguf_n_kv(g));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        put_kv(b, gguf_kv_at(g, i));
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        put_tensor(b, t, offset);
        if (!ck_add(offset, t->bytes, &offset) || !ck_align(offset, alignment, &offset)) {
            return err_set(info, ERR_BAD_SHAPE, NULL, "expected a model below 2^64 bytes, found more");
        }
    }
    *data_bytes = offset;
    while (b->len % alignment != 0 && buf_ok(b) == ERR_OK) {
        buf_putc(b, '\0');
    }
    return buf_ok(b) == ERR_OK ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for the file's directory");
}

/* --- data --------------------------------------------------------------------------------------------------------- */

static enum err put_data(struct gguf_sink *to, const struct gguf *g, uint64_t alignment,
                         const struct gguf_write_options *o, struct err_info *info)
{
    static const unsigned char zeros[4096];
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        to->left = t->bytes;
        if (o->fill != NULL) {
            TRY(o->fill(o->arg, t, i, to, info));
        } else if (t->data != NULL) {
            TRY(gguf_sink_put(to, t->data, (size_t)t->bytes, info));
        } else {
            return err_set(info, ERR_INTERNAL, NULL, "a tensor whose rows must be made");
        }
        if (to->left != 0) {
            return err_set(info, ERR_INTERNAL, NULL, "tensor '%.*s': got %" PRIu64 " of %" PRIu64 " bytes",
                           (int)t->name.len, t->name.data, t->bytes - to->left, t->bytes);
        }
        for (uint64_t pad = (alignment - t->bytes % alignment) % alignment, n; pad > 0; pad -= n) {
            n = MIN_OF(pad, (uint64_t)sizeof zeros);
            TRY(io_writer_append(&to->file, zeros, (size_t)n, info));
        }
    }
    return ERR_OK;
}

enum err gguf_write(const char *path, const struct gguf *g, const struct gguf_write_options *o, struct err_info *info)
{
    struct gguf_sink to = {.file = {.fd = -1}};
    struct buf head;
    uint64_t alignment, data_bytes = 0;
    TRY(gguf_get_u64_or(g, "general.alignment", GGUF_DEFAULT_ALIGNMENT, &alignment, info));
    if (alignment < GGUF_MIN_ALIGNMENT || alignment > GGUF_MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0) {
        return err_set(info, ERR_BAD_ALIGNMENT, "general.alignment",
                       "general.alignment: expected a power of two from %d to %d, found %" PRIu64, GGUF_MIN_ALIGNMENT,
                       GGUF_MAX_ALIGNMENT, alignment);
    }
    if (*path == '\0') {
        return err_set(info, ERR_FILE, NULL, "expected the name of a file, found an empty one");
    }
    if (io_is_folder(path) || (!o->may_replace && io_exists(path))) {
        return err_set(info, ERR_FILE, NULL, "expected the name of a new file, found a %s of that name",
                       io_is_folder(path) ? "folder" : "file");
    }
    buf_init(&head, 0, MEM_GENERAL);
    enum err err = put_directory(g, alignment, &head, &data_bytes, info);
    err = err != ERR_OK ? err : io_writer_open(&to.file, path, 0666, info);
    err = err != ERR_OK ? err : io_writer_reserve(&to.file, head.len + data_bytes, info);
    err = err != ERR_OK ? err : io_writer_append(&to.file, head.data, head.len, info);
    err = err != ERR_OK ? err : put_data(&to, g, alignment, o, info);
    buf_fini(&head);
    if (err != ERR_OK) {
        io_writer_abort(&to.file);
        return err;
    }
    return io_writer_commit(&to.file, IO_SYNC | (o->may_replace ? IO_REPLACE : 0u), info);
}
