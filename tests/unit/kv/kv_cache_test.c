/* The page cache on its own: counts, names, eviction order and exhaustion case by case, then random use by many
 * sequences against a plain model of it that searches instead of linking.
 *
 * Over 600 lines, as the model of pages, states and sequences is one. */
#include "engine/kv/kv_cache.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <string.h>

Suite *kv_cache_suite(void);

static struct kv_cache *new_cache_with_states(int32_t n_pages, int32_t n_states)
{
    struct kv_cache *kv;
    ck_assert_int_eq(kv_cache_new(n_pages, n_states, &kv), ERR_OK);
    return kv;
}

static struct kv_cache *new_cache(int32_t n_pages) { return new_cache_with_states(n_pages, 0); }

/* The tokens of a page, told apart by one number; pages differ in their last token alone. */
static const int32_t *page_tokens(int32_t which)
{
    static int32_t tokens[KV_PAGE_TOKENS];
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        tokens[i] = i + 1 == KV_PAGE_TOKENS ? which : 7;
    }
    return tokens;
}

/* Takes, names and fills a page. */
static int32_t make_page(struct kv_cache *kv, uint64_t salt, int32_t parent, int32_t which)
{
    int32_t page = kv_cache_take(kv);
    ck_assert_int_ne(page, KV_NO_PAGE);
    ck_assert(kv_cache_name(kv, page, salt, parent, page_tokens(which), 1));
    kv_cache_fill(kv, page);
    return page;
}

START_TEST(every_page_is_given_once_and_then_none)
{
    enum { N = 37 };
    struct kv_cache *kv = new_cache(N);
    bool is_given[N] = {false};
    ck_assert_int_eq(kv_cache_n_pages(kv), N);
    for (int round = 0; round < 3; round++) {
        memset(is_given, 0, sizeof is_given);
        for (int i = 0; i < N; i++) {
            ck_assert_int_eq(kv_cache_n_available(kv), N - i);
            int32_t page = kv_cache_take(kv);
            ck_assert(page >= 0 && page < N && !is_given[page]);
            is_given[page] = true;
            ck_assert(kv_cache_is_held(kv, page) && !kv_cache_is_named(kv, page));
        }
        ck_assert_int_eq(kv_cache_take(kv), KV_NO_PAGE);
        ck_assert_int_eq(kv_cache_n_held(kv), N);
        for (int i = 0; i < N; i++) {
            kv_cache_drop(kv, (i * 11 + round) % N);
        }
        ck_assert_int_eq(kv_cache_n_held(kv), 0);
        ck_assert_int_eq(kv_cache_n_kept(kv), 0);
    }
    kv_cache_free(&kv);
    ck_assert_ptr_null(kv);
}
END_TEST

START_TEST(a_page_lives_as_long_as_somebody_holds_it)
{
    struct kv_cache *kv = new_cache(2);
    int32_t page = kv_cache_take(kv);
    kv_cache_hold(kv, page);
    kv_cache_hold(kv, page);
    ck_assert_int_eq(kv_cache_n_held(kv), 1);
    kv_cache_drop(kv, page);
    kv_cache_drop(kv, page);
    ck_assert(kv_cache_is_held(kv, page));
    int32_t other = kv_cache_take(kv);
    ck_assert_int_ne(other, page);
    ck_assert_int_eq(kv_cache_take(kv), KV_NO_PAGE);
    kv_cache_drop(kv, page);
    ck_assert(!kv_cache_is_held(kv, page));
    ck_assert_int_eq(kv_cache_take(kv), page);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_prefix_is_found_by_salt_parent_and_every_token)
{
    struct kv_cache *kv = new_cache(8);
    int32_t a = make_page(kv, 5, KV_NO_PAGE, 1), b = make_page(kv, 5, a, 2);
    ck_assert_int_eq(kv_cache_find(kv, 5, KV_NO_PAGE, page_tokens(1)), a);
    ck_assert_int_eq(kv_cache_find(kv, 5, a, page_tokens(2)), b);
    ck_assert_int_eq(kv_cache_find(kv, 6, KV_NO_PAGE, page_tokens(1)), KV_NO_PAGE);
    ck_assert_int_eq(kv_cache_find(kv, 5, KV_NO_PAGE, page_tokens(2)), KV_NO_PAGE); /* the same tokens elsewhere */
    ck_assert_int_eq(kv_cache_find(kv, 5, b, page_tokens(2)), KV_NO_PAGE);
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        int32_t tokens[KV_PAGE_TOKENS];
        memcpy(tokens, page_tokens(1), sizeof tokens);
        tokens[i] ^= 64;
        ck_assert_int_eq(kv_cache_find(kv, 5, KV_NO_PAGE, tokens), KV_NO_PAGE);
    }
    kv_cache_drop(kv, b);
    kv_cache_drop(kv, a);
    ck_assert_int_eq(kv_cache_n_kept(kv), 2);
    ck_assert_int_eq(kv_cache_find(kv, 5, KV_NO_PAGE, page_tokens(1)), a);
    kv_cache_hold(kv, a);
    ck_assert_int_eq(kv_cache_n_kept(kv), 1);
    ck_assert(kv_cache_is_filled(kv, a));
    kv_cache_free(&kv);
}
END_TEST

START_TEST(an_identity_is_given_once)
{
    struct kv_cache *kv = new_cache(4);
    int32_t a = kv_cache_take(kv), b = kv_cache_take(kv);
    ck_assert(kv_cache_name(kv, a, 0, KV_NO_PAGE, page_tokens(1), 9));
    ck_assert(!kv_cache_name(kv, b, 0, KV_NO_PAGE, page_tokens(1), 10));
    ck_assert(!kv_cache_is_named(kv, b));
    ck_assert(kv_cache_name(kv, b, 1, KV_NO_PAGE, page_tokens(1), 10));
    ck_assert_uint_eq(kv_cache_owner(kv, a), 9);
    kv_cache_set_owner(kv, a, 11);
    ck_assert_uint_eq(kv_cache_owner(kv, a), 11);
    ck_assert(!kv_cache_is_filled(kv, a));
    kv_cache_fill(kv, a);
    ck_assert(kv_cache_is_filled(kv, a));
    ck_assert_uint_eq(kv_cache_owner(kv, a), KV_NO_OWNER);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(an_empty_page_is_not_kept)
{
    struct kv_cache *kv = new_cache(4);
    int32_t a = kv_cache_take(kv);
    ck_assert(kv_cache_name(kv, a, 0, KV_NO_PAGE, page_tokens(1), 9));
    kv_cache_hold(kv, a); /* somebody waits for it */
    kv_cache_drop(kv, a);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), a);
    kv_cache_drop(kv, a);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), KV_NO_PAGE);
    ck_assert_int_eq(kv_cache_n_kept(kv), 0);
    ck_assert_int_eq(kv_cache_n_available(kv), 4);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(the_longest_unused_goes_first)
{
    struct kv_cache *kv = new_cache(4);
    int32_t pages[4];
    for (int i = 0; i < 4; i++) {
        pages[i] = make_page(kv, 0, KV_NO_PAGE, i);
    }
    static const int dropped[] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++) {
        kv_cache_drop(kv, pages[dropped[i]]);
    }
    kv_cache_hold(kv, pages[0]); /* used again: the newest now */
    kv_cache_drop(kv, pages[0]);
    static const int taken[] = {2, 3, 1, 0};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(kv_cache_take(kv), pages[taken[i]]);
        ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(taken[i])), KV_NO_PAGE);
    }
    ck_assert_int_eq(kv_cache_take(kv), KV_NO_PAGE);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_prefix_outlives_what_hangs_from_it)
{
    struct kv_cache *kv = new_cache(4);
    int32_t a = make_page(kv, 0, KV_NO_PAGE, 1), b = make_page(kv, 0, a, 2), c = make_page(kv, 0, a, 3);
    kv_cache_drop(kv, a); /* in the wrong order: a is the oldest */
    kv_cache_drop(kv, b);
    kv_cache_drop(kv, c);
    int32_t free_one = kv_cache_take(kv);
    ck_assert(free_one != a && free_one != b && free_one != c);
    ck_assert_int_eq(kv_cache_take(kv), b);
    ck_assert_int_eq(kv_cache_find(kv, 0, a, page_tokens(3)), c);
    ck_assert_int_eq(kv_cache_take(kv), c);
    ck_assert_int_eq(kv_cache_take(kv), a);
    ck_assert_int_eq(kv_cache_take(kv), KV_NO_PAGE);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_held_page_is_never_taken_from_its_holder)
{
    struct kv_cache *kv = new_cache(3);
    int32_t a = make_page(kv, 0, KV_NO_PAGE, 1), b = make_page(kv, 0, a, 2), c = make_page(kv, 0, b, 3);
    kv_cache_drop(kv, c);
    ck_assert_int_eq(kv_cache_n_available(kv), 1);
    ck_assert_int_eq(kv_cache_take(kv), c);
    ck_assert_int_eq(kv_cache_take(kv), KV_NO_PAGE);
    ck_assert_int_eq(kv_cache_find(kv, 0, a, page_tokens(2)), b);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_forgotten_page_is_not_found_and_comes_back_in_turn)
{
    struct kv_cache *kv = new_cache(3);
    int32_t a = make_page(kv, 0, KV_NO_PAGE, 1), b = make_page(kv, 0, a, 2);
    int32_t bare = kv_cache_take(kv);
    kv_cache_forget(kv, bare); /* neither named nor filled: nothing to forget */
    kv_cache_forget(kv, a);
    kv_cache_forget(kv, a);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), KV_NO_PAGE);
    kv_cache_drop(kv, bare);
    int32_t again = make_page(kv, 0, KV_NO_PAGE, 1); /* the identity is free for a fresh page */
    ck_assert_int_eq(again, bare);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), again);
    ck_assert_int_eq(kv_cache_find(kv, 0, again, page_tokens(2)), KV_NO_PAGE);
    kv_cache_drop(kv, b);
    kv_cache_drop(kv, a);
    ck_assert_int_eq(kv_cache_n_available(kv), 2);
    ck_assert_int_eq(kv_cache_take(kv), b);
    ck_assert_int_eq(kv_cache_take(kv), a);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), again);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(every_state_is_given_once_and_then_none)
{
    struct kv_cache *kv = new_cache_with_states(1, 3), *none = new_cache(1);
    bool is_given[3] = {false};
    for (int i = 0; i < 3; i++) {
        int32_t state = kv_cache_take_state(kv);
        ck_assert(state >= 0 && state < 3 && !is_given[state]);
        is_given[state] = true;
        ck_assert_int_eq(kv_cache_n_states_held(kv), i + 1);
    }
    ck_assert_int_eq(kv_cache_take_state(kv), KV_NO_STATE);
    kv_cache_hold_state(kv, 1);
    kv_cache_drop_state(kv, 1);
    ck_assert_int_eq(kv_cache_take_state(kv), KV_NO_STATE); /* held twice, dropped once */
    kv_cache_drop_state(kv, 1);
    ck_assert_int_eq(kv_cache_take_state(kv), 1);
    ck_assert_int_eq(kv_cache_n_states_kept(kv), 0);
    ck_assert_int_eq(kv_cache_take_state(none), KV_NO_STATE);
    kv_cache_free(&kv);
    kv_cache_free(&none);
}
END_TEST

/* Leaves a fresh state with a page that has none; nobody holds it. */
static int32_t keep_state(struct kv_cache *kv, int32_t page)
{
    int32_t state = kv_cache_take_state(kv);
    ck_assert_int_ne(state, KV_NO_STATE);
    kv_cache_keep_state(kv, page, state);
    kv_cache_drop_state(kv, state);
    return state;
}

START_TEST(the_state_unused_for_the_longest_time_goes_first)
{
    struct kv_cache *kv = new_cache_with_states(4, 3);
    int32_t pages[4], states[3];
    for (int i = 0; i < 4; i++) {
        pages[i] = make_page(kv, 0, KV_NO_PAGE, i);
    }
    for (int i = 0; i < 3; i++) {
        states[i] = keep_state(kv, pages[i]);
        ck_assert_int_eq(kv_cache_state(kv, pages[i]), states[i]);
    }
    ck_assert_int_eq(kv_cache_n_states_kept(kv), 3);
    kv_cache_hold_state(kv, states[0]);
    kv_cache_hold_state(kv, states[1]);
    kv_cache_drop_state(kv, states[0]); /* used after the third was kept */
    ck_assert_int_eq(keep_state(kv, pages[3]), states[2]);
    ck_assert_int_eq(kv_cache_state(kv, pages[2]), KV_NO_STATE);
    ck_assert_int_eq(kv_cache_take_state(kv), states[0]);
    ck_assert_int_eq(kv_cache_state(kv, pages[0]), KV_NO_STATE);
    ck_assert_int_eq(kv_cache_state(kv, pages[1]), states[1]); /* held: nobody else gets it */
    ck_assert_int_eq(kv_cache_take_state(kv), states[2]);
    ck_assert_int_eq(kv_cache_take_state(kv), KV_NO_STATE);
    ck_assert_int_eq(kv_cache_n_states_kept(kv), 1);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_state_goes_with_the_name_of_its_page)
{
    struct kv_cache *kv = new_cache_with_states(2, 2);
    int32_t a = make_page(kv, 0, KV_NO_PAGE, 1), b = make_page(kv, 0, a, 2);
    int32_t of_a = keep_state(kv, a), of_b = keep_state(kv, b);
    kv_cache_hold_state(kv, of_b); /* somebody is about to go on from it */
    kv_cache_drop(kv, b);
    kv_cache_drop(kv, a);
    ck_assert_int_eq(kv_cache_n_states_kept(kv), 2);
    ck_assert_int_eq(kv_cache_take(kv), b);
    ck_assert_int_eq(kv_cache_state(kv, b), KV_NO_STATE);
    ck_assert_int_eq(kv_cache_state(kv, a), of_a);
    ck_assert_int_eq(kv_cache_n_states_kept(kv), 1);
    kv_cache_forget(kv, a);
    ck_assert_int_eq(kv_cache_state(kv, a), KV_NO_STATE);
    ck_assert_int_eq(kv_cache_n_states_kept(kv), 0);
    ck_assert_int_eq(kv_cache_take_state(kv), of_a);
    ck_assert_int_eq(kv_cache_take_state(kv), KV_NO_STATE);
    kv_cache_drop_state(kv, of_b);
    ck_assert_int_eq(kv_cache_take_state(kv), of_b);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_page_may_lose_its_state_alone)
{
    struct kv_cache *kv = new_cache_with_states(2, 1);
    int32_t a = make_page(kv, 0, KV_NO_PAGE, 1), b = make_page(kv, 0, a, 2), state = keep_state(kv, a);
    kv_cache_forget_state(kv, b);
    ck_assert_int_eq(kv_cache_state(kv, a), state);
    kv_cache_forget_state(kv, a);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), a);
    ck_assert_int_eq(keep_state(kv, b), state);
    ck_assert_int_eq(kv_cache_state(kv, a), KV_NO_STATE);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(salts_differ_and_are_drawn_anew_for_each_cache)
{
    struct kv_cache *kv = new_cache(1), *other = new_cache(1);
    ck_assert_uint_eq(kv_cache_salt(kv, "a"), kv_cache_salt(kv, "a"));
    ck_assert_uint_ne(kv_cache_salt(kv, "a"), kv_cache_salt(kv, "b"));
    ck_assert_uint_ne(kv_cache_salt(kv, "ab"), kv_cache_salt(kv, "ba"));
    ck_assert_uint_ne(kv_cache_salt(kv, NULL), kv_cache_salt(kv, "a"));
    ck_assert_uint_ne(kv_cache_salt(kv, "a"), kv_cache_salt(other, "a"));
    kv_cache_free(&kv);
    kv_cache_free(&other);
}
END_TEST

START_TEST(failed_allocations_leave_nothing)
{
    size_t live = mem_live();
    struct kv_cache *kv = NULL;
    long n_failed = 0;
    for (; kv == NULL; n_failed++) {
        mem_fail_at(n_failed);
        enum err err = kv_cache_new(8, 3, &kv);
        ck_assert_int_eq(err, kv == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert_int_lt(n_failed, 20);
    }
    mem_fail_at(-1);
    ck_assert_int_eq(n_failed - 1, 4);
    kv_cache_free(&kv);
    kv_cache_free(&kv);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

/* --- random use against a plain model --------------------------------------------------------------------------- */

enum { N_PAGES = 24, N_SEQS = 8, MAX_SEQ_PAGES = 6, N_KINDS = 3, N_STATES = 3, N_STEPS = 60000 };

/* What the cache should know of a page. */
struct model_page {
    int n_held;
    bool is_named, is_filled, is_forgotten;
    uint64_t salt, owner;
    int32_t parent, kind;
    long dropped_at; /* when it was last let go; 0 = it is not kept */
};

struct model_state {
    int n_held;
    int32_t page; /* that keeps it */
    long used_at;
};

struct model_seq {
    uint64_t number, salt;
    int32_t kinds[MAX_SEQ_PAGES], pages[MAX_SEQ_PAGES];
    int n_pages;
    int32_t state; /* held to go on from, or KV_NO_STATE */
};

struct world {
    struct kv_cache *kv;
    struct model_page pages[N_PAGES];
    struct model_state states[N_STATES];
    struct model_seq seqs[N_SEQS];
    long now;
    uint64_t draws, n_evicted, n_shared, n_refused, n_forgotten, n_states_evicted, n_states_refused;
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

/* The page that must make room: of the kept ones without children the one let go first. */
static int32_t model_victim(const struct world *w)
{
    int32_t best = KV_NO_PAGE;
    for (int32_t i = 0; i < N_PAGES; i++) {
        long at = w->pages[i].dropped_at;
        if (at != 0 && !has_children(w, i) && (best == KV_NO_PAGE || at < w->pages[best].dropped_at)) {
            best = i;
        }
    }
    return best;
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
    int32_t best = KV_NO_STATE, got = kv_cache_take_state(w->kv);
    for (int32_t i = 0; i < N_STATES; i++) {
        const struct model_state *s = &w->states[i];
        any_free = any_free || (s->n_held == 0 && s->page == KV_NO_PAGE);
        if (s->n_held == 0 && (best == KV_NO_STATE || s->used_at < w->states[best].used_at)) {
            best = i;
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
        int32_t id = q->pages[--q->n_pages];
        if (w->pages[id].is_named && w->pages[id].owner == q->number) {
            kv_cache_set_owner(w->kv, id, KV_NO_OWNER);
            w->pages[id].owner = KV_NO_OWNER;
        }
        drop(w, id);
    }
}

/* As a sequence is admitted: shared pages in front, own ones behind, some of them without a name. */
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
                require(w, kv_cache_name(w->kv, id, q->salt, parent, page_tokens(kind), q->number), "not named");
                w->pages[id] = (struct model_page){
                    .n_held = 1, .is_named = true, .salt = q->salt, .owner = q->number, .parent = parent, .kind = kind};
            }
        }
        q->kinds[i] = kind;
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
    struct world w = {.kv = new_cache_with_states(N_PAGES, N_STATES)};
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
        } else if (what < 55) {
            compute(&w, q);
        } else if (what < 70) {
            use_states(&w, q);
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
    kv_cache_free(&w.kv);
}
END_TEST

Suite *kv_cache_suite(void)
{
    Suite *s = suite_create("kv_cache");
    TCase *c = tcase_create("kv_cache");
    tcase_add_test(c, every_page_is_given_once_and_then_none);
    tcase_add_test(c, a_page_lives_as_long_as_somebody_holds_it);
    tcase_add_test(c, a_prefix_is_found_by_salt_parent_and_every_token);
    tcase_add_test(c, an_identity_is_given_once);
    tcase_add_test(c, an_empty_page_is_not_kept);
    tcase_add_test(c, the_longest_unused_goes_first);
    tcase_add_test(c, a_prefix_outlives_what_hangs_from_it);
    tcase_add_test(c, a_held_page_is_never_taken_from_its_holder);
    tcase_add_test(c, a_forgotten_page_is_not_found_and_comes_back_in_turn);
    tcase_add_test(c, every_state_is_given_once_and_then_none);
    tcase_add_test(c, the_state_unused_for_the_longest_time_goes_first);
    tcase_add_test(c, a_state_goes_with_the_name_of_its_page);
    tcase_add_test(c, a_page_may_lose_its_state_alone);
    tcase_add_test(c, salts_differ_and_are_drawn_anew_for_each_cache);
    tcase_add_test(c, failed_allocations_leave_nothing);
    tcase_add_test(c, random_use_agrees_with_a_plain_model);
    suite_add_tcase(s, c);
    return s;
}
