/* What a request is told of its client, over real sockets. */
#include "fcgi/wire/fastcgi.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <sys/socket.h>
#include <unistd.h>

Suite *fastcgi_suite(void);

static atomic_int has_begun, saw_leave, saw_none;

/* Works, as tokenising does, until its client has gone; with a body that says so, only for a while. */
static void work(struct fastcgi_request *r, void *arg)
{
    (void)arg;
    struct buf body;
    buf_init(&body, 0, MEM_REQUEST);
    if (fastcgi_read_body(r, 100, &body) != ERR_OK) { /* its client was silent */
        buf_fini(&body);
        return;
    }
    int limit = body.len == 0 ? 1000 : 10;
    const atomic_bool *has_left = fastcgi_has_left(r);
    atomic_fetch_add(&has_begun, 1);
    for (int i = 0; i < limit && !atomic_load(has_left); i++) {
        usleep(10000);
    }
    atomic_fetch_add(atomic_load(has_left) ? &saw_leave : &saw_none, 1);
    buf_fini(&body);
}

static void wait_for(atomic_int *n, int least)
{
    for (int i = 0; i < 1000 && atomic_load(n) < least; i++) {
        usleep(10000);
    }
    ck_assert_int_ge(atomic_load(n), least);
}

START_TEST(work_before_a_generation_is_told_when_the_client_leaves)
{
    rig_listen(work, NULL);
    for (int i = 1; i <= 3; i++) { /* the thread's next request begins with a client */
        int fd = rig_send("POST", "/", NULL, "", 0);
        wait_for(&has_begun, 2 * i - 1);
        close(fd);
        wait_for(&saw_leave, i);
        fd = rig_send("POST", "/", NULL, "short", 5);
        wait_for(&saw_none, i);
        close(fd);
    }
    ck_assert_int_eq(atomic_load(&saw_leave), 3);
    rig_stop();
}
END_TEST

/* Connects, and sends n bytes. */
static int say(const void *bytes, size_t n)
{
    int fd = rig_connect();
    ck_assert_int_eq(send(fd, bytes, n, 0), n);
    return fd;
}

/* Until the server closes; the test's time is far longer than it may take. */
static void wait_for_end(int fd)
{
    char block[4096];
    while (recv(fd, block, sizeof block, 0) > 0) {
    }
    close(fd);
}

/* A request with a parameter and a body, but for its end. */
static const unsigned char cut_request[] = {1, 1, 0, 1, 0, 8, 0, 0, 0,   1,  0,   0,   0,   0, 0, 0, /* BEGIN */
                                            1, 4, 0, 1, 0, 5, 0, 0, 1,   2,  'N', 'v', 'v', 1, 4, 0,
                                            1, 0, 0, 0, 0,                     /* PARAMS */
                                            1, 5, 0, 1, 0, 9, 0, 0, 'a', 'b'}; /* STDIN */

START_TEST(a_request_that_stops_in_its_middle_is_given_up)
{
    struct fastcgi_counts counts;
    fastcgi_silence_ms = 100;
    rig_listen(work, NULL);
    for (size_t n = 1; n <= sizeof cut_request; n += 5) {
        wait_for_end(say(cut_request, n));
    }
    fastcgi_get_counts(&counts);
    for (int i = 0; i < 1000 && counts.n_open > 0; i++) {
        usleep(10000);
        fastcgi_get_counts(&counts);
    }
    ck_assert_int_eq(counts.n_open, 0);
    ck_assert_int_eq(counts.n_threads, counts.n_idle);
    ck_assert_int_eq(fastcgi_n_active(), 0);
    rig_stop();
}
END_TEST

START_TEST(work_ends_when_its_request_is_aborted)
{
    static const unsigned char other[] = {1, 2, 0, 2, 0, 0, 0, 0, 1, 8, 0, 1, 0, 1, 0, 0, 'x'},
                               abort_it[] = {1, 2, 0, 1, 0, 0, 0, 0};
    rig_listen(work, NULL);
    for (int i = 1; i <= 3; i++) {
        int fd = rig_send("POST", "/", NULL, "", 0);
        wait_for(&has_begun, i);
        ck_assert_int_eq(send(fd, other, sizeof other, 0), sizeof other);
        for (size_t k = 0; k < sizeof abort_it; k++) {
            ck_assert_int_eq(atomic_load(&saw_leave), i - 1);
            ck_assert_int_eq(send(fd, abort_it + k, 1, 0), 1);
            usleep(1000);
        }
        wait_for(&saw_leave, i);
        wait_for_end(fd);
    }
    ck_assert_int_eq(atomic_load(&saw_none), 0);
    rig_stop();
}
END_TEST

static void count_gone(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

/* Waits for the end of its client, and only then asks to be called. */
static void wait_before_watch(struct fastcgi_request *r, void *arg)
{
    work(r, NULL);
    fastcgi_watch(r, count_gone, arg);
    usleep(10000);
    fastcgi_watch(r, NULL, NULL);
}

START_TEST(who_watches_late_is_called_too)
{
    static const unsigned char abort_it[] = {1, 2, 0, 1, 0, 0, 0, 0};
    static atomic_int n_called;
    rig_listen(wait_before_watch, &n_called);
    for (int i = 1; i <= 2; i++) {
        int fd = rig_send("POST", "/", NULL, "", 0);
        wait_for(&has_begun, i);
        if (i == 1) {
            ck_assert_int_eq(send(fd, abort_it, sizeof abort_it, 0), sizeof abort_it);
            wait_for_end(fd);
        } else {
            close(fd);
        }
        wait_for(&n_called, i);
    }
    rig_stop();
    ck_assert_int_eq(atomic_load(&n_called), 2);
}
END_TEST

static atomic_int n_inside;
static atomic_bool may_go;

static void stay(struct fastcgi_request *r, void *arg)
{
    (void)r;
    (void)arg;
    atomic_fetch_add(&n_inside, 1);
    while (!atomic_load(&may_go)) {
        usleep(1000);
    }
    atomic_fetch_sub(&n_inside, 1);
}

/* So many requests at once, each with a thread; what threads there are in the end, when those that nobody wants have ended. */
static int flood(int n, int n_left)
{
    int fds[8];
    struct fastcgi_counts counts;
    atomic_store(&may_go, false);
    for (int i = 0; i < n; i++) {
        fds[i] = rig_send("POST", "/", NULL, "", 0);
    }
    wait_for(&n_inside, n);
    fastcgi_get_counts(&counts);
    ck_assert_int_ge(counts.n_threads, n);
    ck_assert_int_eq(counts.n_threads - counts.n_idle, n);
    atomic_store(&may_go, true);
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
    for (int i = 0; i < 1000; i++) {
        fastcgi_get_counts(&counts);
        if (counts.n_threads <= n_left && counts.n_idle == counts.n_threads) {
            break;
        }
        usleep(10000);
    }
    ck_assert_int_eq(counts.n_idle, counts.n_threads);
    return counts.n_threads;
}

START_TEST(threads_that_nobody_wants_end)
{
    fastcgi_idle_ms = 50;
    rig_listen(stay, NULL);
    ck_assert_int_eq(flood(6, 4), 4);
    ck_assert_int_eq(flood(8, 4), 4); /* in the places of those that ended, and in new ones */
    ck_assert_int_eq(flood(2, 4), 4);
    rig_stop();
}
END_TEST

Suite *fastcgi_suite(void)
{
    Suite *s = suite_create("fastcgi");
    TCase *c = tcase_create("fastcgi");
    tcase_set_tags(c, "fork");
    tcase_add_test(c, work_before_a_generation_is_told_when_the_client_leaves);
    tcase_add_test(c, a_request_that_stops_in_its_middle_is_given_up);
    tcase_add_test(c, work_ends_when_its_request_is_aborted);
    tcase_add_test(c, who_watches_late_is_called_too);
    tcase_add_test(c, threads_that_nobody_wants_end);
    suite_add_tcase(s, c);
    return s;
}
