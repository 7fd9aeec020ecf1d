#include "engine/base/table.h"

#include <string.h>

enum { FIRST_SLOTS = 16 };
#define MAX_INDEXES ((size_t)1 << 31) /* half of the 32-bit range, so that counting slots cannot overflow */

enum err table_grow(struct table *t, size_t n, table_hash_fn hash, const void *all, enum mem_purpose purpose)
{
    struct table more = {0};
    size_t n_slots = t->slots != NULL ? 2 * (t->mask + 1) : FIRST_SLOTS;
    TRY_MEM(n <= MAX_INDEXES);
    while (n_slots / 2 < n) {
        n_slots *= 2;
    }
    more.slots = mem_zalloc_array(n_slots, sizeof *more.slots, purpose);
    TRY_MEM(more.slots != NULL);
    more.mask = n_slots - 1;
    for (size_t at = 0; t->slots != NULL && at <= t->mask; at++) {
        if (t->slots[at] != 0) {
            table_add(&more, hash(all, t->slots[at] - 1), t->slots[at] - 1);
        }
    }
    mem_free(t->slots);
    *t = more;
    return ERR_OK;
}

struct place {
    const uint32_t *slots;
    uint32_t value;
};

static ALWAYS_INLINE bool is_place(const void *place, size_t at)
{
    const struct place *p = place;
    return p->slots[at] == p->value;
}

static size_t place_of(const struct table *t, uint64_t hash, uint32_t i)
{
    return table_probe(t->mask, hash, is_place, &(struct place){t->slots, i + 1});
}

void table_remove(struct table *t, uint64_t hash, uint32_t i, table_hash_fn hash_of, const void *all)
{
    size_t hole = place_of(t, hash, i);
    /* A later index moves into the hole unless its search begins after the hole [Knuth, TAOCP 3, 6.4 R]. */
    for (size_t at = (hole + 1) & t->mask; t->slots[at] != 0; at = (at + 1) & t->mask) {
        size_t home = (size_t)hash_of(all, t->slots[at] - 1) & t->mask;
        if (((at - home) & t->mask) >= ((at - hole) & t->mask)) {
            t->slots[hole] = t->slots[at];
            hole = at;
        }
    }
    t->slots[hole] = 0;
    t->n--;
}

void table_renumber(struct table *t, uint64_t hash, uint32_t from, uint32_t to)
{
    t->slots[place_of(t, hash, from)] = to + 1;
}

void table_clear(struct table *t)
{
    if (t->n > 0) {
        memset(t->slots, 0, table_bytes(t));
    }
    t->n = 0;
}

void table_fini(struct table *t)
{
    mem_free(t->slots);
    *t = (struct table){0};
}
