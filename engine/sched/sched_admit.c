/* Allocates pages: admission with shared prefixes, growth while decoding, preemption if none are left. */
#include "engine/sched/sched_internal.h"

static int32_t pages_for(int32_t n_positions) { return (n_positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; }

static void drop_page(struct sched *s, const struct sched_seq *q, int32_t page)
{
    if (kv_cache_owner(s->kv, page) == q->number) {
        kv_cache_set_owner(s->kv, page, KV_NO_OWNER);
    }
    kv_cache_drop(s->kv, page);
}

/* Releases the state and all pages, last to first, so that a prefix outlives its extensions. Pages that the sequence
 * was computing lose their owner. */
void sched_drop_pages(struct sched *s, struct sched_seq *q)
{
    sched_disk_drop(s, q);
    /* Pages that can no longer be found become free, from the front on. */
    while (q->pages.n_gone < q->pages.n && kv_cache_has_lost_parent(s->kv, q->pages.table[q->pages.n_gone])) {
        drop_page(s, q, q->pages.table[q->pages.n_gone++]);
    }
    while (q->pages.n > q->pages.n_gone) {
        drop_page(s, q, q->pages.table[--q->pages.n]);
    }
    sched_drop_states(s, q);
    sched_local_drop(s, q);
    q->pages.n = q->pages.n_gone = q->n_computed = q->predicted.n = 0;
}

/* Returns the pages that q can share: whole ones before its last token; for recurrent models and window pages only
 * those up to a usable state or window. */
static int32_t shareable(const struct sched *s, struct sched_seq *q)
{
    if (q->terms.is_private) {
        return 0;
    }
    if (s->cfg.n_states != 0) {
        return sched_pages_with_state(s, q);
    }
    return s->cfg.n_windows != 0 ? sched_local_shareable(s, q) : sched_whole_pages(q);
}

/* Returns how many of q's first n pages are before the window of the next row. */
static int32_t count_gone(const struct sched *s, const struct sched_seq *q, int32_t n)
{
    return sched_window_first(s, sched_filled_end(s, q, 0, n) * KV_PAGE_TOKENS);
}

/* Returns the length of q's table when it holds pages from the n_gone-th on: pages of its tokens, within its limit. */
static int32_t wanted_pages(const struct sched *s, const struct sched_seq *q, int32_t n_gone)
{
    return (int32_t)MIN_OF((int64_t)pages_for(q->n_tokens), (int64_t)n_gone + sched_window_pages(s));
}

/* Adds a page without a name. */
static bool take_unnamed(struct sched *s, struct sched_seq *q)
{
    int32_t page = kv_cache_take(s->kv);
    if (page != KV_NO_PAGE) {
        q->pages.table[q->pages.n++] = page;
    }
    return page != KV_NO_PAGE;
}

/* Adds the next page of q's tokens. A whole page before the last token is shared if another sequence has it, filled or
 * not, and named if its predecessors have names. Returns false if the pool has no page. */
static bool add_page(struct sched *s, struct sched_seq *q, int32_t n_shareable)
{
    int32_t i = q->pages.n, parent = sched_parent(q, i);
    bool may_share = i < n_shareable && (i == 0 || kv_cache_is_named(s->kv, parent));
    int32_t page = may_share ? sched_find_page(s, q, i, parent) : KV_NO_PAGE;
    if (page != KV_NO_PAGE) {
        kv_cache_hold(s->kv, page);
        kv_cache_prefer(s->kv, page);
        q->pages.table[q->pages.n++] = page;
    } else if (!take_unnamed(s, q)) {
        return false;
    } else if (may_share && sched_name_page(s, q, i)) {
        kv_cache_set_owner(s->kv, q->pages.table[i], q->number);
    }
    return true;
}

/* Adds the pages of q's tokens that its window allows. Returns false, with all released, if the pool has too few. */
static bool take_pages(struct sched *s, struct sched_seq *q)
{
    int32_t n_shareable = shareable(s, q), n_known = s->cfg.window != 0 ? sched_find_pages(s, q, n_shareable) : 0;
    for (q->pages.n_gone = count_gone(s, q, n_known); q->pages.n < q->pages.n_gone; q->pages.n++) {
        /* Marks it as used again, like its extensions, and releases it before any page is taken. */
        int32_t page = q->pages.table[q->pages.n];
        kv_cache_hold(s->kv, page);
        kv_cache_prefer(s->kv, page);
        kv_cache_drop(s->kv, page);
    }
    while (q->pages.n < wanted_pages(s, q, q->pages.n_gone)) {
        if (!add_page(s, q, n_shareable)) {
            sched_drop_pages(s, q);
            return false;
        }
    }
    return true;
}

/* Returns the available pages that admitting q would take: shared pages with a holder cost nothing. */
static int32_t pages_missing(const struct sched *s, struct sched_seq *q)
{
    int32_t n_known = sched_find_pages(s, q, shareable(s, q)), n_gone = count_gone(s, q, n_known),
            n = wanted_pages(s, q, n_gone);
    int32_t missing = n - n_gone;
    for (int32_t i = n_gone; i < MIN_OF(n_known, n); i++) {
        missing -= kv_cache_is_held(s->kv, q->pages.table[i]);
    }
    return missing;
}

/* Inserts q into a list sorted by number. */
static void insert(struct sched_seq **list, struct sched_seq *q)
{
    while (*list != NULL && (*list)->number < q->number) {
        list = &(*list)->next;
    }
    q->next = *list;
    *list = q;
}

/* Takes the pages and the state of the running q and returns it to its old place in the queue. */
static void preempt(struct sched *s, struct sched_seq *q)
{
    sched_unlink(&s->running, q);
    q->turn.n_done = MAX_OF(q->turn.n_done, q->n_computed);
    sched_give_turn_back(s, q);
    sched_drop_pages(s, q);
    insert(&s->waiting, q);
    pthread_mutex_lock(&s->lock);
    s->queue.n++;
    s->stats.preempted++;
    pthread_mutex_unlock(&s->lock);
}

static void begin(struct sched *s, struct sched_seq *q)
{
    if (s->cfg.n_states != 0) {
        sched_begin_state(s, q);
    }
    sched_disk_begin(s, q);
    sched_local_begin(s, q);
    q->pages.n_unknown = q->n_tokens - sched_filled_end(s, q, q->pages.n_gone, q->pages.n) * KV_PAGE_TOKENS;
    int32_t n_known =
        MAX_OF(q->n_tokens - q->pages.n_unknown, q->restore.ticket != 0 ? q->restore.end * KV_PAGE_TOKENS : 0);
    q->pages.are_preferred = n_known >= q->n_prompt / 2 && n_known > 0;
    int32_t n_lost = q->turn.n_done - n_known;
    q->turn.n_safe = q->turn.n_done > 0 ? q->turn.n_done + MAX_OF(n_lost, (int32_t)SCHED_QUANTUM) : 0;
    q->wait = SCHED_WAIT_COUNT;
    q->next = s->running;
    s->running = q;
    sched_take_turn(s, q);
    sched_share_expect(s, q, q->pages.n_unknown);
    if (!q->turn.was_admitted) {
        q->turn.was_admitted = true;
        q->admit_ns = clock_now_ns();
        pthread_mutex_lock(&q->reader.lock);
        q->reader.usage.queue_ns = q->admit_ns - q->submit_ns;
        pthread_mutex_unlock(&q->reader.lock);
        pthread_mutex_lock(&s->lock);
        s->stats.prompt_tokens += (uint64_t)q->n_prompt;
        pthread_mutex_unlock(&s->lock);
    }
}

/* Returns the pages that q, which has n_held, can still need until its end. */
static int64_t pages_to_come(const struct sched *s, const struct sched_seq *q, int32_t n_held)
{
    int64_t most = MIN_OF((int64_t)pages_for(q->max_total) - q->pages.n_gone, (int64_t)sched_window_pages(s));
    return MAX_OF(most - n_held, (int64_t)0);
}

/* Returns the pages that must remain after q's admission, so that it does not immediately cause preemptions. After
 * SCHED_MOST_PREEMPTED preemptions, q is only readmitted if the pages suffice for it and all running sequences until
 * their ends. */
static int64_t spare_pages(const struct sched *s, const struct sched_seq *q)
{
    if (q->turn.n_preempted < SCHED_MOST_PREEMPTED) {
        return 1;
    }
    int64_t n = pages_to_come(s, q, wanted_pages(s, q, q->pages.n_gone) - q->pages.n_gone);
    for (const struct sched_seq *r = s->running; r != NULL; r = r->next) {
        n += pages_to_come(s, r, r->pages.n - r->pages.n_gone);
    }
    return n;
}

/* Checks for the pages that q needs now, some spare ones, and window pages for its first rows. */
static bool has_pages(const struct sched *s, struct sched_seq *q)
{
    int32_t missing = pages_missing(s, q), n_windows = kv_cache_n_windows(s->kv) - kv_cache_n_windows_held(s->kv);
    return kv_cache_n_available(s->kv) >= missing + spare_pages(s, q) &&
           (s->cfg.n_windows == 0 || n_windows >= MIN_OF(missing, sched_least_windows(&s->cfg)));
}

static bool has_plain_place(const struct sched *s) { return s->n_running - s->express.n < sched_plain_places(s); }

/* Can q use a slot for prompts that run alone? */
static bool may_have_express_place(const struct sched *s, struct sched_seq *q)
{
    if (s->express.n == s->cfg.n_express || s->express.left_ns < 0 || !sched_may_go_alone(s, q, 0)) {
        return false;
    }
    int32_t n_filled = sched_filled_end(s, q, 0, sched_find_pages(s, q, shareable(s, q)));
    return sched_may_go_alone(s, q, q->n_tokens - n_filled * KV_PAGE_TOKENS);
}

/* Makes room for the waiting q in the batch and in the pool, preempting others if they must yield. */
static bool make_room(struct sched *s, struct sched_seq *q)
{
    for (;;) {
        bool has_place = has_plain_place(s) || may_have_express_place(s, q);
        bool has_room = s->running == NULL || (has_place && has_pages(s, q));
        if (has_room && take_pages(s, q)) {
            q->turn.is_express = !has_plain_place(s);
            s->express.n += q->turn.is_express;
            return true;
        }
        struct sched_seq *other = sched_whose_place(s, q);
        if (other == NULL) {
            return false;
        }
        preempt(s, other);
    }
}

/* Adds n to the prompt tokens found. After a preemption, pages found again were already counted or computed. */
static void count_cached(struct sched *s, struct sched_seq *q, int32_t n)
{
    if (q->turn.n_done > 0) {
        return;
    }
    pthread_mutex_lock(&q->reader.lock);
    q->reader.usage.cached_tokens += n;
    pthread_mutex_unlock(&q->reader.lock);
    pthread_mutex_lock(&s->lock);
    s->stats.cached_tokens += (uint64_t)(int64_t)n;
    pthread_mutex_unlock(&s->lock);
}

static struct sched_seq *find_stranded(const struct sched *s)
{
    struct sched_seq *q = s->running;
    while (q != NULL && !q->windows.are_incomplete) {
        q = q->next;
    }
    return q;
}

/* Starts the waiting q if there is room or some can be made. */
static bool admit(struct sched *s, struct sched_seq *q)
{
    if (!make_room(s, q)) {
        return false;
    }
    sched_unlink(&s->waiting, q);
    begin(s, q);
    return true;
}

int32_t sched_admit_express(struct sched *s)
{
    int32_t n = 0;
    struct sched_seq *next;
    for (struct sched_seq *q = s->waiting; q != NULL; q = next) {
        next = q->next;
        bool is_asked = may_have_express_place(s, q) && q->reader.stalled_since == 0;
        if (is_asked && !admit(s, q)) {
            break;
        }
        n += is_asked;
    }
    return n;
}

int32_t sched_admit_all(struct sched *s)
{
    struct sched_seq *stranded;
    while ((stranded = find_stranded(s)) != NULL) {
        /* It cannot resume from its shared pages: requeue it, to be readmitted with pages it can use. */
        count_cached(s, stranded, -stranded->n_computed);
        stranded->n_computed = 0;
        stranded->windows.are_incomplete = false;
        preempt(s, stranded);
    }
    s->queue_wait = SCHED_WAIT_SEAT;
    for (int32_t n = sched_admit_express(s);; n++) {
        struct sched_seq **link = sched_next_turn(s);
        if (link == NULL) {
            return n;
        }
        if (!admit(s, *link)) { /* no later sequence overtakes it */
            s->queue_wait = has_plain_place(s) ? SCHED_WAIT_PAGES : SCHED_WAIT_SEAT;
            return n;
        }
    }
}

/* Preempts the last running sequence if it comes after q and is not in the batch. */
static bool preempt_last(struct sched *s, const struct sched_seq *q)
{
    struct sched_seq *last = s->running;
    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    if (last == NULL || last == q || last->rows.n != 0) {
        return false;
    }
    preempt(s, last);
    last->turn.n_preempted++;
    pthread_mutex_lock(&s->lock);
    s->stats.most_preempted = MAX_OF(s->stats.most_preempted, last->turn.n_preempted);
    pthread_mutex_unlock(&s->lock);
    return true;
}

bool sched_grow(struct sched *s, struct sched_seq *q, int32_t n_positions)
{
    while (q->pages.n < pages_for(n_positions)) {
        if (!take_unnamed(s, q) && !preempt_last(s, q)) {
            q->wait = SCHED_WAIT_PAGES;
            return false;
        }
    }
    return sched_grow_windows(s, q, n_positions) >= n_positions;
}

int32_t sched_grow_windows(struct sched *s, struct sched_seq *q, int32_t n_positions)
{
    while (s->cfg.n_windows != 0 && q->windows.n < pages_for(n_positions)) {
        if (!sched_local_take(s, q) && !preempt_last(s, q)) {
            q->wait = SCHED_WAIT_PAGES;
            return q->windows.n * KV_PAGE_TOKENS;
        }
    }
    return n_positions;
}

/* Advances over filled pages. Returns false if another sequence computes the next one. */
static bool use_filled_pages(struct sched *s, struct sched_seq *q)
{
    while (q->n_computed % KV_PAGE_TOKENS == 0 && q->n_computed / KV_PAGE_TOKENS < q->pages.n) {
        int32_t i = q->n_computed / KV_PAGE_TOKENS, page = q->pages.table[i];
        bool is_gone = i < q->pages.n_gone;
        if (!is_gone && !kv_cache_is_named(s->kv, page)) {
            break;
        }
        if (!is_gone && !kv_cache_is_filled(s->kv, page)) {
            uint64_t owner = kv_cache_owner(s->kv, page);
            if (owner != KV_NO_OWNER && owner != q->number) {
                return false;
            }
            if (sched_local_is_ready(s, q)) { /* else it cannot compute the page, and is admitted again */
                kv_cache_set_owner(s->kv, page, q->number);
            }
            break;
        }
        sched_local_pass(s, q, i);
        q->n_computed += KV_PAGE_TOKENS;
        sched_local_slide(s, q);
        count_cached(s, q, KV_PAGE_TOKENS);
    }
    return true;
}

/* Moves the window of q, not begun, whose prompt is computed: releases pages before the window and adds as many after
 * it. Preempts others only if it has no page to compute in. Returns false if it waits for pages that another sequence
 * computes or that are read. */
static bool move_on(struct sched *s, struct sched_seq *q)
{
    bool may_go = true;
    for (int32_t before = -1; may_go && before != q->n_computed;) {
        before = q->n_computed;
        sched_window_slide(s, q);
        while (q->pages.n < wanted_pages(s, q, q->pages.n_gone)) {
            if (!add_page(s, q, shareable(s, q)) &&
                (q->pages.n * KV_PAGE_TOKENS > q->n_computed || !preempt_last(s, q))) {
                break;
            }
        }
        may_go = use_filled_pages(s, q);
    }
    sched_disk_begin(s, q);
    return may_go && q->restore.ticket == 0;
}

int32_t sched_ready_rows(struct sched *s, struct sched_seq *q)
{
    if (!use_filled_pages(s, q) || (s->cfg.window != 0 && !move_on(s, q)) || !sched_local_is_ready(s, q)) {
        return 0;
    }
    if (q->n_computed < q->n_prompt) {
        sched_note_processed(q);
    }
    /* Up to the next page that another sequence computes. */
    int32_t end = q->n_computed, most = (int32_t)MIN_OF((int64_t)q->pages.n * KV_PAGE_TOKENS, (int64_t)q->n_tokens);
    while (end < most) {
        int32_t page = q->pages.table[end / KV_PAGE_TOKENS];
        uint64_t owner = kv_cache_is_named(s->kv, page) ? kv_cache_owner(s->kv, page) : q->number;
        if (owner == KV_NO_OWNER && !kv_cache_is_filled(s->kv, page)) {
            kv_cache_set_owner(s->kv, page, q->number);
            owner = q->number;
        }
        if (owner != q->number) {
            break;
        }
        end = MIN_OF((end / KV_PAGE_TOKENS + 1) * KV_PAGE_TOKENS, most);
    }
    return end - q->n_computed;
}

void sched_forget_pages(struct sched *s, struct sched_seq *q)
{
    for (int32_t i = 0, page = KV_NO_PAGE; i < q->pages.n_gone; i++) {
        page = sched_find_page(s, q, i, page);
        if (page == KV_NO_PAGE) { /* the chain is broken, so all later pages are lost anyway */
            break;
        }
        kv_cache_forget(s->kv, page);
    }
    for (int32_t i = q->pages.n_gone; i < q->pages.n; i++) {
        kv_cache_forget(s->kv, q->pages.table[i]);
    }
}

void sched_named_pages_filled(struct sched *s, struct sched_seq *q, int32_t from)
{
    for (int32_t i = from / KV_PAGE_TOKENS; i < q->n_computed / KV_PAGE_TOKENS; i++) {
        int32_t page = q->pages.table[i], parent = sched_parent(q, i);
        bool can_name = q->terms.leaves_pages && !kv_cache_is_named(s->kv, page) &&
                        (parent == KV_NO_PAGE || kv_cache_is_filled(s->kv, parent));
        bool has_name = can_name && sched_name_page(s, q, i);
        if (can_name && !has_name && s->cfg.n_states != 0) {
            sched_adopt_page(s, q, i); /* its name is needed by its children */
        } else if (can_name && !has_name && s->cfg.n_windows != 0) {
            if (sched_local_adopt(s, q, i)) { /* it can have lost its window page since it was computed */
                sched_disk_filled(s, q, i);
            }
        } else if (kv_cache_is_named(s->kv, page)) {
            kv_cache_fill(s->kv, page);
            sched_local_filled(s, q, i);
            sched_disk_filled(s, q, i);
            if (q->pages.are_preferred) {
                kv_cache_prefer(s->kv, page);
            }
        }
    }
}
