/* The page cache on its own: counts, names, eviction order and exhaustion case by case; kv_cache_model_test.c has random use. */
#include "engine/kv/pool/kv_cache.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <string.h>

Suite *kv_cache_suite(void);

static struct kv_cache *new_cache_with_windows(int32_t n_pages, int32_t n_windows)
{
    struct kv_cache *kv;
    ck_assert_int_eq(kv_cache_new(n_pages, n_windows, 0, &kv), ERR_OK);
    return kv;
}

static struct kv_cache *new_cache_with_states(int32_t n_pages, int32_t n_states)
{
    struct kv_cache *kv;
    ck_assert_int_eq(kv_cache_new(n_pages, 0, n_states, &kv), ERR_OK);
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
    ck_assert(kv_cache_name(kv, page, salt, parent, page_tokens(which)));
    kv_cache_fill(kv, page);
    return page;
}

START_TEST(every_page_is_given_once_and_then_none)
{
    enum { N = 37 };
    struct kv_cache *kv = new_cache(N);
    bool is_given[N] = {false};
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
    ck_assert(kv_cache_name(kv, a, 0, KV_NO_PAGE, page_tokens(1)));
    ck_assert(!kv_cache_name(kv, b, 0, KV_NO_PAGE, page_tokens(1)));
    ck_assert(!kv_cache_is_named(kv, b));
    ck_assert(kv_cache_name(kv, b, 1, KV_NO_PAGE, page_tokens(1)));
    ck_assert_uint_eq(kv_cache_owner(kv, a), KV_NO_OWNER);
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
    ck_assert(kv_cache_name(kv, a, 0, KV_NO_PAGE, page_tokens(1)));
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

/* Leaves a fresh state with a page that has none; nobody holds it. */
static int32_t keep_state(struct kv_cache *kv, int32_t page)
{
    int32_t state = kv_cache_take_state(kv);
    ck_assert_int_ne(state, KV_NO_STATE);
    kv_cache_keep_state(kv, page, state);
    kv_cache_drop_state(kv, state);
    return state;
}

START_TEST(what_is_preferred_goes_last_but_has_not_all)
{
    enum { N = 8 };
    struct kv_cache *kv = new_cache(N);
    int32_t pages[N];
    for (int i = 0; i < N; i++) {
        pages[i] = make_page(kv, 0, KV_NO_PAGE, i);
        if (i < 4) { /* older than the others */
            kv_cache_prefer(kv, pages[i]);
        }
        kv_cache_drop(kv, pages[i]);
    }
    for (int i = 0; i < 100; i++) { /* prompts that come once */
        int32_t page = make_page(kv, 0, KV_NO_PAGE, 100 + i);
        kv_cache_drop(kv, page);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(i)), pages[i]);
    }
    for (int i = 0; i < N; i++) { /* all that come are preferred: the oldest of them go, and a quarter is for others */
        int32_t page = make_page(kv, 0, KV_NO_PAGE, 300 + i);
        kv_cache_prefer(kv, page);
        kv_cache_drop(kv, page);
    }
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(0)), KV_NO_PAGE);
    ck_assert_int_ne(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(300 + N - 1)), KV_NO_PAGE);
    int32_t once = make_page(kv, 0, KV_NO_PAGE, 400);
    kv_cache_drop(kv, once);
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(400)), once);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_state_of_a_preferred_page_goes_last)
{
    struct kv_cache *kv = new_cache_with_states(6, 4);
    int32_t pages[6];
    for (int i = 0; i < 6; i++) {
        pages[i] = make_page(kv, 0, KV_NO_PAGE, i);
    }
    int32_t first = keep_state(kv, pages[0]);
    kv_cache_prefer(kv, pages[0]);
    for (int i = 1; i < 6; i++) {
        keep_state(kv, pages[i]);
    }
    ck_assert_int_eq(kv_cache_state(kv, pages[0]), first);
    ck_assert_int_eq(kv_cache_state(kv, pages[2]), KV_NO_STATE);
    for (int i = 3; i < 6; i++) {
        kv_cache_prefer(kv, pages[i]);
    }
    keep_state(kv, pages[2]); /* all are preferred: the oldest goes */
    ck_assert_int_eq(kv_cache_state(kv, pages[0]), KV_NO_STATE);
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

/* A sequence that sees a window alone drops the pages in front and holds those after. */
START_TEST(what_lies_in_front_of_a_window_goes_last_and_the_deepest_first)
{
    struct kv_cache *kv = new_cache(5);
    int32_t a = make_page(kv, 0, KV_NO_PAGE, 1), b = make_page(kv, 0, a, 2), c = make_page(kv, 0, b, 3);
    int32_t other = make_page(kv, 0, KV_NO_PAGE, 9);
    kv_cache_drop(kv, a);
    kv_cache_drop(kv, b);
    kv_cache_drop(kv, other);
    ck_assert_int_eq(kv_cache_n_available(kv), 4);
    ck_assert_int_eq(kv_cache_find(kv, 0, b, page_tokens(3)), c);
    kv_cache_drop(kv, kv_cache_take(kv)); /* the free one */
    ck_assert_int_ne(kv_cache_take(kv), KV_NO_PAGE);
    ck_assert_int_eq(kv_cache_take(kv), other);
    ck_assert(!kv_cache_has_lost_parent(kv, c));
    ck_assert_int_eq(kv_cache_take(kv), b);
    ck_assert(kv_cache_has_lost_parent(kv, c));
    ck_assert_int_eq(kv_cache_find(kv, 0, KV_NO_PAGE, page_tokens(1)), a);
    /* The page has the same number and name again, and yet c is not found after it. */
    kv_cache_hold(kv, a);
    ck_assert(kv_cache_name(kv, b, 0, a, page_tokens(2)));
    kv_cache_fill(kv, b);
    ck_assert(kv_cache_has_lost_parent(kv, c));
    ck_assert_int_eq(kv_cache_find(kv, 0, b, page_tokens(3)), KV_NO_PAGE);
    ck_assert_int_eq(kv_cache_take(kv), KV_NO_PAGE);
    int32_t n_kept = kv_cache_n_kept(kv);
    kv_cache_drop(kv, c); /* nobody can find it: free at once */
    ck_assert_int_eq(kv_cache_n_kept(kv), n_kept);
    ck_assert_int_eq(kv_cache_n_available(kv), n_kept + 1);
    ck_assert_int_eq(make_page(kv, 0, b, 3), c);
    kv_cache_drop(kv, c);
    kv_cache_drop(kv, b);
    kv_cache_drop(kv, a);
    ck_assert_int_eq(kv_cache_take(kv), c); /* from the last on, as nothing hangs from it */
    ck_assert_int_eq(kv_cache_take(kv), b);
    ck_assert_int_eq(kv_cache_take(kv), a);
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
        enum err err = kv_cache_new(8, 5, 3, &kv);
        ck_assert_int_eq(err, kv == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert_int_lt(n_failed, 20);
    }
    mem_fail_at(-1);
    ck_assert_int_eq(n_failed - 1, 7);
    kv_cache_free(&kv);
    kv_cache_free(&kv);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

/* --- window pages ----------------------------------------------------------------------------------------------- */

/* A page that is filled, with a window page that nobody holds. */
static int32_t add_kept(struct kv_cache *kv, int32_t which, bool passes)
{
    int32_t page = kv_cache_take(kv), window = kv_cache_take_window(kv);
    ck_assert(page != KV_NO_PAGE && window != KV_NO_WINDOW);
    ck_assert(kv_cache_name(kv, page, 1, KV_NO_PAGE, page_tokens(which)));
    kv_cache_fill(kv, page);
    kv_cache_keep_window(kv, page, window);
    kv_cache_drop_window(kv, window, passes);
    return page;
}

START_TEST(window_pages_that_were_passed_go_first_and_preferred_ones_last)
{
    struct kv_cache *kv = new_cache_with_windows(8, 4);
    int32_t ended = add_kept(kv, 0, false), preferred = add_kept(kv, 1, true), passed = add_kept(kv, 2, true), held;
    kv_cache_prefer(kv, preferred);
    ck_assert_int_eq(kv_cache_n_windows_kept(kv), 3);
    ck_assert_int_ne(held = kv_cache_take_window(kv), KV_NO_WINDOW);
    ck_assert_int_ne(kv_cache_take_window(kv), KV_NO_WINDOW);
    ck_assert_int_eq(kv_cache_window(kv, passed), KV_NO_WINDOW);
    ck_assert_int_ne(kv_cache_take_window(kv), KV_NO_WINDOW);
    ck_assert_int_eq(kv_cache_window(kv, ended), KV_NO_WINDOW);
    ck_assert_int_ne(kv_cache_window(kv, preferred), KV_NO_WINDOW);
    ck_assert_int_ne(kv_cache_take_window(kv), KV_NO_WINDOW);
    ck_assert_int_eq(kv_cache_window(kv, preferred), KV_NO_WINDOW);
    ck_assert_int_eq(kv_cache_take_window(kv), KV_NO_WINDOW);
    ck_assert_int_eq(kv_cache_n_windows_held(kv), 4);
    kv_cache_drop_window(kv, held, false);
    ck_assert_int_eq(kv_cache_take_window(kv), held);
    kv_cache_free(&kv);
}
END_TEST

START_TEST(a_window_page_goes_with_the_name_of_its_page)
{
    struct kv_cache *kv = new_cache_with_windows(2, 2);
    int32_t first = add_kept(kv, 0, false), window = kv_cache_window(kv, first);
    kv_cache_hold_window(kv, window);
    kv_cache_forget(kv, first);
    ck_assert_int_eq(kv_cache_window(kv, first), KV_NO_WINDOW);
    ck_assert_int_eq(kv_cache_n_windows_held(kv), 1); /* whoever holds it keeps it */
    kv_cache_drop_window(kv, window, false);
    ck_assert_int_eq(kv_cache_n_windows_held(kv) + kv_cache_n_windows_kept(kv), 0);
    int32_t second = add_kept(kv, 1, false);
    kv_cache_drop(kv, second);
    ck_assert_int_eq(kv_cache_n_windows_kept(kv), 1);
    ck_assert_int_eq(kv_cache_take(kv), second); /* evicted */
    ck_assert_int_eq(kv_cache_n_windows_kept(kv), 0);
    kv_cache_free(&kv);
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
    tcase_add_test(c, what_is_preferred_goes_last_but_has_not_all);
    tcase_add_test(c, a_state_of_a_preferred_page_goes_last);
    tcase_add_test(c, a_prefix_outlives_what_hangs_from_it);
    tcase_add_test(c, what_lies_in_front_of_a_window_goes_last_and_the_deepest_first);
    tcase_add_test(c, a_held_page_is_never_taken_from_its_holder);
    tcase_add_test(c, a_forgotten_page_is_not_found_and_comes_back_in_turn);
    tcase_add_test(c, every_state_is_given_once_and_then_none);
    tcase_add_test(c, the_state_unused_for_the_longest_time_goes_first);
    tcase_add_test(c, a_state_goes_with_the_name_of_its_page);
    tcase_add_test(c, a_page_may_lose_its_state_alone);
    tcase_add_test(c, window_pages_that_were_passed_go_first_and_preferred_ones_last);
    tcase_add_test(c, a_window_page_goes_with_the_name_of_its_page);
    tcase_add_test(c, salts_differ_and_are_drawn_anew_for_each_cache);
    tcase_add_test(c, failed_allocations_leave_nothing);
    suite_add_tcase(s, c);
    return s;
}
