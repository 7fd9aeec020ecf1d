/* When a step counts as stuck: the floor, what is usual, and time in which the process did not run. */
#include "fcgi/ground/pulse.h"

#include <check.h>

Suite *pulse_suite(void);

#define SECOND 1000000000u

static uint64_t now_ns;

/* A look `seconds` after the one before. */
static bool look(struct pulse *p, unsigned seconds, uint64_t age_ms, uint64_t usual_ms)
{
    struct sched_stats s = {.last_step_age_ms = age_ms, .usual_step_ms = usual_ms};
    now_ns += (uint64_t)seconds * SECOND;
    return pulse_is_stuck(p, &s, now_ns);
}

START_TEST(a_step_is_stuck_after_the_limit)
{
    struct pulse p = {.least_ms = 10000};
    for (uint64_t age = 0; age <= 10000; age += 1000) {
        ck_assert_msg(!look(&p, 1, age, 100), "%d ms", (int)age);
    }
    ck_assert(look(&p, 1, 11000, 100));
    ck_assert(look(&p, 1, 12000, 100));
    ck_assert(!look(&p, 1, 300, 100)); /* it goes on */
    ck_assert(!look(&p, 1, 0, 100));   /* nothing to do */
}
END_TEST

START_TEST(slow_machines_have_slow_steps)
{
    struct pulse p = {.least_ms = 10000};
    for (uint64_t age = 0; age <= 40000; age += 1000) {
        ck_assert_msg(!look(&p, 1, age, 2000), "%d ms", (int)age);
    }
    ck_assert(look(&p, 1, 41000, 2000));
    ck_assert_uint_eq(p.limit_ms, 40000);
}
END_TEST

START_TEST(zero_means_never)
{
    struct pulse p = {.least_ms = 0};
    for (uint64_t age = 0; age <= 100000; age += 1000) {
        ck_assert(!look(&p, 1, age, 1));
    }
}
END_TEST

START_TEST(a_stopped_process_is_not_stuck)
{
    struct pulse p = {.least_ms = 10000};
    ck_assert(!look(&p, 1, 500, 100));
    ck_assert(!look(&p, 60, 60500, 100)); /* a minute under a debugger */
    for (uint64_t more = 1000; more <= 10000; more += 1000) {
        ck_assert_msg(!look(&p, 1, 60500 + more, 100), "%d ms more", (int)more);
    }
    ck_assert(look(&p, 1, 71500, 100)); /* and the step did not go on afterwards */
    ck_assert(!look(&p, 1, 200, 100));
    for (uint64_t age = 1200; age <= 10000; age += 1000) { /* of the next step nothing is forgiven */
        ck_assert(!look(&p, 1, age, 100));
    }
    ck_assert(look(&p, 1, 10200, 100));
}
END_TEST

START_TEST(a_task_is_stuck_after_the_limit)
{
    struct pulse_task p = {0};
    for (uint64_t s = 0; s <= 10; s++) {
        ck_assert_int_eq(pulse_of_task(&p, 0, s * SECOND, 10ull * SECOND), PULSE_FINE);
    }
    ck_assert_int_eq(pulse_of_task(&p, 0, 11ull * SECOND, 10ull * SECOND), PULSE_LONG);
    ck_assert_int_eq(pulse_of_task(&p, 0, 30ull * SECOND, 10ull * SECOND), PULSE_LONG);
    ck_assert_int_eq(pulse_of_task(&p, 0, 31ull * SECOND, 10ull * SECOND), PULSE_LOST);
    ck_assert_int_eq(pulse_of_task(&p, 1, 32ull * SECOND, 10ull * SECOND), PULSE_FINE); /* it goes on */
    ck_assert_int_eq(pulse_of_task(&p, 1, 42ull * SECOND, 10ull * SECOND), PULSE_FINE);
    ck_assert_int_eq(pulse_of_task(&p, 1, 43ull * SECOND, 10ull * SECOND), PULSE_LONG);
    ck_assert_uint_eq(p.since_ns, 11ull * SECOND);
    ck_assert_int_eq(pulse_of_task(&p, 1, 1000ull * SECOND, 0), PULSE_FINE); /* no limit */
}
END_TEST

/* A long answer uses a lot of CPU time in all, and makes progress with each event. */
START_TEST(a_task_with_progress_is_not_stuck)
{
    struct pulse_task p = {0};
    for (unsigned s = 0; s <= 100; s++) {
        ck_assert_int_eq(pulse_of_task(&p, s / 8, s * (uint64_t)SECOND, 10ull * SECOND), PULSE_FINE);
    }
}
END_TEST

Suite *pulse_suite(void)
{
    Suite *s = suite_create("pulse");
    TCase *t = tcase_create("pulse");
    tcase_add_test(t, a_step_is_stuck_after_the_limit);
    tcase_add_test(t, slow_machines_have_slow_steps);
    tcase_add_test(t, zero_means_never);
    tcase_add_test(t, a_stopped_process_is_not_stuck);
    tcase_add_test(t, a_task_is_stuck_after_the_limit);
    tcase_add_test(t, a_task_with_progress_is_not_stuck);
    suite_add_tcase(s, t);
    return s;
}
