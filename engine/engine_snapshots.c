/* Decides which snapshots on disk (kv_disk.h) belong to this model: those that the same program made on the same kind
 * of machine from the same weights. */
#include "engine/engine_internal.h"

#include "engine/base/io.h"
#include "engine/format/gguf.h"
#include "engine/kernels/kern.h"
#include "engine/tensor/row_source.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <string.h>

static void put_name(struct buf *b, const char *what, const struct kv_name *name)
{
    buf_printf(b, "%s ", what);
    for (int i = 0; i < KV_NAME_BYTES; i++) {
        buf_printf(b, "%02x", name->bytes[i]);
    }
    buf_append(b, "\n", 1);
}

/* The program's bytes stand for everything that computes: kernels, plans, the form of pages. */
static enum err put_program(struct buf *b, struct err_info *info)
{
    struct io_map map;
    struct kv_name name;
    TRY(io_map_open("/proc/self/exe", &map, info));
    enum err err = kv_name_of(map.data, map.bytes, &name);
    io_map_close(&map);
    TRY(err);
    put_name(b, "program", &name);
    char flags[KERN_CPU_FLAGS_BYTES];
    kern_cpu_flags(flags);
    buf_printf(b, "libc %s\ncpu %s\n", gnu_get_libc_version(), flags);
    return ERR_OK;
}

/* Adds the first, middle and last row of every weight to the file's size and time, as for packed weights
 * (cpu_pack_cache.c). */
static enum err put_weights(struct engine *e, struct buf *b, struct err_info *info)
{
    const struct plan *p = e->plan;
    uint64_t longest = 1;
    for (int32_t i = 0; i < p->n_weights; i++) {
        longest = MAX_OF(longest, p->weights[i].row_bytes);
    }
    struct buf samples;
    buf_init(&samples, 0, MEM_GENERAL);
    void *room = mem_alloc((size_t)longest, MEM_GENERAL);
    for (int32_t i = 0; room != NULL && i < p->n_weights; i++) {
        const struct plan_weight *w = &p->weights[i];
        const uint32_t at[] = {0, w->n_out / 2, w->n_out - 1};
        for (size_t k = 0; k < ARRAY_LEN(at); k++) {
            uint64_t stride;
            struct kv_name name;
            const void *row = row_source_rows(w->source, at[k], 1, room, &stride);
            if (kv_name_of(row, (size_t)w->row_bytes, &name) == ERR_OK) {
                buf_append(&samples, (const char *)name.bytes, sizeof name.bytes);
            }
        }
        w->source->ops->done(w->source, 0, w->n_out, engine_drop_pages, e);
    }
    struct kv_name head, name;
    enum err err = room != NULL ? buf_ok(&samples) : ERR_NOMEM;
    err = err == ERR_OK ? kv_name_of(samples.data, samples.len, &name) : err;
    err = err == ERR_OK ? kv_name_of(gguf_map(e->gguf)->data, (size_t)gguf_data_offset(e->gguf), &head) : err;
    mem_free(room);
    buf_fini(&samples);
    if (err != ERR_OK) {
        return err_set(info, err, NULL, "no fingerprint of the weights: %s", err_text(err));
    }
    put_name(b, "weights", &name);
    put_name(b, "head", &head);
    buf_printf(b, "file %" PRIu64 " %" PRId64 "\n", gguf_file_bytes(e->gguf), gguf_mtime_ns(e->gguf));
    if (e->draft_file != NULL) {
        buf_printf(b, "draft %" PRIu64 " %" PRId64 "\n", gguf_file_bytes(e->draft_file), gguf_mtime_ns(e->draft_file));
    }
    return ERR_OK;
}

/* Hashes everything that decides the bytes of a page of given tokens. */
static enum err make_fingerprint(struct engine *e, const struct engine_config *cfg, const struct engine_backend *b,
                                 struct kv_name *out, struct err_info *info)
{
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    enum err err = put_program(&text, info);
    err = err == ERR_OK ? put_weights(e, &text, info) : err;
    size_t page_bytes =
        b->takes.page + b->takes.window; /* both in one file, in the order of layers, whatever the number of pools */
    buf_printf(&text, "backend %s\nkernels %s\nkeys %s\nvalues %s\npage %zu\nstate %zu\n", e->info.backend,
               e->info.kernels, e->info.cache_type_k, e->info.cache_type_v, page_bytes, b->takes.state);
    buf_printf(&text, "precise %d\nquantize %s\nctx %u\n", cfg->high_precision,
               cfg->quantize != NULL ? cfg->quantize : "off", e->info.n_ctx);
    for (int i = 0; i < e->info.n_devices; i++) {
        buf_printf(&text, "device %s %s %s\n", e->info.devices[i].name, e->info.devices[i].id,
                   e->info.devices[i].choice);
    }
    if (err == ERR_OK && (err = buf_ok(&text)) == ERR_OK) {
        err = kv_name_of(text.data, text.len, out);
    }
    buf_fini(&text);
    return err == ERR_OK || info->code == err
               ? err
               : err_set(info, err, NULL, "no fingerprint of the model: %s", err_text(err));
}

enum err engine_open_snapshots(struct engine *e, const struct engine_config *cfg, const struct engine_backend *b,
                               struct err_info *info)
{
    if (cfg->cache_dir == NULL || e->plan->is_bidirectional) { /* encoders keep nothing */
        return ERR_OK;
    }
    struct err_info why = {0};
    struct kv_disk_config dc = {.path = cfg->cache_dir,
                                .limit_bytes = cfg->cache_disk_bytes,
                                .bytes = {b->takes.page + b->takes.window, b->takes.state},
                                .tell = cfg->snapshots,
                                .tell_arg = cfg->snapshots_arg};
    enum err err = make_fingerprint(e, cfg, b, &dc.fingerprint, &why);
    err = err == ERR_OK ? kv_disk_open(&dc, &e->disk, &why) : err;
    if (err == ERR_CONFIG || err == ERR_NOMEM) {
        *info = why;
        return err;
    }
    if (err != ERR_OK && cfg->snapshots != NULL) {
        char text[sizeof why.text + 64];
        snprintf(text, sizeof text, "there are no snapshots: %s", why.text);
        cfg->snapshots(cfg->snapshots_arg, text);
    }
    return ERR_OK;
}
