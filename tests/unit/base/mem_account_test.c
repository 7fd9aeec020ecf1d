/* The memory of requests: who is charged, what is refused and why, and that all is given back. */
#include "engine/base/mem_account.h"

#include "engine/base/compiler.h"
#include "engine/base/mem.h"

#include <check.h>
#include <pthread.h>

Suite *mem_account_suite(void);

enum { BUDGET = 16 << 20, SHARE = 8 << 20 };

static struct mem_account one, other;

static void *take(size_t bytes) { return mem_alloc(bytes, MEM_REQUEST); }

START_TEST(a_request_is_held_to_its_share)
{
    size_t held = mem_account_held();
    mem_account_limit(BUDGET, SHARE);
    mem_account_enter(&one);
    void *a = take(SHARE / 2), *b = take(SHARE / 2);
    ck_assert(a != NULL && b == NULL && mem_account_refusal() == MEM_REFUSED_SHARE);
    ck_assert_ptr_null(mem_realloc(a, SHARE, MEM_REQUEST)); /* the block stays as it was */
    ck_assert_ptr_null(mem_zalloc(SHARE, MEM_REQUEST));
    ck_assert_uint_gt(mem_account_held(), held + SHARE / 2);
    ck_assert_uint_lt(mem_account_held(), held + SHARE / 2 + 100);
    void *model = mem_alloc(SHARE, MEM_MODEL); /* no request's */
    ck_assert_ptr_nonnull(model);
    mem_free(model);
    mem_free(a);
    ck_assert_uint_gt(mem_account_leave(), SHARE / 2);
    ck_assert_uint_eq(mem_account_held(), held);
    mem_account_enter(&one);
    ck_assert(mem_account_refusal() == MEM_REFUSED_NOT); /* the next request's */
    ck_assert_uint_eq(mem_account_leave(), 0);
    ck_assert(mem_account_current() == NULL && mem_account_refusal() == MEM_REFUSED_NOT);
}
END_TEST

START_TEST(all_together_are_held_to_the_budget)
{
    mem_account_limit(BUDGET, SHARE);
    void *blocks[4];
    struct mem_account three[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        mem_account_enter(&three[i]);
        blocks[i] = take(SHARE - 100);
        ck_assert(i < 2 ? blocks[i] != NULL || i == 1 : blocks[i] == NULL);
        ck_assert(blocks[i] != NULL || mem_account_refusal() == MEM_REFUSED_BUDGET);
        mem_account_leave();
    }
    mem_account_enter(&other); /* the last eighth is there for who holds little */
    blocks[3] = take(MEM_ACCOUNT_SMALL_BYTES - 100);
    ck_assert_ptr_nonnull(blocks[3]);
    void *more = take(SHARE / 4 * 3);
    ck_assert(more == NULL && mem_account_refusal() == MEM_REFUSED_BUDGET);
    mem_account_leave();
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        mem_free(blocks[i]);
    }
    ck_assert_uint_eq(mem_account_held(), 0);
    void *free_of_limits = take(2 * BUDGET); /* a thread of the engine's */
    ck_assert(free_of_limits != NULL && mem_account_held() > 2 * BUDGET);
    mem_free(free_of_limits);
    ck_assert_uint_eq(mem_account_held(), 0);
}
END_TEST

static void *free_there(void *block)
{
    mem_account_enter(&other);
    block = mem_realloc(block, 2000, MEM_REQUEST);
    ck_assert_uint_eq(atomic_load(&other.held_bytes), 0);
    mem_free(block);
    mem_account_leave();
    return NULL;
}

START_TEST(a_block_is_given_back_to_whom_it_was_charged)
{
    pthread_t thread;
    mem_account_limit(BUDGET, SHARE);
    mem_account_enter(&one);
    void *block = take(1000);
    ck_assert_uint_ge(atomic_load(&one.held_bytes), 1000);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_there, block), 0);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(atomic_load(&one.held_bytes), 0);
    ck_assert_uint_eq(atomic_load(&other.held_bytes), 0);
    mem_account_leave();
    ck_assert_uint_eq(mem_account_held(), 0);
}
END_TEST

START_TEST(a_fault_charges_nothing)
{
    mem_account_limit(BUDGET, SHARE);
    mem_account_enter(&one);
    mem_fail_at(0);
    ck_assert_ptr_null(take(1000));
    mem_fail_at(-1);
    void *block = take(1000);
    size_t held = mem_account_held();
    mem_fail_at(0);
    ck_assert_ptr_null(mem_realloc(block, 5000, MEM_REQUEST));
    mem_fail_at(-1);
    ck_assert_uint_eq(mem_account_held(), held);
    ck_assert(mem_account_refusal() == MEM_REFUSED_NOT); /* that was the machine, no limit */
    mem_free(block);
    mem_account_leave();
    ck_assert_uint_eq(mem_account_held(), 0);
}
END_TEST

static void *churn(void *arg)
{
    struct mem_account *a = arg;
    mem_account_enter(a);
    for (int i = 0; i < 20000; i++) {
        void *p = take((size_t)(i % 64) << 12), *q = mem_realloc(p, 100, MEM_REQUEST);
        mem_free(q != NULL ? q : p);
    }
    mem_account_leave();
    return NULL;
}

START_TEST(threads_together_keep_the_sum)
{
    pthread_t threads[4];
    static struct mem_account accounts[4];
    mem_account_limit(1 << 19, 1 << 18);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, &accounts[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(atomic_load(&accounts[i].held_bytes), 0);
    }
    ck_assert_uint_eq(mem_account_held(), 0);
}
END_TEST

Suite *mem_account_suite(void)
{
    Suite *s = suite_create("mem_account");
    TCase *c = tcase_create("mem_account");
    tcase_add_test(c, a_request_is_held_to_its_share);
    tcase_add_test(c, all_together_are_held_to_the_budget);
    tcase_add_test(c, a_block_is_given_back_to_whom_it_was_charged);
    tcase_add_test(c, a_fault_charges_nothing);
    tcase_add_test(c, threads_together_keep_the_sum);
    suite_add_tcase(s, c);
    return s;
}
