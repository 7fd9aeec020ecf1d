/* The pages of a sequence's tokens: which known pages stand for them, and their names. */
#include "engine/sched/sched_internal.h"

#include <string.h>

int32_t sched_whole_pages(const struct sched_seq *q) { return (q->n_tokens - 1) / KV_PAGE_TOKENS; }
int32_t sched_parent(const struct sched_seq *q, int32_t i) { return i > 0 ? q->pages.table[i - 1] : KV_NO_PAGE; }

int32_t sched_find_page(const struct sched *s, const struct sched_seq *q, int32_t i, int32_t parent)
{
    return kv_cache_find(s->kv, q->terms.salt, parent, q->tokens + i * KV_PAGE_TOKENS);
}

int32_t sched_find_pages(const struct sched *s, struct sched_seq *q, int32_t most)
{
    int32_t n = 0, page = KV_NO_PAGE;
    while (n < most && (page = sched_find_page(s, q, n, page)) != KV_NO_PAGE) {
        q->pages.table[n++] = page;
    }
    return n;
}

int32_t sched_filled_end(const struct sched *s, const struct sched_seq *q, int32_t i, int32_t n)
{
    while (i < n && kv_cache_is_named(s->kv, q->pages.table[i]) && kv_cache_is_filled(s->kv, q->pages.table[i])) {
        i++;
    }
    return i;
}

bool sched_name_page(struct sched *s, const struct sched_seq *q, int32_t i)
{
    return kv_cache_name(s->kv, q->pages.table[i], q->terms.salt, sched_parent(q, i), q->tokens + i * KV_PAGE_TOKENS);
}

int32_t sched_kept_floats(const struct sched_config *cfg) { return cfg->guesses_in_place ? 0 : cfg->output_width; }

float *sched_page_output(const struct sched *s, int32_t page)
{
    return s->predict.outputs + (size_t)page * (size_t)sched_kept_floats(&s->cfg);
}

void *sched_copy_output(const struct sched *s, int32_t page, void *bytes, bool writes)
{
    size_t n = (size_t)sched_kept_floats(&s->cfg) * sizeof(float);
    if (n != 0 && page != BACKEND_NO_PAGE) {
        void *own = sched_page_output(s, page);
        memcpy(writes ? own : bytes, writes ? bytes : own, n);
    }
    return (unsigned char *)bytes + n;
}

void sched_replace_page(struct sched *s, struct sched_seq *q, int32_t i, int32_t page)
{
    kv_cache_hold(s->kv, page);
    kv_cache_drop(s->kv, q->pages.table[i]);
    q->pages.table[i] = page;
}
