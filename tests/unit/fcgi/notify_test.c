/* Datagrams of sd_notify: what is sent to a socket, and what is found in one. */
#include "fcgi/wire/notify.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Suite *notify_suite(void);

START_TEST(fields_are_found)
{
    static const char said[] = "READY=1\nSTATUS=a = b\nEXTEND_TIMEOUT_USEC=17";
    size_t n = 99;
    ck_assert_str_eq(notify_field(said, "EXTEND_TIMEOUT_USEC", &n), "17");
    ck_assert_uint_eq(n, 2);
    const char *status = notify_field(said, "STATUS", &n);
    ck_assert(n == 5 && strncmp(status, "a = b", n) == 0);
    ck_assert(*notify_field(said, "READY", &n) == '1' && n == 1);
    ck_assert_ptr_null(notify_field(said, "READ", &n));
    ck_assert_ptr_null(notify_field(said, "1\nSTATUS", &n));
    ck_assert_ptr_null(notify_field("", "READY", &n));
    ck_assert_ptr_null(notify_field("READY\n\n=1\n", "READY", &n));
    ck_assert_ptr_nonnull(notify_field("\n\nREADY=", "READY", &n));
    ck_assert_uint_eq(n, 0);
}
END_TEST

static int ends[2];

static const char *received(char *text, size_t cap)
{
    ssize_t n = recv(ends[1], text, cap - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

START_TEST(what_is_said_arrives)
{
    char text[2 * NOTIFY_BYTES], name[2 * NOTIFY_BYTES];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    notify_open(ends[0]);
    ck_assert(notify_is_open());
    notify_say("READY=1", NULL);
    ck_assert_str_eq(received(text, sizeof text), "READY=1");
    notify_say("", "serving %s", "a\nREADY=1\x1b[0m");
    ck_assert_str_eq(received(text, sizeof text), "STATUS=serving a READY=1 [0m");
    notify_say("STOPPING=1", "%d left", 3);
    ck_assert_str_eq(received(text, sizeof text), "STOPPING=1\nSTATUS=3 left");
    notify_reloading();
    ck_assert(strncmp(received(text, sizeof text), "RELOADING=1\nMONOTONIC_USEC=", 27) == 0 && strlen(text) > 27);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    notify_say("", "%s", name);
    ck_assert_uint_eq(strlen(received(text, sizeof text)), NOTIFY_BYTES - 1);
    for (int i = 0; i < 5000; i++) { /* nobody reads: it does not wait */
        notify_say("WATCHDOG=1", "%s", name);
    }
    close(ends[1]);
    notify_say("WATCHDOG=1", NULL); /* nor does it end the process */
    close(ends[0]);
}
END_TEST

START_TEST(the_watchdog_may_be_anothers)
{
    char pid[24];
    ck_assert_uint_eq(notify_watchdog_ns(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    ck_assert_uint_eq(notify_watchdog_ns(), 30000000000u);
    setenv("WATCHDOG_PID", "1", 1);
    ck_assert_uint_eq(notify_watchdog_ns(), 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    ck_assert_uint_eq(notify_watchdog_ns(), 30000000000u);
    for (const char *const *bad = (const char *const[]){"", "x", "-1", "0", "99999999999999999999", NULL}; *bad != NULL;
         bad++) {
        setenv("WATCHDOG_USEC", *bad, 1);
        ck_assert_uint_eq(notify_watchdog_ns(), 0);
    }
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}
END_TEST

Suite *notify_suite(void)
{
    Suite *s = suite_create("notify");
    TCase *t = tcase_create("notify");
    tcase_add_test(t, fields_are_found);
    tcase_add_test(t, what_is_said_arrives);
    tcase_add_test(t, the_watchdog_may_be_anothers);
    suite_add_tcase(s, t);
    return s;
}
