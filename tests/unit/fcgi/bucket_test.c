/* Token buckets by a clock of the test's own. */
#include "fcgi/tenant/bucket.h"

#include <check.h>

Suite *bucket_suite(void);

static const uint64_t S = 1000000000u;

START_TEST(a_minutes_worth_comes_back_evenly)
{
    struct bucket b = {0};
    uint64_t now = 100 * S;
    bucket_set(&b, 60, now);
    ck_assert_double_eq(bucket_level(&b, now), 60);
    for (int i = 0; i < 60; i++) {
        ck_assert_uint_eq(bucket_wait_ns(&b, 1, now), 0);
        bucket_take(&b, 1, now);
    }
    ck_assert_double_eq(bucket_level(&b, now), 0);
    uint64_t wait = bucket_wait_ns(&b, 1, now);
    ck_assert_msg(wait >= S && wait <= S + 1000, "%llu ns", (unsigned long long)wait);
    ck_assert_uint_gt(bucket_wait_ns(&b, 1, now + S - 1000), 0);
    ck_assert_uint_eq(bucket_wait_ns(&b, 1, now + wait), 0);
    ck_assert_double_eq_tol(bucket_level(&b, now + 10 * S), 10, 1e-9);
    ck_assert_double_eq(bucket_level(&b, now + 1000 * S), 60); /* and no more */
}
END_TEST

START_TEST(what_is_owed_is_paid_back)
{
    struct bucket b = {0};
    uint64_t now = S;
    bucket_set(&b, 600, now);
    bucket_take(&b, 700, now); /* an answer is longer than what was left */
    ck_assert_double_eq(bucket_level(&b, now), -100);
    uint64_t wait = bucket_wait_ns(&b, 1, now);
    ck_assert_msg(wait > 10 * S && wait < 10 * S + S / 5, "%llu ns", (unsigned long long)wait);
    bucket_take(&b, -150, now); /* and a prompt was in the cache */
    ck_assert_double_eq(bucket_level(&b, now), 50);
    bucket_take(&b, -10000, now);
    ck_assert_double_eq(bucket_level(&b, now), 600);
}
END_TEST

START_TEST(too_much_never_comes)
{
    struct bucket b = {0};
    bucket_set(&b, 100, S);
    ck_assert_uint_eq(bucket_wait_ns(&b, 100, S), 0);
    ck_assert_uint_eq(bucket_wait_ns(&b, 101, S), UINT64_MAX);
}
END_TEST

START_TEST(without_a_limit_nothing_waits)
{
    struct bucket b = {0};
    bucket_set(&b, 0, S);
    bucket_take(&b, 1e9, S);
    ck_assert_uint_eq(bucket_wait_ns(&b, 1e12, S), 0);
    bucket_set(&b, 60, 2 * S); /* nor is what was taken then owed */
    ck_assert_double_eq(bucket_level(&b, 2 * S), 60);
}
END_TEST

START_TEST(another_limit_forgives_nothing)
{
    struct bucket b = {0};
    bucket_set(&b, 60, S);
    bucket_take(&b, 40, S);
    bucket_set(&b, 100, S);
    ck_assert_double_eq(bucket_level(&b, S), 60);
    bucket_set(&b, 30, S);
    ck_assert_double_eq(bucket_level(&b, S), -10);
    ck_assert_double_eq(bucket_level(&b, 0), -10); /* a clock that stands still */
}
END_TEST

Suite *bucket_suite(void)
{
    Suite *s = suite_create("bucket");
    TCase *t = tcase_create("bucket");
    tcase_add_test(t, a_minutes_worth_comes_back_evenly);
    tcase_add_test(t, what_is_owed_is_paid_back);
    tcase_add_test(t, too_much_never_comes);
    tcase_add_test(t, without_a_limit_nothing_waits);
    tcase_add_test(t, another_limit_forgives_nothing);
    suite_add_tcase(s, t);
    return s;
}
