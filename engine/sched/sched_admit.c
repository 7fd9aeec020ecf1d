/* Where pages come from: admission with shared prefixes, growth while decoding, preemption when there are none left. */
#include "engine/sched/sched_internal.h"

static int32_t pages_for(int32_t n_positions) { return (n_positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; }

/* Lets the state and all pages go, the last first, so that a prefix outlives what hangs from it. Pages it was computing
 * lose their owner. */
void sched_drop_pages(struct sched *s, struct sched_seq *q)
{
    while (q->n_pages > 0) {
        int32_t page = q->pages[--q->n_pages];
        if (kv_cache_is_named(s->kv, page) && kv_cache_owner(s->kv, page) == q->number) {
            kv_cache_set_owner(s->kv, page, KV_NO_OWNER);
        }
        kv_cache_drop(s->kv, page);
    }
    sched_drop_states(s, q);
    q->n_computed = 0;
}

/* Pages that q may share: whole ones in front of its last token, of recurrent models only those up to a state. */
static int32_t shareable(const struct sched *s, const struct sched_seq *q)
{
    return q->is_private ? 0 : s->cfg.n_states != 0 ? sched_pages_with_state(s, q) : (q->n_tokens - 1) / KV_PAGE_TOKENS;
}

/* Holds or takes the pages of q's tokens. Whole pages in front of the last token are shared where another sequence has
 * them, filled or not. False, with all let go, when the pool cannot give them. */
static bool take_pages(struct sched *s, struct sched_seq *q)
{
    int32_t wanted = pages_for(q->n_tokens), n_shareable = shareable(s, q);
    int32_t parent = KV_NO_PAGE;
    bool is_chained = true; /* the pages so far have names */
    while (q->n_pages < wanted) {
        const int32_t *tokens = q->tokens + q->n_pages * KV_PAGE_TOKENS;
        bool may_share = is_chained && q->n_pages < n_shareable;
        int32_t page = may_share ? kv_cache_find(s->kv, q->salt, parent, tokens) : KV_NO_PAGE;
        if (page != KV_NO_PAGE) {
            kv_cache_hold(s->kv, page);
        } else {
            page = kv_cache_take(s->kv);
            if (page == KV_NO_PAGE) {
                sched_drop_pages(s, q);
                return false;
            }
            is_chained = may_share && kv_cache_name(s->kv, page, q->salt, parent, tokens, q->number);
        }
        q->pages[q->n_pages++] = page;
        parent = page;
    }
    return true;
}

/* Pages that admitting q would take from what is available: shared ones that somebody holds cost nothing. */
static int32_t pages_missing(const struct sched *s, const struct sched_seq *q)
{
    int32_t n = pages_for(q->n_tokens), n_shareable = shareable(s, q), parent = KV_NO_PAGE;
    for (int32_t i = 0; i < n_shareable; i++) {
        parent = kv_cache_find(s->kv, q->salt, parent, q->tokens + i * KV_PAGE_TOKENS);
        if (parent == KV_NO_PAGE) {
            break;
        }
        n -= kv_cache_is_held(s->kv, parent);
    }
    return n;
}

/* Puts q into a list that is in order of number. */
static void insert(struct sched_seq **list, struct sched_seq *q)
{
    while (*list != NULL && (*list)->number < q->number) {
        list = &(*list)->next;
    }
    q->next = *list;
    *list = q;
}

/* Takes the pages and the state of q, which runs, and sends it back to wait in its old place. */
static void preempt(struct sched *s, struct sched_seq *q)
{
    struct sched_seq **link = &s->running;
    while (*link != q) {
        link = &(*link)->next;
    }
    *link = q->next;
    q->was_preempted = q->was_preempted || q->n_computed > 0;
    sched_give_turn_back(s, q);
    sched_drop_pages(s, q);
    q->stalled_since = 0; /* not its reader's fault while it waits */
    insert(&s->waiting, q);
    pthread_mutex_lock(&s->lock);
    s->n_queued++;
    s->stats.preempted++;
    pthread_mutex_unlock(&s->lock);
}

/* Tokens of q, just admitted, that must be computed though they may have been before. */
static int32_t n_unknown(const struct sched *s, const struct sched_seq *q)
{
    int32_t n = 0;
    while (n < q->n_pages && kv_cache_is_named(s->kv, q->pages[n]) && kv_cache_is_filled(s->kv, q->pages[n])) {
        n++;
    }
    return q->n_tokens - n * KV_PAGE_TOKENS;
}

static void begin(struct sched *s, struct sched_seq *q)
{
    if (s->cfg.n_states != 0) {
        sched_begin_state(s, q);
    }
    q->n_safe = q->was_preempted ? q->n_tokens + MAX_OF(n_unknown(s, q), (int32_t)SCHED_QUANTUM) : 0;
    q->wait = SCHED_WAIT_COUNT;
    q->next = s->running;
    s->running = q;
    sched_take_turn(s, q);
    if (!q->was_admitted) {
        q->was_admitted = true;
        q->admit_ns = clock_now_ns();
        pthread_mutex_lock(&q->lock);
        q->usage.queue_ns = q->admit_ns - q->submit_ns;
        pthread_mutex_unlock(&q->lock);
        pthread_mutex_lock(&s->lock);
        s->stats.prompt_tokens += (uint64_t)q->n_prompt;
        pthread_mutex_unlock(&s->lock);
    }
}

int32_t sched_admit_all(struct sched *s)
{
    int32_t n = 0;
    for (;;) {
        struct sched_seq **link = sched_next_turn(s);
        s->queue_wait = SCHED_WAIT_SEAT;
        if (link == NULL) {
            return n;
        }
        /* One page more than it needs now, so that admitting does not at once lead to preempting. */
        struct sched_seq *q = *link;
        bool has_room =
            s->running == NULL || (s->n_running < s->cfg.max_seqs && kv_cache_n_available(s->kv) > pages_missing(s, q));
        if (has_room && take_pages(s, q)) {
            *link = q->next;
            begin(s, q);
            n++;
            continue;
        }
        struct sched_seq *other = sched_whose_place(s, q);
        if (other == NULL) {
            s->queue_wait = s->n_running < s->cfg.max_seqs ? SCHED_WAIT_PAGES : SCHED_WAIT_SEAT;
            return n;
        }
        preempt(s, other);
    }
}

/* Preempts the last of those that run, if it comes behind q and is not in the batch. */
static bool preempt_last(struct sched *s, const struct sched_seq *q)
{
    struct sched_seq *last = s->running;
    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    if (last == NULL || last == q || last->n_chunk != 0) {
        return false;
    }
    preempt(s, last);
    return true;
}

bool sched_grow(struct sched *s, struct sched_seq *q, int32_t n_positions)
{
    while (q->n_pages < pages_for(n_positions)) {
        int32_t page = kv_cache_take(s->kv);
        if (page != KV_NO_PAGE) {
            q->pages[q->n_pages++] = page;
        } else if (!preempt_last(s, q)) {
            q->wait = SCHED_WAIT_PAGES;
            return false;
        }
    }
    return true;
}

int32_t sched_ready_rows(struct sched *s, struct sched_seq *q)
{
    while (q->n_computed % KV_PAGE_TOKENS == 0 && q->n_computed / KV_PAGE_TOKENS < q->n_pages) {
        int32_t page = q->pages[q->n_computed / KV_PAGE_TOKENS];
        if (!kv_cache_is_named(s->kv, page)) {
            break;
        }
        if (!kv_cache_is_filled(s->kv, page)) {
            uint64_t owner = kv_cache_owner(s->kv, page);
            if (owner != KV_NO_OWNER && owner != q->number) {
                return 0; /* somebody else is computing it */
            }
            kv_cache_set_owner(s->kv, page, q->number);
            break;
        }
        q->n_computed += KV_PAGE_TOKENS;
        if (!q->was_preempted) { /* what a preempted sequence finds again was counted or computed before */
            pthread_mutex_lock(&q->lock);
            q->usage.cached_tokens += KV_PAGE_TOKENS;
            pthread_mutex_unlock(&q->lock);
            pthread_mutex_lock(&s->lock);
            s->stats.cached_tokens += KV_PAGE_TOKENS;
            pthread_mutex_unlock(&s->lock);
        }
    }
    if (q->n_computed < q->n_prompt) {
        sched_note_processed(q);
    }
    /* Up to the next page that somebody else computes. */
    int32_t end = q->n_computed;
    while (end < q->n_tokens) {
        int32_t page = q->pages[end / KV_PAGE_TOKENS];
        uint64_t owner = kv_cache_is_named(s->kv, page) ? kv_cache_owner(s->kv, page) : q->number;
        if (owner == KV_NO_OWNER && !kv_cache_is_filled(s->kv, page)) {
            kv_cache_set_owner(s->kv, page, q->number);
            owner = q->number;
        }
        if (owner != q->number) {
            break;
        }
        end = MIN_OF((end / KV_PAGE_TOKENS + 1) * KV_PAGE_TOKENS, q->n_tokens);
    }
    return end - q->n_computed;
}

void sched_forget_pages(struct sched *s, struct sched_seq *q)
{
    for (int32_t i = 0; i < q->n_pages; i++) {
        kv_cache_forget(s->kv, q->pages[i]);
    }
}

void sched_named_pages_filled(struct sched *s, struct sched_seq *q, int32_t from)
{
    for (int32_t i = from / KV_PAGE_TOKENS; i < q->n_computed / KV_PAGE_TOKENS; i++) {
        int32_t page = q->pages[i], parent = i > 0 ? q->pages[i - 1] : KV_NO_PAGE;
        bool can_name = q->leaves_pages && !kv_cache_is_named(s->kv, page) &&
                        (parent == KV_NO_PAGE || kv_cache_is_filled(s->kv, parent));
        bool has_name =
            can_name && kv_cache_name(s->kv, page, q->salt, parent, q->tokens + i * KV_PAGE_TOKENS, q->number);
        if (can_name && !has_name && s->cfg.n_states != 0) {
            sched_adopt_page(s, q, i); /* its name is wanted, for those behind it */
        } else if (kv_cache_is_named(s->kv, page)) {
            kv_cache_fill(s->kv, page);
        }
    }
}
