/* Times as texts. */
#include "engine/base/clock.h"

#include <check.h>

Suite *clock_suite(void);

START_TEST(times_are_written_in_utc)
{
    char text[CLOCK_UTC_BYTES];
    ck_assert_str_eq(clock_utc(0, text), "1970-01-01T00:00:00Z");
    ck_assert_str_eq(clock_utc(1709251199, text), "2024-02-29T23:59:59Z");
    ck_assert_str_eq(clock_utc(INT64_MAX, text), "1970-01-01T00:00:00Z");
}
END_TEST

Suite *clock_suite(void)
{
    Suite *s = suite_create("clock");
    TCase *t = tcase_create("clock");
    tcase_add_test(t, times_are_written_in_utc);
    suite_add_tcase(s, t);
    return s;
}
