/* Models in which only some layers have a window (backend.h, local layers). A sequence holds all its pages. It also
 * holds window pages for what a row after its last page boundary sees, and those that a batch writes. It releases
 * window pages as it advances; they stay with their pages until their memory is needed. So a prefix can be continued
 * wherever the last pages, a whole window of them, still have theirs. That is at the ends of answers, because window
 * pages that were only passed are evicted first [vLLM, hybrid KV cache manager]. */
#include "engine/sched/sched_internal.h"

static int32_t first_seen(const struct sched *s, int32_t position)
{
    return MAX_OF(position - s->cfg.local_window + 1, 0) / KV_PAGE_TOKENS;
}

/* Returns the pages of the window before a boundary. Callers add one page for what is between two boundaries, and pages
 * for the rows of a batch after it. */
static int64_t window_pages(const struct sched_config *cfg)
{
    return ((int64_t)cfg->local_window + KV_PAGE_TOKENS - 2) / KV_PAGE_TOKENS;
}

int32_t sched_least_windows(const struct sched_config *cfg)
{
    int32_t all = (int32_t)(((int64_t)cfg->n_ctx + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
    int64_t n = window_pages(cfg) + 1 + ((int64_t)cfg->max_rows + KV_PAGE_TOKENS - 2) / KV_PAGE_TOKENS;
    return (int32_t)MIN_OF((int64_t)all, n);
}

int32_t sched_useful_windows(const struct sched_config *cfg)
{
    int64_t one = window_pages(cfg) + 1, batches = (int64_t)SCHED_MAX_BEGUN * (cfg->max_rows / KV_PAGE_TOKENS + 1);
    int64_t n = SCHED_BORDERS * cfg->max_seqs * one + batches;
    return (int32_t)MIN_OF(n, (int64_t)INT32_MAX);
}

/* Returns the longest part of the first n pages in q's table that ends with a complete window. */
static int32_t longest(const struct sched *s, const struct sched_seq *q, int32_t n)
{
    for (int32_t i = n - 1, end = n;; i--) {
        if (i < first_seen(s, end * KV_PAGE_TOKENS) || i < 0) {
            return end;
        }
        if (kv_cache_window(s->kv, q->pages.table[i]) == KV_NO_WINDOW) {
            end = i;
        }
    }
}

int32_t sched_local_shareable(const struct sched *s, struct sched_seq *q)
{
    int32_t all = sched_whole_pages(q), n_filled = sched_filled_end(s, q, 0, sched_find_pages(s, q, all));
    int32_t n_on_disk = q->files.names != NULL ? MIN_OF(q->files.n_found, all) : 0;
    int32_t start = MAX_OF(longest(s, q, n_filled), n_on_disk);
    return start < n_filled ? start : all;
}

void sched_local_drop(struct sched *s, struct sched_seq *q)
{
    while (q->windows.n > q->windows.n_gone) {
        kv_cache_drop_window(s->kv, q->windows.table[--q->windows.n], false);
    }
    q->windows.n = q->windows.n_gone = 0;
}

void sched_local_slide(struct sched *s, struct sched_seq *q)
{
    int32_t border = q->n_computed / KV_PAGE_TOKENS * KV_PAGE_TOKENS; /* where the next turn can continue */
    int32_t first = s->cfg.n_windows != 0 ? MIN_OF(first_seen(s, border), q->windows.n) : 0;
    while (q->windows.n_gone < first) {
        kv_cache_drop_window(s->kv, q->windows.table[q->windows.n_gone++], true);
    }
}

/* Holds the window page of q's next page: the page's own if it has one, else a new one if may_take. */
static bool add_window(struct sched *s, struct sched_seq *q, bool may_take)
{
    int32_t window = kv_cache_window(s->kv, q->pages.table[q->windows.n]);
    if (window != KV_NO_WINDOW) {
        kv_cache_hold_window(s->kv, window);
    } else if (may_take) {
        window = kv_cache_take_window(s->kv);
    }
    if (window != KV_NO_WINDOW) {
        q->windows.table[q->windows.n++] = window;
    }
    return window != KV_NO_WINDOW;
}

void sched_local_begin(struct sched *s, struct sched_seq *q)
{
    if (s->cfg.n_windows == 0 || q->restore.ticket != 0) {
        return;
    }
    int32_t end = sched_filled_end(s, q, 0, q->pages.n);
    q->windows.n = q->windows.n_gone = first_seen(s, end * KV_PAGE_TOKENS);
    while (q->windows.n < end && add_window(s, q, false)) {
    }
}

void sched_local_pass(struct sched *s, struct sched_seq *q, int32_t i)
{
    if (s->cfg.n_windows == 0 || i < q->windows.n) {
        return;
    }
    if (i > q->windows.n || !add_window(s, q, false)) { /* the window pages held before it are then useless */
        sched_local_drop(s, q);
        q->windows.n = q->windows.n_gone = i + 1;
    }
}

bool sched_local_is_ready(struct sched *s, struct sched_seq *q)
{
    if (s->cfg.n_windows != 0) {
        sched_local_slide(s, q);
        q->windows.are_incomplete =
            q->windows.n_gone > first_seen(s, q->n_computed) || q->windows.n < q->n_computed / KV_PAGE_TOKENS;
    }
    return !q->windows.are_incomplete;
}

bool sched_local_take(struct sched *s, struct sched_seq *q) { return add_window(s, q, true); }

void sched_local_filled(struct sched *s, struct sched_seq *q, int32_t i)
{
    if (s->cfg.n_windows == 0) {
        return;
    }
    int32_t window = kv_cache_window(s->kv, q->pages.table[i]);
    if (window == KV_NO_WINDOW) {
        kv_cache_keep_window(s->kv, q->pages.table[i], q->windows.table[i]);
    } else if (window != q->windows.table[i]) {
        kv_cache_hold_window(s->kv, window);
        kv_cache_drop_window(s->kv, q->windows.table[i], false);
        q->windows.table[i] = window;
    }
}

bool sched_local_adopt(struct sched *s, struct sched_seq *q, int32_t i)
{
    int32_t page = sched_find_page(s, q, i, sched_parent(q, i));
    if (page == KV_NO_PAGE || !kv_cache_is_filled(s->kv, page)) { /* another sequence is computing it */
        return false;
    }
    sched_replace_page(s, q, i, page);
    kv_cache_prefer(s->kv, page);
    sched_local_filled(s, q, i);
    return true;
}

/* --- from the disk ------------------------------------------------------------------------------------------------ */

bool sched_local_begin_restore(struct sched *s, struct sched_seq *q, int32_t end)
{
    int32_t n_filled = sched_filled_end(s, q, 0, q->pages.n);
    if (end <= longest(s, q, n_filled)) {
        return false;
    }
    for (int32_t i = n_filled; i < end; i++) { /* wait for pages that another sequence is computing */
        uint64_t owner = kv_cache_owner(s->kv, q->pages.table[i]);
        if (owner != KV_NO_OWNER && owner != q->number) {
            return false;
        }
    }
    sched_local_drop(s, q);
    q->windows.n = q->windows.n_gone = first_seen(s, end * KV_PAGE_TOKENS);
    while (q->windows.n < end) {
        if (!add_window(s, q, true)) {
            sched_local_drop(s, q);
            return false;
        }
    }
    for (int32_t i = n_filled; i < end; i++) { /* its owner has left; others now wait for q */
        kv_cache_set_owner(s->kv, q->pages.table[i], q->number);
    }
    return true;
}

struct backend_page sched_local_missing(const struct sched *s, const struct sched_seq *q, int32_t i)
{
    bool has_window = i < q->windows.n_gone || kv_cache_window(s->kv, q->pages.table[i]) == q->windows.table[i];
    return (struct backend_page){.page =
                                     kv_cache_is_filled(s->kv, q->pages.table[i]) ? BACKEND_NO_PAGE : q->pages.table[i],
                                 .window = has_window ? BACKEND_NO_PAGE : q->windows.table[i]};
}
