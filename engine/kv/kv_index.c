/* Linear probing, half of the slots empty at least; names are SHA-256, so their first bytes are the hash. */
#include "engine/kv/kv_index.h"

#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 256 };

void kv_index_fini(struct kv_index *x)
{
    mem_free(x->slots);
    *x = (struct kv_index){0};
}

static size_t home_of(const struct kv_index *x, const struct kv_name *name)
{
    uint64_t h;
    memcpy(&h, name->bytes, sizeof h);
    return (size_t)h & (x->n_slots - 1);
}

/* Where the file is, or the empty slot where it would be. There is one. */
static size_t slot_of(const struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    size_t i = home_of(x, name);
    while (x->slots[i].bytes != 0 && (x->slots[i].kind != kind || memcmp(&x->slots[i].name, name, sizeof *name) != 0)) {
        i = (i + 1) & (x->n_slots - 1);
    }
    return i;
}

struct kv_file *kv_index_find(const struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    struct kv_file *f = x->n != 0 ? &x->slots[slot_of(x, kind, name)] : NULL;
    return f != NULL && f->bytes != 0 ? f : NULL;
}

static enum err grow(struct kv_index *x)
{
    struct kv_index more = {.n_slots = x->n_slots != 0 ? 2 * x->n_slots : FIRST_SLOTS, .n = x->n, .bytes = x->bytes};
    more.slots = mem_zalloc_array(more.n_slots, sizeof *more.slots, MEM_KV);
    TRY_MEM(more.slots != NULL);
    for (size_t i = 0; i < x->n_slots; i++) {
        if (x->slots[i].bytes != 0) {
            more.slots[slot_of(&more, x->slots[i].kind, &x->slots[i].name)] = x->slots[i];
        }
    }
    mem_free(x->slots);
    *x = more;
    return ERR_OK;
}

enum err kv_index_put(struct kv_index *x, const struct kv_file *f)
{
    TRY(2 * (x->n + 1) > x->n_slots ? grow(x) : ERR_OK);
    struct kv_file *to = &x->slots[slot_of(x, f->kind, &f->name)];
    x->n += to->bytes == 0;
    x->bytes += f->bytes - to->bytes;
    *to = *f;
    return ERR_OK;
}

void kv_index_remove(struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name)
{
    struct kv_file *f = kv_index_find(x, kind, name);
    if (f == NULL) {
        return;
    }
    x->n--;
    x->bytes -= f->bytes;
    size_t hole = (size_t)(f - x->slots), mask = x->n_slots - 1;
    /* Who stands behind moves up, unless its home lies between the hole and itself [Knuth, TAOCP 3, 6.4 R]. */
    for (size_t i = (hole + 1) & mask; x->slots[i].bytes != 0; i = (i + 1) & mask) {
        if (((i - home_of(x, &x->slots[i].name)) & mask) >= ((i - hole) & mask)) {
            x->slots[hole] = x->slots[i];
            hole = i;
        }
    }
    x->slots[hole] = (struct kv_file){0};
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
    size_t n_all = 0;
    for (size_t i = 0; i < x->n_slots; i++) {
        if (x->slots[i].bytes != 0) {
            all[n_all++] = x->slots[i];
        }
    }
    qsort(all, n_all, sizeof *all, by_use);
    for (uint64_t left = x->bytes; left > most && *n < n_all; ++*n) {
        left -= all[*n].bytes;
    }
    return all;
}
