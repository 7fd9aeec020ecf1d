/* Memory of the KV cache before it is written. The kernel gives it when it is first touched, zeroed, by the huge page where it
 * can. A prompt takes all its pages at once; what takes the next one, a stream beside it, then is the first in new huge pages of
 * many sides: keys or values of a KV head of a layer, of which SmolLM2-135M has 180. One step waited for all of them: on a virtual
 * machine, whose host gives memory slowly, 110 to 200 ms. So each side asks for its next huge page ahead of its use, the last
 * side the furthest, and a step waits for one, or a few where it has many rows.
 *
 * Pages are handed out in ascending order while there are fresh ones (kv_cache.c), so "ahead" is behind the highest. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"

enum { ROWS_A_STRETCH = 128 /* of a batch */ };
#define STRETCH_BYTES ((size_t)2 << 20) /* a huge page of x86-64, and of ARM with pages of 4 KiB */

/* The keys or the values of one KV head of one layer. */
struct cpu_kv_side {
    unsigned char *begin, *end; /* in page order */
    size_t page_bytes;
    bool is_local;
    unsigned char *next; /* nothing behind it was asked for */
};

static void add_side(struct backend_model *m, const struct cpu_kv *kv, unsigned char *begin, size_t page_bytes)
{
    m->sides[m->n_sides++] = (struct cpu_kv_side){.begin = begin,
                                                  .end = begin + page_bytes * (size_t)kv->n_pages,
                                                  .page_bytes = page_bytes,
                                                  .is_local = kv->is_local,
                                                  .next = begin};
}

enum err cpu_kv_ahead_open(struct backend_model *m, struct err_info *info)
{
    size_t n = 0;
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        n += m->kvs[i].heads.layer == i ? 2 * (size_t)m->kvs[i].heads.n_kv_heads : 0;
    }
    m->kv_highest[false] = m->kv_highest[true] = -1;
    if (n == 0) {
        return ERR_OK;
    }
    m->sides = mem_zalloc_array(n, sizeof *m->sides, MEM_MODEL);
    if (m->sides == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the table of keys and values");
    }
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers; i++) {
        const struct cpu_kv *kv = &m->kvs[i];
        for (uint32_t h = 0; kv->heads.layer == i && h < kv->heads.n_kv_heads; h++) {
            add_side(m, kv, cpu_keys(m, i, h, 0), kv->layout.k.bytes);
            if (!kv->layout.is_latent) {
                add_side(m, kv, cpu_values(m, i, h, 0), kv->layout.v.bytes);
            }
        }
    }
    return ERR_OK;
}

static unsigned char *stretch_behind(unsigned char *at)
{
    return at + (STRETCH_BYTES - (uintptr_t)at % STRETCH_BYTES) % STRETCH_BYTES;
}

/* The side that will be written first beyond what was asked for, of those that want something; or NULL. */
static struct cpu_kv_side *most_urgent(const struct backend_model *m)
{
    struct cpu_kv_side *best = NULL;
    size_t least = SIZE_MAX;
    for (int32_t i = 0; i < m->n_sides; i++) {
        struct cpu_kv_side *s = &m->sides[i];
        size_t ahead = STRETCH_BYTES / 8 + STRETCH_BYTES / 8 * 7 / (size_t)m->n_sides * ((size_t)i + 1);
        unsigned char *at = s->begin + ((size_t)m->kv_highest[s->is_local] + 1) * s->page_bytes;
        unsigned char *next = stretch_behind(at); /* the one that `at` lies in came with its use */
        s->next = next > s->next ? next : s->next;
        size_t left = (size_t)(s->next - at);
        if (s->next < s->end && left <= ahead && left / s->page_bytes < least) {
            least = left / s->page_bytes;
            best = s;
        }
    }
    return best;
}

void cpu_kv_ahead(struct backend_model *m, const struct backend_batch *batch)
{
    struct cpu_kv_side *s;
    if (m->n_sides == 0) {
        return;
    }
    for (int is_local = false; is_local <= (m->cfg.n_windows != 0); is_local++) {
        int32_t *highest = &m->kv_highest[is_local];
        for (int32_t i = 0; i < batch->n_rows; i++) {
            *highest = MAX_OF(*highest, backend_table(batch, is_local, batch->seq[i])[batch->pos[i] / KV_PAGE_TOKENS]);
        }
    }
    for (int32_t n = 1 + batch->n_rows / ROWS_A_STRETCH; n > 0 && (s = most_urgent(m)) != NULL; n--) {
        mem_populate(s->next, MIN_OF(STRETCH_BYTES, (size_t)(s->end - s->next)));
        s->next += STRETCH_BYTES;
    }
}
