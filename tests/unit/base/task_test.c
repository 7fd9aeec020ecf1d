/* Tasks: what ends them, what watchers in other threads see of them, and threads that have none. */
#include "engine/base/task.h"

#include "engine/base/clock.h"

#include <check.h>
#include <pthread.h>

Suite *task_suite(void);

START_TEST(a_thread_without_a_task_goes_on)
{
    task_note("phase");
    ck_assert_int_eq(task_check(), ERR_OK);
}
END_TEST

START_TEST(what_ends_a_task)
{
    atomic_bool has_left = false;
    struct task t = {.has_left = &has_left, .deadline_ns = clock_now_ns() + 3600ull * 1000000000u};
    task_enter(&t, "first");
    ck_assert_int_eq(task_check(), ERR_OK);
    t.deadline_ns = 1;
    ck_assert_int_eq(task_check(), ERR_DEADLINE);
    t.deadline_ns = 0;
    ck_assert_int_eq(task_check(), ERR_OK);
    task_stop(&t);
    ck_assert_int_eq(task_check(), ERR_DEADLINE);
    has_left = true;
    ck_assert_int_eq(task_check(), ERR_CANCELLED);
    task_leave();
    ck_assert_int_eq(task_check(), ERR_OK);
}
END_TEST

START_TEST(notes_are_progress)
{
    struct task t = {.n_notes = 0};
    task_enter(&t, "first");
    ck_assert_str_eq(t.phase, "first");
    task_note("second");
    task_note("second");
    ck_assert_str_eq(t.phase, "second");
    ck_assert_uint_eq(t.n_notes, 2);
    task_leave();
}
END_TEST

static struct task other = {.n_notes = 0};
static atomic_bool is_entered;

/* Computes until it is stopped. */
static void *compute(void *arg)
{
    (void)arg;
    task_enter(&other, "spin");
    atomic_store(&is_entered, true);
    while (task_check() == ERR_OK) {
    }
    task_leave();
    return NULL;
}

START_TEST(another_thread_sees_its_cpu_time_and_stops_it)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, compute, NULL), 0);
    while (!atomic_load(&is_entered) || task_cpu_ns(&other) < 1000000u) {
    }
    task_stop(&other);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(one_step_of_many_asks)
{
    unsigned n = 0;
    for (uint64_t at = 0; at < 10 * TASK_STEPS; at += 7) {
        n += task_is_due(at, 7);
    }
    ck_assert_uint_eq(n, 10);
    ck_assert(task_is_due(5, TASK_STEPS));
    ck_assert(!task_is_due(0, TASK_STEPS - 1));
}
END_TEST

Suite *task_suite(void)
{
    Suite *s = suite_create("task");
    TCase *t = tcase_create("task");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_thread_without_a_task_goes_on);
    tcase_add_test(t, what_ends_a_task);
    tcase_add_test(t, notes_are_progress);
    tcase_add_test(t, another_thread_sees_its_cpu_time_and_stops_it);
    tcase_add_test(t, one_step_of_many_asks);
    suite_add_tcase(s, t);
    return s;
}
