/* GGUF: tensors NAME.in_sum2, sums of squared inputs, and NAME.counts, their number of rows. .dat: counted entries of
 * name, number of calls, values. Values stay sums, because their divisor is the same for a whole row of inputs.
 * [llama.cpp b11434, common/imatrix-loader.cpp] */
#include "engine/convert/imatrix.h"

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_ENTRIES = GGUF_MAX_TENSORS, NAME_BYTES = GGUF_MAX_TENSOR_NAME_BYTES + 1 };

static const char sums_suffix[] = ".in_sum2";

struct entry {
    char name[NAME_BYTES];
    const float *values;
    uint64_t n;
};

struct imatrix {
    struct gguf *gguf;  /* GGUF form; values are in its map */
    struct arena arena; /* .dat form, which is unaligned: values are copied */
    struct entry *entries;
    size_t n_entries;
};

static enum err add_entry(struct imatrix *m, struct gguf_str name, const float *values, uint64_t n,
                          struct err_info *info)
{
    struct entry *e = &m->entries[m->n_entries++];
    *e = (struct entry){.values = values, .n = n};
    memcpy(e->name, name.data, name.len);
    for (uint64_t i = 0; i < n; i++) {
        if (!(values[i] >= 0) || isinf(values[i])) {
            return err_set(info, ERR_BAD_TENSOR_SHAPE, e->name,
                           "importance of '%s': expected finite values of 0 or more, found %g at %" PRIu64, e->name,
                           (double)values[i], i);
        }
    }
    return ERR_OK;
}

/* --- GGUF --------------------------------------------------------------------------------------------------------- */

static enum err read_gguf(struct imatrix *m, struct err_info *info)
{
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        size_t n = sizeof sums_suffix - 1;
        if (t->name.len <= n || !gguf_str_ends(t->name, sums_suffix)) {
            continue;
        }
        if (t->type != DTYPE_F32) {
            return err_set(info, ERR_BAD_HEADER, NULL, "tensor '%.*s': expected F32, found %s", (int)t->name.len,
                           t->name.data, dtype_info(t->type)->name);
        }
        TRY(add_entry(m, (struct gguf_str){t->name.data, t->name.len - n}, t->data, t->bytes / sizeof(float), info));
    }
    return m->n_entries > 0 ? ERR_OK
                            : err_set(info, ERR_BAD_HEADER, NULL,
                                      "expected an importance matrix, found a GGUF file without tensors NAME.in_sum2");
}

/* --- .dat --------------------------------------------------------------------------------------------------------- */

struct cursor {
    const unsigned char *at;
    size_t left;
};

static bool take(struct cursor *c, void *to, size_t n)
{
    if (c->left < n) {
        return false;
    }
    memcpy(to, c->at, n);
    c->at += n;
    c->left -= n;
    return true;
}

static enum err read_entry(struct imatrix *m, struct cursor *c, int32_t i, struct err_info *info)
{
    int32_t name_len, calls, n;
    char name[NAME_BYTES];
    bool ok = take(c, &name_len, sizeof name_len) && name_len > 0 && name_len < NAME_BYTES &&
              take(c, name, (size_t)name_len) && take(c, &calls, sizeof calls) && take(c, &n, sizeof n) && n > 0 &&
              c->left / sizeof(float) >= (size_t)n;
    if (!ok) {
        return err_set(info, ERR_BAD_HEADER, NULL,
                       "expected an importance matrix, found a file whose entry %" PRId32 " is not one", i);
    }
    float *values = arena_alloc(&m->arena, (size_t)n * sizeof *values);
    TRY_MEM_FOR(values != NULL, info, "out of memory for the importance matrix");
    (void)take(c, values, (size_t)n * sizeof *values);
    return add_entry(m, (struct gguf_str){name, (size_t)name_len}, values, (uint64_t)n, info);
}

static enum err read_dat(struct imatrix *m, struct cursor c, struct err_info *info)
{
    int32_t n;
    if (!take(&c, &n, sizeof n) || n < 1 || n > MAX_ENTRIES || c.left / 16 < (size_t)n) {
        return err_set(info, ERR_BAD_HEADER, NULL,
                       "expected an importance matrix, a GGUF or .dat file of llama-imatrix");
    }
    m->entries = mem_zalloc_array((size_t)n, sizeof *m->entries, MEM_GENERAL);
    TRY_MEM_FOR(m->entries != NULL, info, "out of memory for the importance matrix");
    for (int32_t i = 0; i < n; i++) {
        TRY(read_entry(m, &c, i, info));
    }
    return ERR_OK;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static enum err read_any(struct imatrix *m, const char *path, struct err_info *info)
{
    struct io_map map;
    TRY(io_map_open(path, &map, info));
    bool is_gguf = map.bytes >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    enum err err = is_gguf ? ERR_OK : read_dat(m, (struct cursor){map.data, map.bytes}, info);
    io_map_close(&map);
    if (!is_gguf) {
        return err;
    }
    TRY(gguf_open(path, &m->gguf, info));
    m->entries = mem_zalloc_array(gguf_n_tensors(m->gguf) + 1, sizeof *m->entries, MEM_GENERAL);
    TRY_MEM_FOR(m->entries != NULL, info, "out of memory for the importance matrix");
    return read_gguf(m, info);
}

enum err imatrix_open(const char *path, struct imatrix **out, struct err_info *info)
{
    *out = NULL;
    struct imatrix *m = mem_zalloc(sizeof *m, MEM_GENERAL);
    TRY_MEM_FOR(m != NULL, info, "out of memory for the importance matrix");
    arena_init(&m->arena, 1 << 20, 0, MEM_GENERAL);
    enum err err = read_any(m, path, info);
    if (err != ERR_OK) {
        imatrix_close(&m);
        return err;
    }
    *out = m;
    return ERR_OK;
}

void imatrix_close(struct imatrix **im)
{
    struct imatrix *m = *im;
    if (m != NULL) {
        gguf_close(&m->gguf);
        arena_fini(&m->arena);
        mem_free(m->entries);
        mem_free(m);
        *im = NULL;
    }
}

size_t imatrix_n_entries(const struct imatrix *m) { return m->n_entries; }

const float *imatrix_find(const struct imatrix *m, const char *name, uint64_t *n)
{
    for (size_t i = 0; i < m->n_entries; i++) {
        if (strcmp(m->entries[i].name, name) == 0) {
            *n = m->entries[i].n;
            return m->entries[i].values;
        }
    }
    return NULL;
}
