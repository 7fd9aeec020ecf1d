/* Work in the background lowers a thread's priority, and ends with the one of before. */
#include "engine/base/background.h"

#include <check.h>
#include <sched.h>
#include <sys/resource.h>

Suite *background_suite(void);

START_TEST(a_thread_gets_its_priority_back)
{
    int nice = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
    for (int i = 0; i < 3; i++) {
        background_begin();
        ck_assert(policy != SCHED_OTHER || sched_getscheduler(0) == SCHED_BATCH);
        ck_assert_int_ge(getpriority(PRIO_PROCESS, 0), nice);
        background_end();
        ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), nice);
        ck_assert_int_eq(sched_getscheduler(0), policy);
    }
}
END_TEST

Suite *background_suite(void)
{
    Suite *s = suite_create("background");
    TCase *c = tcase_create("background");
    tcase_add_test(c, a_thread_gets_its_priority_back);
    suite_add_tcase(s, c);
    return s;
}
