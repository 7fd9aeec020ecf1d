/* Requests memory of the KV cache before it is written. The kernel allocates and zeroes memory on first use, in huge
 * pages if possible. On a virtual machine whose host allocates memory slowly, a huge page takes milliseconds. Streams
 * that began together need their next pages in the same step. So the memory after the highest page is requested ahead
 * of its use, and a step waits for one huge page, or a few if it has many rows.
 *
 * While unused pages exist, kv_cache.c allocates them in ascending order, so "ahead" is after the highest. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"

enum { ROWS_PER_REQUEST = 128 /* of a batch */, PAGES_AHEAD = 8 };
#define HUGE_PAGE_BYTES ((size_t)2 << 20) /* a huge page of x86-64, and of ARM with 4 KiB pages */

static void note_highest(struct cpu_kv_pool *p, const struct backend_batch *batch, bool is_local)
{
    for (int32_t i = 0; i < batch->n_rows; i++) {
        p->highest = MAX_OF(p->highest, backend_table(batch, is_local, batch->seq[i])[batch->pos[i] / KV_PAGE_TOKENS]);
    }
}

static void request_ahead(struct backend_model *m, struct cpu_kv_pool *p, int32_t n)
{
    unsigned char *first = m->kv + p->at, *end = first + (size_t)p->n_pages * p->page_bytes;
    unsigned char *unused = first + (size_t)(p->highest + 1) * p->page_bytes;
    /* The next huge page: the one with `unused` was allocated on use. */
    unsigned char *next = unused + (HUGE_PAGE_BYTES - (uintptr_t)unused % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    p->requested = p->requested == NULL || next > p->requested ? next : p->requested;
    for (; n > 0 && p->requested < end && p->requested < unused + PAGES_AHEAD * p->page_bytes; n--) {
        mem_populate(p->requested, MIN_OF(HUGE_PAGE_BYTES, (size_t)(end - p->requested)));
        p->requested += HUGE_PAGE_BYTES;
    }
}

void cpu_kv_ahead(struct backend_model *m, const struct backend_batch *batch)
{
    for (int is_local = false; is_local <= true; is_local++) {
        struct cpu_kv_pool *p = &m->kv_pools[is_local];
        if (p->page_bytes != 0) {
            note_highest(p, batch, is_local);
            request_ahead(m, p, 1 + batch->n_rows / ROWS_PER_REQUEST);
        }
    }
}
