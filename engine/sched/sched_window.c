/* Windows: if no layer looks further back than a window, a sequence holds the pages of the window and of a batch, and
 * releases earlier ones as it advances. These stay findable, like all unreferenced pages, until their memory is needed.
 * After that the later pages can no longer be found, and a later turn recomputes from the break in the chain. */
#include "engine/sched/sched_internal.h"

/* The page before the next one is its parent, so it stays whatever the window. */
enum { LEAST_WINDOW = KV_PAGE_TOKENS + 1 };

static int64_t window_of(const struct sched_config *cfg) { return MAX_OF(cfg->window, (int32_t)LEAST_WINDOW); }

/* Pages of the window and the rows, and two that they cover in part. */
static int32_t most_pages(const struct sched_config *cfg)
{
    int64_t n = (window_of(cfg) + cfg->max_rows) / KV_PAGE_TOKENS + 2;
    return cfg->window == 0 ? INT32_MAX : (int32_t)MIN_OF(n, (int64_t)INT32_MAX);
}

int32_t sched_least_pages(const struct sched_config *cfg)
{
    int32_t all = (int32_t)(((int64_t)cfg->n_ctx + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
    return MIN_OF(all, most_pages(cfg));
}

int32_t sched_window_pages(const struct sched *s) { return most_pages(&s->cfg); }

int32_t sched_window_first(const struct sched *s, int32_t position)
{
    return s->cfg.window == 0 ? 0 : (int32_t)(MAX_OF(position - window_of(&s->cfg) + 1, 0) / KV_PAGE_TOKENS);
}

void sched_window_slide(struct sched *s, struct sched_seq *q)
{
    int32_t first = MIN_OF(sched_window_first(s, q->n_computed), q->pages.n);
    while (q->pages.n_gone < first) {
        kv_cache_drop(s->kv, q->pages.table[q->pages.n_gone++]);
    }
}
