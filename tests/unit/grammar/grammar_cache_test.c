/* Grammars that are kept: found again, bounded in number and bytes, the oldest go first, the spoilt do not stay; from many
 * threads at once. */
#include "engine/grammar/grammar_cache.h"

#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "engine/grammar/grammar_internal.h"
#include "engine/regex/regex_internal.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>

Suite *grammar_cache_suite(void);

enum { MAX_ENTRIES = 4, MAX_BYTES = 1 << 20, N_THREADS = 4, N_TURNS = 200 };

static struct grammar_cache *cache;
static struct err_info info;
static size_t before;

static void set_up(void)
{
    before = mem_live();
    ck_assert_int_eq(grammar_cache_new(MAX_ENTRIES, MAX_BYTES, &cache), ERR_OK);
}

static void tear_down(void)
{
    grammar_cache_free(&cache);
    ck_assert_uint_eq(mem_live(), before);
}

/* Of n letters a. */
static struct grammar *make(uint32_t n)
{
    struct grammar_builder *b;
    struct grammar *g;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    struct regex_set *s = grammar_regexes(b);
    symbol_id start = grammar_lexeme(b, regex_repeat(s, regex_byte_range(s, 'a', 'a'), n, n));
    ck_assert_int_eq(grammar_finish(&b, start, &g, &info), ERR_OK);
    return g;
}

static bool has(char key)
{
    struct grammar *g = grammar_cache_get(cache, &key, 1);
    bool is_there = g != NULL;
    grammar_unref(&g);
    return is_there;
}

static void put(char key)
{
    struct grammar *g = make((uint32_t)(unsigned char)key);
    grammar_cache_put(cache, &key, 1, g);
    grammar_unref(&g);
}

START_TEST(the_same_is_found_again)
{
    struct grammar *g = make(3), *again;
    ck_assert_ptr_null(grammar_cache_get(cache, "a\0b", 3));
    grammar_cache_put(cache, "a\0b", 3, g);
    again = grammar_cache_get(cache, "a\0b", 3);
    ck_assert_ptr_eq(again, g);
    ck_assert_ptr_null(grammar_cache_get(cache, "a\0c", 3));
    ck_assert_ptr_null(grammar_cache_get(cache, "a", 1));
    grammar_unref(&again);
    grammar_unref(&g);
    struct grammar_cache_stats s;
    grammar_cache_get_stats(cache, &s);
    ck_assert_uint_eq(s.n_made, 1);
    ck_assert_uint_eq(s.n_found, 1);
    ck_assert_uint_eq(s.n_entries, 1);
    ck_assert_uint_gt(s.n_bytes, 1000);
}
END_TEST

START_TEST(the_oldest_goes_first)
{
    for (char key = 'a'; key < 'a' + MAX_ENTRIES; key++) {
        put(key);
    }
    ck_assert(has('a')); /* so b is the oldest */
    put('z');
    ck_assert(!has('b'));
    ck_assert(has('a') && has('c') && has('d') && has('z'));
}
END_TEST

/* Bytes of the cache never are more than they may be, and what is too large is not kept at all. */
START_TEST(bytes_are_bounded)
{
    struct grammar_cache_stats s;
    static char key[MAX_BYTES / 3];
    for (int i = 0; i < 8; i++) {
        struct grammar *g = make(3);
        key[0] = (char)('a' + i);
        grammar_cache_put(cache, key, sizeof key, g);
        grammar_unref(&g);
        grammar_cache_get_stats(cache, &s);
        ck_assert_uint_le(s.n_bytes, MAX_BYTES);
    }
    ck_assert_uint_eq(s.n_entries, 2);
    mem_account_limit(64 << 10, 0); /* an eighth of that is less than any grammar */
    put('q');
    ck_assert(!has('q'));
    mem_account_limit(0, 0);
}
END_TEST

/* One whose expressions have met a limit or an end of memory is not given out again. */
START_TEST(the_spoilt_does_not_stay)
{
    put('a');
    struct grammar *g = grammar_cache_get(cache, "a", 1);
    g->lexer.set->err = ERR_GRAMMAR_LIMIT;
    grammar_unref(&g);
    ck_assert(!has('a'));
    put('a');
    ck_assert(has('a'));
}
END_TEST

/* Blocks of a grammar with an account of its own are not charged to the request that had it made. */
START_TEST(accounts_are_apart)
{
    struct mem_account request = {0}, *own = mem_zalloc(sizeof *own, MEM_GENERAL);
    ck_assert_ptr_nonnull(own);
    mem_account_enter(&request);
    struct mem_account *was = mem_account_begin_other(own);
    struct grammar *g = make(3);
    mem_account_end_other(was);
    grammar_give_account(g, own);
    grammar_cache_put(cache, "a", 1, g);
    grammar_unref(&g);
    ck_assert_uint_eq(atomic_load(&request.held_bytes), 0);
    ck_assert_uint_gt(mem_account_held(), 1000);
    mem_account_leave();
    mem_account_limit(1, 0);
    mem_account_enter(&request);
    was = mem_account_begin_other(&(struct mem_account){0});
    ck_assert_ptr_null(mem_alloc(100, MEM_GRAMMAR));
    mem_account_end_other(was);
    ck_assert_int_eq(mem_account_refusal(), MEM_REFUSED_BUDGET); /* the request is told */
    mem_account_leave();
    mem_account_limit(0, 0);
}
END_TEST

static void *work(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    for (int i = 0; i < N_TURNS; i++) {
        seed = seed * 1664525u + 1013904223u;
        char key = (char)('a' + (seed >> 16) % 6);
        struct grammar *g = grammar_cache_get(cache, &key, 1);
        if (g == NULL) {
            put(key);
        }
        grammar_unref(&g);
    }
    return NULL;
}

START_TEST(many_threads)
{
    pthread_t threads[N_THREADS];
    unsigned seeds[N_THREADS] = {1, 2, 3, 4};
    for (int i = 0; i < N_THREADS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &seeds[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct grammar_cache_stats s;
    grammar_cache_get_stats(cache, &s);
    ck_assert_uint_eq(s.n_made + s.n_found, N_THREADS * N_TURNS);
    ck_assert_uint_le(s.n_entries, MAX_ENTRIES);
}
END_TEST

Suite *grammar_cache_suite(void)
{
    Suite *s = suite_create("grammar_cache");
    TCase *c = tcase_create("grammar_cache");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_same_is_found_again);
    tcase_add_test(c, the_oldest_goes_first);
    tcase_add_test(c, bytes_are_bounded);
    tcase_add_test(c, the_spoilt_does_not_stay);
    tcase_add_test(c, accounts_are_apart);
    tcase_add_test(c, many_threads);
    suite_add_tcase(s, c);
    return s;
}
