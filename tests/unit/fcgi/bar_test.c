/* The progress bar: on a terminal only, not for what ends at once, and gone afterwards. */
#include "fcgi/cmd/bar.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

Suite *bar_suite(void);

/* Puts a new terminal, or a file, in the place of stderr; returns where to read what is written there. */
static int capture(bool is_terminal)
{
    int fds[2];
    if (is_terminal) {
        fds[0] = posix_openpt(O_RDWR | O_NOCTTY);
        ck_assert(fds[0] >= 0 && grantpt(fds[0]) == 0 && unlockpt(fds[0]) == 0);
        fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY);
    } else {
        ck_assert_int_eq(pipe(fds), 0);
    }
    ck_assert(fds[1] >= 0 && dup2(fds[1], STDERR_FILENO) >= 0);
    ck_assert_int_ne(fcntl(fds[0], F_SETFL, O_NONBLOCK), -1);
    return fds[0];
}

static void take(int fd, char text[512])
{
    ssize_t n = read(fd, text, 511);
    text[n > 0 ? n : 0] = '\0';
}

static void wait_a_picture(void) { nanosleep(&(struct timespec){.tv_nsec = 110000000}, NULL); }

START_TEST(a_terminal_shows_it_and_is_clean_again)
{
    struct bar b;
    char text[512];
    int fd = capture(true);
    bar_begin(&b);
    bar_set(&b, 0.25); /* too early */
    bar_end(&b);
    take(fd, text);
    ck_assert_str_eq(text, "");
    bar_begin(&b);
    wait_a_picture();
    bar_set(&b, 0.5);
    bar_set(&b, 0.6); /* too soon after the last */
    take(fd, text);
    ck_assert_str_eq(text, "\r[===============               ]  50 %\r");
    wait_a_picture();
    bar_set(&b, 1.0);
    take(fd, text);
    ck_assert_str_eq(text, "\r[==============================] 100 %\r");
    bar_end(&b);
    take(fd, text);
    ck_assert_uint_eq(strspn(text + 1, " "), 40);
    ck_assert(text[0] == '\r' && text[41] == '\r' && text[42] == '\0');
}
END_TEST

START_TEST(a_file_gets_nothing)
{
    struct bar b;
    char text[512];
    int fd = capture(false);
    bar_begin(&b);
    wait_a_picture();
    bar_set(&b, 0.5);
    bar_end(&b);
    take(fd, text);
    ck_assert_str_eq(text, "");
}
END_TEST

Suite *bar_suite(void)
{
    Suite *s = suite_create("bar");
    TCase *c = tcase_create("stderr");
    tcase_add_test(c, a_terminal_shows_it_and_is_clean_again);
    tcase_add_test(c, a_file_gets_nothing);
    suite_add_tcase(s, c);
    return s;
}
