#include "engine/kv/disk/kv_index.h"

#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

void kv_index_fini(struct kv_index *x)
{
    mem_free(x->files);
    table_fini(&x->table);
    *x = (struct kv_index){0};
}

/* Names are SHA-256, so their first bytes are a hash. */
static uint64_t hash_of(const struct kv_name *name)
{
    uint64_t h;
    memcpy(&h, name->bytes, sizeof h);
    return h;
}

static uint64_t hash_file(const void *files, uint32_t i) { return hash_of(&((const struct kv_file *)files)[i].name); }

struct file_key {
    const struct kv_file *files;
    const struct kv_name *name;
    enum kv_snapshot_kind kind;
};

static ALWAYS_INLINE bool is_file(const void *key, uint32_t i)
{
    const struct file_key *k = key;
    return k->files[i].kind == k->kind && memcmp(&k->files[i].name, k->name, sizeof *k->name) == 0;
}

struct kv_file *kv_index_find(const struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    struct file_key key = {x->files, name, kind};
    uint32_t i = table_find(&x->table, hash_of(name), is_file, &key);
    return i != TABLE_NONE ? &x->files[i] : NULL;
}

enum err kv_index_put(struct kv_index *x, const struct kv_file *f)
{
    struct kv_file *old = kv_index_find(x, f->kind, &f->name);
    if (old == NULL) {
        TRY(mem_grow(&x->files, x->n, &x->cap, sizeof *x->files, MEM_KV));
        TRY(table_reserve(&x->table, x->n + 1, hash_file, x->files, MEM_KV));
        table_add(&x->table, hash_of(&f->name), (uint32_t)x->n);
        old = &x->files[x->n++];
        old->bytes = 0;
    }
    x->bytes += f->bytes - old->bytes;
    *old = *f;
    return ERR_OK;
}

void kv_index_remove(struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    struct kv_file *f = kv_index_find(x, kind, name);
    if (f == NULL) {
        return;
    }
    uint32_t i = (uint32_t)(f - x->files), last = (uint32_t)x->n - 1;
    x->bytes -= f->bytes;
    table_remove(&x->table, hash_of(name), i, hash_file, x->files);
    if (i != last) {
        table_renumber(&x->table, hash_of(&x->files[last].name), last, i);
        *f = x->files[last];
    }
    x->n--;
}

static int by_use(const void *a, const void *b)
{
    int64_t x = ((const struct kv_file *)a)->used_ns, y = ((const struct kv_file *)b)->used_ns;
    return (x > y) - (x < y);
}

struct kv_file *kv_index_oldest(const struct kv_index *x, uint64_t most, size_t *n)
{
    *n = 0;
    struct kv_file *all = x->bytes > most ? mem_zalloc_array(x->n, sizeof *all, MEM_KV) : NULL;
    if (all == NULL) {
        return NULL;
    }
    memcpy(all, x->files, x->n * sizeof *all);
    qsort(all, x->n, sizeof *all, by_use);
    for (uint64_t left = x->bytes; left > most && *n < x->n; ++*n) {
        left -= all[*n].bytes;
    }
    return all;
}
