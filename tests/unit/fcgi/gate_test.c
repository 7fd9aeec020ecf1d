/* The gate over real sockets: how many are inside, who comes next, and who stops waiting. */
#include "engine/base/clock.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/gate.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *gate_suite(void);

enum { MOST = 64 };

static atomic_int n_inside, most_inside, n_done, n_cancelled, n_late, may_leave;
static int order[MOST]; /* keys, as they came in */
static atomic_int n_order;

static void wait_for(atomic_int *n, int least)
{
    for (int i = 0; i < 1000 && atomic_load(n) < least; i++) {
        usleep(10000);
    }
    ck_assert_int_ge(atomic_load(n), least);
}

static int number_of(const struct fastcgi_request *r, const char *name)
{
    const char *text = fastcgi_param(r, name);
    return text != NULL ? text[0] - '0' : 0;
}

/* Stays inside until it may leave. KEY: a digit; LATE: its deadline is near. */
static void handle(struct fastcgi_request *r, void *arg)
{
    (void)arg;
    struct gate_ticket t = {.is_inside = false};
    struct buf body;
    buf_init(&body, 0, MEM_REQUEST);
    ck_assert_int_eq(fastcgi_read_body(r, 100, &body), ERR_OK);
    buf_fini(&body);
    int key = number_of(r, "KEY");
    uint64_t deadline = number_of(r, "LATE") != 0 ? clock_now_ns() + 50000000u : 0;
    enum err err = gate_enter(&t, (uint64_t)key, 1, r, deadline, NULL);
    if (err == ERR_OK) {
        int n = atomic_fetch_add(&n_inside, 1) + 1;
        if (n > atomic_load(&most_inside)) {
            atomic_store(&most_inside, n);
        }
        order[atomic_fetch_add(&n_order, 1) % MOST] = key;
        for (int i = 0; i < 1000 && atomic_fetch_sub(&may_leave, 1) <= 0; i++) {
            atomic_fetch_add(&may_leave, 1);
            usleep(10000);
        }
        atomic_fetch_sub(&n_inside, 1);
    }
    gate_leave(&t);
    gate_leave(&t); /* nothing more */
    atomic_fetch_add(err == ERR_OK ? &n_done : err == ERR_CANCELLED ? &n_cancelled : &n_late, 1);
}

static int ask(const char *key, const char *late)
{
    const char *const extra[] = {key, late, NULL};
    return rig_send("POST", "/", extra, "", 0);
}

static int waiting(void)
{
    int inside, n;
    gate_count(&inside, &n);
    return n;
}

static void wait_until_waiting(int n)
{
    for (int i = 0; i < 1000 && waiting() != n; i++) {
        usleep(10000);
    }
    ck_assert_int_eq(waiting(), n);
}

static void setup(void)
{
    gate_set_places(1);
    rig_listen(handle, NULL);
}

static void finish(void)
{
    int inside, n;
    rig_stop();
    gate_count(&inside, &n);
    ck_assert_int_eq(inside, 0);
    ck_assert_int_eq(n, 0);
}

START_TEST(as_many_as_there_are_places)
{
    int fds[6];
    gate_set_places(2);
    for (int i = 0; i < 6; i++) {
        fds[i] = ask("KEY=1", NULL);
    }
    wait_for(&n_inside, 2);
    wait_until_waiting(4);
    atomic_store(&may_leave, 6);
    wait_for(&n_done, 6);
    ck_assert_int_eq(atomic_load(&most_inside), 2);
    for (int i = 0; i < 6; i++) {
        close(fds[i]);
    }
}
END_TEST

START_TEST(another_client_overtakes_a_flood)
{
    int fds[6];
    for (int i = 0; i < 4; i++) { /* one inside, three wait */
        fds[i] = ask("KEY=1", NULL);
        wait_for(&n_inside, 1);
        wait_until_waiting(i);
    }
    fds[4] = ask("KEY=2", NULL);
    wait_until_waiting(4);
    fds[5] = ask("KEY=1", NULL);
    wait_until_waiting(5);
    for (int i = 1; i <= 6; i++) {
        atomic_fetch_add(&may_leave, 1);
        wait_for(&n_done, i);
    }
    ck_assert_int_eq(order[0], 1);
    ck_assert_int_eq(order[1], 2);
    for (int i = 0; i < 6; i++) {
        close(fds[i]);
    }
}
END_TEST

START_TEST(who_leaves_or_is_late_waits_no_longer)
{
    int first = ask("KEY=1", NULL);
    wait_for(&n_inside, 1);
    int second = ask("KEY=1", NULL), third = ask("KEY=2", NULL);
    wait_until_waiting(2);
    close(second);
    wait_for(&n_cancelled, 1);
    wait_until_waiting(1);
    int late = ask("KEY=3", "LATE=1");
    wait_for(&n_late, 1);
    wait_until_waiting(1);
    atomic_store(&may_leave, 2);
    wait_for(&n_done, 2);
    close(first);
    close(third);
    close(late);
}
END_TEST

Suite *gate_suite(void)
{
    Suite *s = suite_create("gate");
    TCase *c = tcase_create("gate");
    tcase_set_tags(c, "fork");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, finish);
    tcase_add_test(c, as_many_as_there_are_places);
    tcase_add_test(c, another_client_overtakes_a_flood);
    tcase_add_test(c, who_leaves_or_is_late_waits_no_longer);
    suite_add_tcase(s, c);
    return s;
}
