/* The worker pool: every thread runs once, barriers hold all of them back, writes are visible after them. The cells
 * are plain ints on purpose, so that the thread sanitizer sees a barrier that does not order. */
#include "engine/base/pool.h"

#include "engine/base/mem.h"

#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

Suite *pool_suite(void);

static const int thread_counts[] = {1, 2, 5}; /* 5 is more than the CPUs of a small machine: the futex path */

struct round {
    struct pool *pool;
    int cells[8]; /* one a thread */
    int total;    /* written by thread 0 between two barriers */
    int n_runs;
    int runs_seen[8];
    atomic_int n_wrong;
};

static void step_together(void *arg, int thread, int n_threads)
{
    struct round *r = arg;
    r->runs_seen[thread]++;
    for (int step = 1; step <= 10; step++) {
        r->cells[thread] = step * (thread + 1) + r->n_runs;
        pool_barrier(r->pool);
        int sum = 0;
        for (int i = 0; i < n_threads; i++) {
            sum += r->cells[i];
        }
        atomic_fetch_add(&r->n_wrong, sum != step * n_threads * (n_threads + 1) / 2 + n_threads * r->n_runs);
        pool_barrier(r->pool);
        if (thread == 0) {
            r->total = sum;
        }
        pool_barrier(r->pool);
        atomic_fetch_add(&r->n_wrong, r->total != sum);
    }
}

START_TEST(barriers_order_what_threads_write)
{
    int n = thread_counts[_i];
    size_t live = mem_live();
    struct round r = {0};
    ck_assert_int_eq(pool_new(n, &r.pool, NULL), ERR_OK);
    ck_assert_int_eq(pool_n_threads(r.pool), n);
    for (r.n_runs = 0; r.n_runs < 200; r.n_runs++) {
        pool_run(r.pool, step_together, &r);
        int expected = 10 * n * (n + 1) / 2 + n * r.n_runs; /* the workers' writes are visible here */
        ck_assert_int_eq(r.total, expected);
    }
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(r.runs_seen[i], 200);
    }
    ck_assert_int_eq(atomic_load(&r.n_wrong), 0);
    pool_free(&r.pool);
    ck_assert_ptr_null(r.pool);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

static void count_one(void *arg, int thread, int n_threads)
{
    (void)n_threads;
    ((int *)arg)[thread * 16]++;
}

START_TEST(many_short_runs_lose_none)
{
    enum { RUNS = 5000 };
    static int counts[5 * 16];
    struct pool *p;
    ck_assert_int_eq(pool_new(thread_counts[_i], &p, NULL), ERR_OK);
    for (int i = 0; i < RUNS; i++) {
        pool_run(p, count_one, counts);
    }
    for (int i = 0; i < thread_counts[_i]; i++) {
        ck_assert_int_eq(counts[i * 16], RUNS);
    }
    pool_free(&p);
}
END_TEST

START_TEST(workers_that_sleep_wake_up)
{
    static int counts[5 * 16];
    struct pool *p;
    ck_assert_int_eq(pool_new(thread_counts[_i], &p, NULL), ERR_OK);
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); /* far longer than they spin */
        pool_run(p, count_one, counts);
    }
    for (int i = 0; i < thread_counts[_i]; i++) {
        ck_assert_int_eq(counts[i * 16], 20);
    }
    pool_free(&p);
}
END_TEST

static void note_affinity(void *arg, int thread, int n_threads)
{
    (void)n_threads;
    sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t *)arg + thread);
}

/* Runs in Check's own process for the test, so that pinning its thread disturbs nobody. */
START_TEST(pinned_threads_stay_on_a_cpu_each)
{
    static cpu_set_t seen[POOL_MAX_THREADS];
    int n = MIN_OF(pool_cpu_count(), POOL_MAX_THREADS);
    struct pool *p;
    ck_assert_int_eq(pool_new(n, &p, NULL), ERR_OK);
    pool_pin(p);
    pool_pin_owner(p);
    pool_run(p, note_affinity, seen);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(CPU_COUNT(&seen[i]), 1);
        for (int j = 0; j < i; j++) {
            ck_assert(!CPU_EQUAL(&seen[i], &seen[j]));
        }
    }
    pool_free(&p);
    ck_assert_int_eq(pool_cpu_count(), 1); /* the owner is pinned now: more threads than CPUs */
    ck_assert_int_eq(pool_new(2, &p, NULL), ERR_OK);
    pool_pin(p);
    pool_pin_owner(p);
    pool_run(p, note_affinity, seen);
    ck_assert(CPU_EQUAL(&seen[0], &seen[1])); /* as they were */
    pool_free(&p);
}
END_TEST

START_TEST(starting_and_stopping_leaves_nothing)
{
    size_t live = mem_live();
    for (int i = 0; i < 100; i++) {
        struct pool *p;
        ck_assert_int_eq(pool_new(1 + i % 5, &p, NULL), ERR_OK); /* freed before the workers ran at all */
        pool_free(&p);
    }
    struct pool *none = NULL;
    pool_free(&none);
    struct err_info info = {0};
    ck_assert_int_eq(pool_new(0, &none, &info), ERR_CONFIG);
    ck_assert_int_eq(pool_new(POOL_MAX_THREADS + 1, &none, &info), ERR_CONFIG);
    ck_assert_str_eq(info.where, "threads");
    mem_fail_at(0);
    ck_assert_int_eq(pool_new(2, &none, &info), ERR_NOMEM);
    mem_fail_at(-1);
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(mem_live(), live);
    ck_assert_int_ge(pool_cpu_count(), 1);
}
END_TEST

START_TEST(shares_cover_everything_once)
{
    for (int n = 0; n < 50; n++) {
        for (int n_threads = 1; n_threads < 9; n_threads++) {
            int next = 0, least = n + 1, most = -1;
            for (int t = 0; t < n_threads; t++) {
                int from, to;
                pool_share(n, t, n_threads, &from, &to);
                ck_assert_int_eq(from, next);
                next = to;
                least = MIN_OF(least, to - from);
                most = MAX_OF(most, to - from);
            }
            ck_assert_int_eq(next, n);
            ck_assert_int_le(most - least, 1);
        }
    }
}
END_TEST

Suite *pool_suite(void)
{
    Suite *s = suite_create("pool");
    TCase *c = tcase_create("pool");
    tcase_set_tags(c, "fork");
    tcase_add_loop_test(c, barriers_order_what_threads_write, 0, 3);
    tcase_add_loop_test(c, many_short_runs_lose_none, 0, 3);
    tcase_add_loop_test(c, workers_that_sleep_wake_up, 0, 3);
    tcase_add_test(c, starting_and_stopping_leaves_nothing);
    tcase_add_test(c, pinned_threads_stay_on_a_cpu_each);
    tcase_add_test(c, shares_cover_everything_once);
    suite_add_tcase(s, c);
    return s;
}
