/* Random operations of eight sequences on kv_cache against a model that searches where the cache links. */
#include "engine/base/rng.h"
#include "engine/kv/pool/kv_cache.h"

#include <check.h>

Suite *kv_cache_model_suite(void);

static const int32_t *page_tokens(int32_t which)
{
    static int32_t tokens[KV_PAGE_TOKENS];
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        tokens[i] = i + 1 == KV_PAGE_TOKENS ? which : 7;
    }
    return tokens;
}

enum { N_PAGES = 24, N_SEQS = 8, MAX_SEQ_PAGES = 6, N_KINDS = 3, N_STATES = 3, N_WINDOWS = 6, N_STEPS = 60000 };

/* What the cache should know of a page. */
struct model_page {
    int n_held;
    bool is_named, is_filled, is_forgotten;
    uint64_t salt, owner;
    int32_t parent, kind;
    long dropped_at; /* when it was last let go; 0 = it is not kept */
    bool is_preferred;
};

struct model_state {
    int n_held;
    int32_t page; /* that keeps it */
    long used_at;
};

struct model_window {
    int n_held;
    int32_t page; /* that keeps it */
    bool is_passed;
    long dropped_at; /* or preferred since */
};

struct model_seq {
    uint64_t number, salt;
    int32_t kinds[MAX_SEQ_PAGES], pages[MAX_SEQ_PAGES];
    int32_t windows[MAX_SEQ_PAGES]; /* held, or KV_NO_WINDOW */
    int n_pages;
    int32_t state; /* held to go on from, or KV_NO_STATE */
};

struct world {
    struct kv_cache *kv;
    struct model_page pages[N_PAGES];
    struct model_state states[N_STATES];
    struct model_window windows[N_WINDOWS];
    struct model_seq seqs[N_SEQS];
    long now;
    uint64_t draws, n_evicted, n_shared, n_refused, n_forgotten, n_states_evicted, n_states_refused,
        n_windows_evicted[3], n_windows_refused;
};

static uint32_t pick(struct world *w, uint32_t n) { return (uint32_t)(rng_uniform(2718, 0, w->draws++) * n); }

static void require(const struct world *w, bool ok, const char *what)
{
    if (!ok) {
        ck_abort_msg("step %ld: %s", w->now, what);
    }
}

static int32_t model_find(const struct world *w, uint64_t salt, int32_t parent, int32_t kind)
{
    for (int32_t i = 0; i < N_PAGES; i++) {
        const struct model_page *p = &w->pages[i];
        if (p->is_named && !p->is_forgotten && p->salt == salt && p->parent == parent && p->kind == kind) {
            return i;
        }
    }
    return KV_NO_PAGE;
}

static bool has_children(const struct world *w, int32_t page)
{
    for (int32_t i = 0; i < N_PAGES; i++) {
        if (w->pages[i].is_named && w->pages[i].parent == page) {
            return true;
        }
    }
    return false;
}

static bool is_free(const struct model_page *p) { return p->n_held == 0 && p->dropped_at == 0; }

static int32_t victim_of(const struct world *w, bool is_preferred)
{
    int32_t best = KV_NO_PAGE;
    for (int32_t i = 0; i < N_PAGES; i++) {
        long at = w->pages[i].dropped_at;
        bool is_one = at != 0 && w->pages[i].is_preferred == is_preferred && !has_children(w, i);
        if (is_one && (best == KV_NO_PAGE || at < w->pages[best].dropped_at)) {
            best = i;
        }
    }
    return best;
}

/* The page that must make room: of the kept ones without children the one let go first, of those that are not preferred unless there
 * are too many others. */
static int32_t model_victim(const struct world *w)
{
    int n_preferred = 0;
    for (int32_t i = 0; i < N_PAGES; i++) {
        n_preferred += w->pages[i].dropped_at != 0 && w->pages[i].is_preferred;
    }
    bool first = n_preferred * 4 > N_PAGES * 3;
    int32_t victim = victim_of(w, first);
    return victim != KV_NO_PAGE ? victim : victim_of(w, !first);
}

static void lose_window(struct world *w, int32_t page)
{
    for (int32_t i = 0; i < N_WINDOWS; i++) {
        w->windows[i].page = w->windows[i].page == page ? KV_NO_PAGE : w->windows[i].page;
    }
}

static void lose_state(struct world *w, int32_t page)
{
    for (int32_t i = 0; i < N_STATES; i++) {
        w->states[i].page = w->states[i].page == page ? KV_NO_PAGE : w->states[i].page;
    }
}

static int32_t state_of(const struct world *w, int32_t page)
{
    for (int32_t i = 0; i < N_STATES; i++) {
        if (w->states[i].page == page) {
            return i;
        }
    }
    return KV_NO_STATE;
}

/* Leaves a state with a page that is filled and has none. */
static void keep_one(struct world *w, int32_t page)
{
    bool any_free = false;
    int32_t best = KV_NO_STATE, got = kv_cache_take_state(w->kv), n_preferred = 0;
    long best_rank = 0;
    for (int32_t i = 0; i < N_STATES; i++) {
        n_preferred += w->states[i].page != KV_NO_PAGE && w->pages[w->states[i].page].is_preferred;
    }
    for (int32_t i = 0; i < N_STATES; i++) {
        const struct model_state *s = &w->states[i];
        bool is_preferred = s->page != KV_NO_PAGE && w->pages[s->page].is_preferred && n_preferred * 4 <= N_STATES * 3;
        long rank = s->used_at + (is_preferred ? 1000000000 : 0);
        any_free = any_free || (s->n_held == 0 && s->page == KV_NO_PAGE);
        if (s->n_held == 0 && (best == KV_NO_STATE || rank < best_rank)) {
            best = i;
            best_rank = rank;
        }
    }
    if (got == KV_NO_STATE) {
        require(w, best == KV_NO_STATE, "a state was refused that nobody holds");
        w->n_states_refused++;
        return;
    }
    struct model_state *s = &w->states[got];
    require(w, any_free ? s->n_held == 0 && s->page == KV_NO_PAGE : got == best, "another state was evicted");
    w->n_states_evicted += !any_free;
    kv_cache_keep_state(w->kv, page, got);
    kv_cache_drop_state(w->kv, got);
    *s = (struct model_state){.page = page, .used_at = ++w->now};
}

/* A sequence keeps a state with one of its pages, holds one, or takes one from its page. */
static void use_states(struct world *w, struct model_seq *q)
{
    int32_t page = q->pages[pick(w, (uint32_t)q->n_pages)], state = state_of(w, page);
    const struct model_page *p = &w->pages[page];
    if (p->is_named && p->is_filled && state == KV_NO_STATE) {
        keep_one(w, page);
    } else if (state != KV_NO_STATE && q->state == KV_NO_STATE) {
        kv_cache_hold_state(w->kv, state);
        w->states[state].n_held++;
        w->states[state].used_at = ++w->now;
        q->state = state;
    } else if (state != KV_NO_STATE) {
        kv_cache_forget_state(w->kv, page);
        lose_state(w, page);
    }
}

/* 0: passed, 1: ended, 2: preferred. */
static int rank_of(const struct world *w, const struct model_window *o)
{
    return w->pages[o->page].is_preferred ? 2 : !o->is_passed;
}

/* A sequence takes a window page for one of its pages, or lets it go; a page that is filled keeps it. */
static void use_windows(struct world *w, struct model_seq *q)
{
    uint32_t i = pick(w, (uint32_t)q->n_pages);
    int32_t page = q->pages[i], own = q->windows[i], kept = kv_cache_window(w->kv, page);
    require(w, kept == KV_NO_WINDOW || w->windows[kept].page == page, "another page's window page");
    if (own != KV_NO_WINDOW) {
        bool passes = pick(w, 2) == 0;
        kv_cache_drop_window(w->kv, own, passes);
        q->windows[i] = KV_NO_WINDOW;
        if (--w->windows[own].n_held == 0) {
            w->windows[own].is_passed = passes;
            w->windows[own].dropped_at = ++w->now;
        }
        return;
    }
    if (kept != KV_NO_WINDOW) {
        kv_cache_hold_window(w->kv, kept);
        w->windows[kept].n_held++;
        q->windows[i] = kept;
        return;
    }
    int32_t best = KV_NO_WINDOW, n[3] = {0};
    bool any_free = false;
    for (int32_t k = 0; k < N_WINDOWS; k++) {
        const struct model_window *o = &w->windows[k];
        any_free = any_free || (o->n_held == 0 && o->page == KV_NO_PAGE);
        n[o->n_held == 0 && o->page != KV_NO_PAGE ? rank_of(w, o) : 0] += o->n_held == 0 && o->page != KV_NO_PAGE;
    }
    int rank = n[2] * 4 > N_WINDOWS * 3 || n[0] + n[1] == 0 ? 2 : n[0] == 0;
    for (int32_t k = 0; k < N_WINDOWS; k++) {
        const struct model_window *o = &w->windows[k];
        bool may = o->n_held == 0 && o->page != KV_NO_PAGE && rank_of(w, o) == rank;
        best = may && (best == KV_NO_WINDOW || o->dropped_at < w->windows[best].dropped_at) ? k : best;
    }
    int32_t got = kv_cache_take_window(w->kv);
    if (!any_free) {
        require(w, got == best, "another window page was taken, or none");
        w->n_windows_refused += got == KV_NO_WINDOW;
        w->n_windows_evicted[rank] += got != KV_NO_WINDOW;
    }
    if (got == KV_NO_WINDOW) {
        return;
    }
    require(w, w->windows[got].n_held == 0 && (!any_free || w->windows[got].page == KV_NO_PAGE),
            "one in use was taken");
    w->windows[got] = (struct model_window){.n_held = 1, .page = KV_NO_PAGE};
    q->windows[i] = got;
    const struct model_page *p = &w->pages[page];
    if (p->is_named && p->is_filled && !p->is_forgotten) {
        kv_cache_keep_window(w->kv, page, got);
        w->windows[got].page = page;
    }
}

static int32_t take(struct world *w)
{
    bool any_free = false;
    for (int32_t i = 0; i < N_PAGES; i++) {
        any_free = any_free || is_free(&w->pages[i]);
    }
    int32_t victim = any_free ? KV_NO_PAGE : model_victim(w), got = kv_cache_take(w->kv);
    if (any_free) {
        require(w, got >= 0 && got < N_PAGES && is_free(&w->pages[got]), "a page that is not free was taken");
    } else {
        require(w, got == victim, "another page was evicted, or none");
        w->n_evicted += got != KV_NO_PAGE;
        w->n_refused += got == KV_NO_PAGE;
    }
    if (got != KV_NO_PAGE) {
        lose_state(w, got);
        lose_window(w, got);
        w->pages[got] = (struct model_page){.n_held = 1, .parent = KV_NO_PAGE};
    }
    return got;
}

static void drop(struct world *w, int32_t id)
{
    struct model_page *p = &w->pages[id];
    kv_cache_drop(w->kv, id);
    if (--p->n_held > 0) {
        return;
    }
    if (p->is_named && p->is_filled) {
        p->dropped_at = ++w->now;
    } else {
        *p = (struct model_page){.parent = KV_NO_PAGE};
    }
}

static void end_seq(struct world *w, struct model_seq *q)
{
    if (q->state != KV_NO_STATE) {
        kv_cache_drop_state(w->kv, q->state);
        w->states[q->state].n_held--;
        q->state = KV_NO_STATE;
    }
    while (q->n_pages > 0) {
        int32_t id = q->pages[--q->n_pages], window = q->windows[q->n_pages];
        if (window != KV_NO_WINDOW) {
            kv_cache_drop_window(w->kv, window, false);
            if (--w->windows[window].n_held == 0) {
                w->windows[window].is_passed = false;
                w->windows[window].dropped_at = ++w->now;
            }
        }
        if (w->pages[id].is_named && w->pages[id].owner == q->number) {
            kv_cache_set_owner(w->kv, id, KV_NO_OWNER);
            w->pages[id].owner = KV_NO_OWNER;
        }
        drop(w, id);
    }
}

/* As a sequence is admitted: shared pages in front, own ones after, some of them without a name. */
static void start_seq(struct world *w, struct model_seq *q)
{
    int wanted = 1 + (int)pick(w, MAX_SEQ_PAGES);
    bool may_share = true;
    *q = (struct model_seq){.number = (uint64_t)++w->now, .salt = pick(w, 2), .state = KV_NO_STATE};
    for (int i = 0; i < wanted; i++) {
        int32_t parent = i > 0 ? q->pages[i - 1] : KV_NO_PAGE, kind = (int32_t)pick(w, N_KINDS);
        int32_t expected = may_share ? model_find(w, q->salt, parent, kind) : KV_NO_PAGE;
        int32_t id = may_share ? kv_cache_find(w->kv, q->salt, parent, page_tokens(kind)) : KV_NO_PAGE;
        require(w, id == expected, "find gave another page");
        if (id != KV_NO_PAGE) {
            kv_cache_hold(w->kv, id);
            w->pages[id].n_held++;
            w->pages[id].dropped_at = 0;
            w->n_shared++;
        } else {
            id = take(w);
            if (id == KV_NO_PAGE) {
                end_seq(w, q);
                return;
            }
            may_share = may_share && pick(w, 10) != 0;
            if (may_share) {
                require(w, kv_cache_name(w->kv, id, q->salt, parent, page_tokens(kind)), "not named");
                kv_cache_set_owner(w->kv, id, q->number);
                w->pages[id] = (struct model_page){
                    .n_held = 1, .is_named = true, .salt = q->salt, .owner = q->number, .parent = parent, .kind = kind};
            }
        }
        q->kinds[i] = kind;
        q->windows[i] = KV_NO_WINDOW;
        q->pages[q->n_pages++] = id;
    }
}

/* Completes the first page that is not complete yet, if it is nobody else's. */
static void compute(struct world *w, struct model_seq *q)
{
    for (int i = 0; i < q->n_pages; i++) {
        struct model_page *p = &w->pages[q->pages[i]];
        if (!p->is_named) {
            return;
        }
        if (p->is_filled) {
            continue;
        }
        if (p->owner == q->number || p->owner == KV_NO_OWNER) {
            kv_cache_set_owner(w->kv, q->pages[i], q->number);
            kv_cache_fill(w->kv, q->pages[i]);
            p->is_filled = true;
            p->owner = KV_NO_OWNER;
        }
        return;
    }
}

static void forget(struct world *w, const struct model_seq *q)
{
    for (int i = 0; i < q->n_pages; i++) {
        struct model_page *p = &w->pages[q->pages[i]];
        kv_cache_forget(w->kv, q->pages[i]);
        if (p->is_named && p->is_filled && !p->is_forgotten) {
            p->is_forgotten = true;
            lose_state(w, q->pages[i]);
            lose_window(w, q->pages[i]);
        }
    }
    w->n_forgotten++;
}

static void compare_all(const struct world *w)
{
    int n_held = 0, n_kept = 0, owners[N_PAGES] = {0};
    for (int i = 0; i < N_SEQS; i++) {
        for (int k = 0; k < w->seqs[i].n_pages; k++) {
            owners[w->seqs[i].pages[k]]++;
        }
    }
    for (int32_t i = 0; i < N_PAGES; i++) {
        const struct model_page *p = &w->pages[i];
        require(w, p->n_held == owners[i], "a page's count differs from its holders");
        require(w, kv_cache_is_held(w->kv, i) == (owners[i] > 0), "is_held");
        require(w, kv_cache_is_named(w->kv, i) == p->is_named, "is_named");
        require(w, !p->is_named || kv_cache_is_filled(w->kv, i) == p->is_filled, "is_filled");
        require(w, state_of(w, i) != KV_NO_STATE || kv_cache_state(w->kv, i) == KV_NO_STATE, "a state too many");
        require(w, !p->is_named || kv_cache_owner(w->kv, i) == p->owner, "owner");
        if (p->is_named && !p->is_forgotten) {
            require(w, kv_cache_find(w->kv, p->salt, p->parent, page_tokens(p->kind)) == i, "a named page is lost");
        }
        n_held += owners[i] > 0;
        n_kept += p->dropped_at != 0;
    }
    int n_windows_held = 0, n_windows_kept = 0;
    for (int32_t i = 0; i < N_WINDOWS; i++) {
        int32_t page = w->windows[i].page;
        require(w, page == KV_NO_PAGE || kv_cache_window(w->kv, page) == i, "a page's window page is lost");
        n_windows_held += w->windows[i].n_held > 0;
        n_windows_kept += w->windows[i].n_held == 0 && page != KV_NO_PAGE;
    }
    require(w, kv_cache_n_windows_held(w->kv) == n_windows_held, "n_windows_held");
    require(w, kv_cache_n_windows_kept(w->kv) == n_windows_kept, "n_windows_kept");
    int n_states_held = 0, n_states_kept = 0;
    for (int32_t i = 0; i < N_STATES; i++) {
        int32_t page = w->states[i].page;
        require(w, page == KV_NO_PAGE || kv_cache_state(w->kv, page) == i, "a page's state is lost");
        n_states_held += w->states[i].n_held > 0;
        n_states_kept += page != KV_NO_PAGE;
    }
    require(w, kv_cache_n_states_held(w->kv) == n_states_held, "n_states_held");
    require(w, kv_cache_n_states_kept(w->kv) == n_states_kept, "n_states_kept");
    require(w, kv_cache_n_held(w->kv) == n_held && kv_cache_n_kept(w->kv) == n_kept, "n_held or n_kept");
    require(w, kv_cache_n_available(w->kv) == N_PAGES - n_held, "n_available: a page has leaked");
}

START_TEST(random_use_agrees_with_a_plain_model)
{
    struct world w = {0};
    ck_assert_int_eq(kv_cache_new(N_PAGES, N_WINDOWS, N_STATES, &w.kv), ERR_OK);
    for (int i = 0; i < N_WINDOWS; i++) {
        w.windows[i].page = KV_NO_PAGE;
    }
    for (int i = 0; i < N_PAGES; i++) {
        w.pages[i].parent = KV_NO_PAGE;
    }
    for (int i = 0; i < N_STATES; i++) {
        w.states[i].page = KV_NO_PAGE;
    }
    for (int i = 0; i < N_SEQS; i++) {
        w.seqs[i].state = KV_NO_STATE;
    }
    for (int step = 0; step < N_STEPS; step++) {
        w.now++;
        struct model_seq *q = &w.seqs[pick(&w, N_SEQS)];
        uint32_t what = pick(&w, 100);
        if (q->n_pages == 0) {
            start_seq(&w, q);
        } else if (what < 42) {
            compute(&w, q);
        } else if (what < 54) {
            use_windows(&w, q);
        } else if (what < 70) {
            use_states(&w, q);
        } else if (what < 72) {
            int32_t page = q->pages[pick(&w, (uint32_t)q->n_pages)];
            struct model_page *p = &w.pages[page];
            kv_cache_prefer(w.kv, page);
            bool becomes = !p->is_preferred && p->is_named && p->is_filled && !p->is_forgotten;
            p->is_preferred = p->is_preferred || becomes;
            int32_t window = becomes ? kv_cache_window(w.kv, page) : KV_NO_WINDOW;
            if (window != KV_NO_WINDOW) {
                w.windows[window].dropped_at = ++w.now;
            }
        } else if (what < 98) {
            end_seq(&w, q);
        } else {
            forget(&w, q);
        }
        compare_all(&w);
    }
    for (int i = 0; i < N_SEQS; i++) {
        end_seq(&w, &w.seqs[i]);
    }
    compare_all(&w);
    ck_assert_int_eq(kv_cache_n_held(w.kv), 0);
    ck_assert_int_eq(kv_cache_n_states_held(w.kv), 0);
    ck_assert_int_eq(kv_cache_n_available(w.kv), N_PAGES);
    for (int i = 0; i < N_PAGES; i++) { /* everything can be had again */
        ck_assert_int_ne(take(&w), KV_NO_PAGE);
    }
    ck_assert_int_eq(take(&w), KV_NO_PAGE);
    ck_assert_msg(w.n_evicted > 1000 && w.n_shared > 1000 && w.n_refused > 100 && w.n_forgotten > 100,
                  "not all was met: %lu evicted, %lu shared, %lu refused, %lu forgotten", (unsigned long)w.n_evicted,
                  (unsigned long)w.n_shared, (unsigned long)w.n_refused, (unsigned long)w.n_forgotten);
    ck_assert_int_eq(kv_cache_n_states_kept(w.kv), 0); /* no page has a name now */
    ck_assert_msg(w.n_states_evicted > 1000 && w.n_states_refused > 5,
                  "not all was met: %lu states evicted, %lu refused", (unsigned long)w.n_states_evicted,
                  (unsigned long)w.n_states_refused);
    ck_assert_int_eq(kv_cache_n_windows_held(w.kv) + kv_cache_n_windows_kept(w.kv), 0);
    ck_assert_msg(w.n_windows_evicted[0] > 20 && w.n_windows_evicted[1] > 100 && w.n_windows_evicted[2] > 20 &&
                      w.n_windows_refused > 20,
                  "not all was met: window pages %lu passed, %lu ended, %lu preferred, %lu refused",
                  (unsigned long)w.n_windows_evicted[0], (unsigned long)w.n_windows_evicted[1],
                  (unsigned long)w.n_windows_evicted[2], (unsigned long)w.n_windows_refused);
    kv_cache_free(&w.kv);
}
END_TEST

Suite *kv_cache_model_suite(void)
{
    Suite *s = suite_create("kv_cache_model");
    TCase *c = tcase_create("kv_cache_model");
    tcase_add_test(c, random_use_agrees_with_a_plain_model);
    suite_add_tcase(s, c);
    return s;
}
