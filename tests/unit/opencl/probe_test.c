/* A process of its own asks the drivers: what it says is read, and what it does wrong costs one driver. The child is a
 * script here that says what it is told to; the program's own is in tests/e2e/devices_test.py. */
#include "opencl/probe.h"

#include "opencl/device_json.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *probe_suite(void);

enum { LONG_MS = 60000, SHORT_MS = 300 };

static char script[] = "/tmp/infcgi_probe_XXXXXX";
static struct probe_result found;

static void set_up(void)
{
    strcpy(script, "/tmp/infcgi_probe_XXXXXX");
    int fd = mkstemp(script);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void tear_down(void) { (void)remove(script); }

/* "echo" and a line that tells of a device. */
static const char *device_line(uint32_t i_platform, uint32_t i_device, const char *name)
{
    static char line[4][4096];
    static int next;
    struct device_caps c = {.i_platform = i_platform, .i_device = i_device};
    snprintf(c.name, sizeof c.name, "%s", name);
    json_t *o = device_json(&c);
    char text[2048], *to = line[next++ % 4];
    size_t n = json_dumpb(o, text, sizeof text, JSON_COMPACT);
    ck_assert_uint_le(n, sizeof text);
    snprintf(to, sizeof line[0], "echo '%.*s'\n", (int)n, text);
    json_decref(o);
    return to;
}

/* Runs a script as the child; $1 is the platform to begin with. */
static void run(const char *text, int limit_ms)
{
    FILE *f = fopen(script, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    probe_use_child("/bin/sh", script, limit_ms);
    memset(&found, 0xff, sizeof found);
    probe_run(&found);
}

#define PLATFORM(i, name) "echo '{\"platform\":" i ",\"name\":\"" name "\"}'\n"
#define END               "echo '{\"end\":true}'\n"

START_TEST(what_it_says_is_read)
{
    char text[16384];
    snprintf(text, sizeof text, "%s%s%s%s%s", PLATFORM("0", "one") PLATFORM("1", "two"), device_line(1, 0, "first"),
             device_line(1, 1, "second"), PLATFORM("2", "three"), END "exec sleep 1000");
    run(text, LONG_MS); /* the end is believed without waiting for the process */
    ck_assert_int_eq(found.n_platforms, 3);
    ck_assert_int_eq(found.n_devices, 2);
    ck_assert_str_eq(found.platforms[1].name, "two");
    ck_assert_int_eq(found.platforms[1].n_devices, 2);
    ck_assert_int_eq(found.platforms[2].n_devices, 0);
    ck_assert_str_eq(found.devices[1].name, "second");
    ck_assert_str_eq(found.platforms[1].fault, "");
    ck_assert_str_eq(found.fault, "");
}
END_TEST

START_TEST(one_that_crashes_costs_itself_alone)
{
    char text[16384];
    snprintf(text, sizeof text, "if [ $1 = 0 ]; then\n%s%s%s%s%s%s", PLATFORM("0", "good"), device_line(0, 0, "a"),
             PLATFORM("1", "bad") "kill -SEGV $$\nfi\n", PLATFORM("2", "later"), device_line(2, 0, "c"), END);
    run(text, LONG_MS);
    ck_assert_int_eq(found.n_platforms, 3);
    ck_assert_int_eq(found.n_devices, 2);
    ck_assert_str_eq(found.platforms[0].fault, "");
    ck_assert_str_eq(found.platforms[1].fault, "crashed (Segmentation fault)");
    ck_assert_str_eq(found.platforms[2].fault, "");
    ck_assert_str_eq(found.devices[1].name, "c");
    ck_assert_uint_eq(found.devices[1].i_platform, 2);
}
END_TEST

START_TEST(one_that_hangs_is_not_waited_for)
{
    run("if [ $1 = 0 ]; then\n" PLATFORM("0", "slow") "exec sleep 1000\nfi\n" PLATFORM("1", "quick") END, SHORT_MS);
    ck_assert_int_eq(found.n_platforms, 2);
    ck_assert_str_eq(found.platforms[0].fault, "gave no answer within 1 s");
    ck_assert_str_eq(found.platforms[1].name, "quick");
    ck_assert_str_eq(found.platforms[1].fault, "");
}
END_TEST

static const struct {
    const char *text, *fault; /* before any platform */
} bad[] = {
    {"kill -ABRT $$", "crashed (Aborted)"},
    {"exit 3", "ended the process with status 3"},
    {"true", "ended the process with status 0"},
    {"exec sleep 1000", "gave no answer within 1 s"},
    {"echo", "gave an answer that cannot be read: a line: expected a JSON object, found nothing"},
    {"echo '[1]'", "gave an answer that cannot be read: a line"},
    {"echo '{\"platform\":-1,\"name\":\"x\"}'", "gave an answer that cannot be read: platform"},
    {"echo '{\"platform\":16,\"name\":\"x\"}'", "gave an answer that cannot be read: platform"},
    {"echo '{\"a\":{\"b\":{\"c\":1}}}'", "gave an answer that cannot be read: a line"},
    {"head -c 5000 /dev/zero", "gave an answer that cannot be read: a line of 4096 bytes"},
    {"yes '{}' 2>/dev/null", "gave an answer that cannot be read: i_platform: found none"},
};

START_TEST(drivers_that_fail_as_they_are_loaded)
{
    run(bad[_i].text, strstr(bad[_i].text, "sleep") != NULL ? SHORT_MS : LONG_MS);
    ck_assert_int_eq(found.n_platforms, 0);
    ck_assert_int_eq(found.n_devices, 0);
    ck_assert_msg(strncmp(found.fault, bad[_i].fault, strlen(bad[_i].fault)) == 0, "%s", found.fault);
}
END_TEST

START_TEST(lines_in_the_wrong_place)
{
    char text[16384];
    snprintf(text, sizeof text, "if [ $1 = 0 ]; then\n%s%s\nfi\n%s", PLATFORM("0", "x"), device_line(1, 0, "astray"),
             END);
    run(text, LONG_MS);
    ck_assert_int_eq(found.n_devices, 0);
    ck_assert_str_eq(found.platforms[0].fault, "gave an answer that cannot be read: i_platform: found 1");
}
END_TEST

START_TEST(each_of_many_fails)
{
    run("echo '{\"platform\":'$1',\"name\":\"p'$1'\"}'\nkill -BUS $$", LONG_MS);
    ck_assert_int_eq(found.n_platforms, PROBE_MAX_PLATFORMS); /* it is not tried forever */
    for (int i = 0; i < PROBE_MAX_PLATFORMS; i++) {
        ck_assert_str_eq(found.platforms[i].fault, "crashed (Bus error)");
    }
    ck_assert_str_eq(found.platforms[15].name, "p15");
}
END_TEST

START_TEST(a_program_that_is_not_there)
{
    probe_use_child("/nowhere/infcgi", "x", LONG_MS);
    probe_run(&found);
    ck_assert_int_eq(found.n_platforms, 0);
    ck_assert_str_eq(found.fault, "no process could be started to ask them");
}
END_TEST

START_TEST(without_a_child_the_process_asks)
{
    probe_use_child(NULL, NULL, 0);
    memset(&found, 0xff, sizeof found);
    probe_run(&found);
    ck_assert_int_ge(found.n_platforms, 1);
    ck_assert_int_ge(found.n_devices, 1);
    ck_assert_str_eq(found.fault, "");
    for (int i = 0; i < found.n_devices; i++) {
        ck_assert_str_ne(found.devices[i].name, "");
        ck_assert_str_eq(found.devices[i].platform, found.platforms[found.devices[i].i_platform].name);
    }
}
END_TEST

Suite *probe_suite(void)
{
    Suite *s = suite_create("probe");
    TCase *t = tcase_create("probe");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, what_it_says_is_read);
    tcase_add_test(t, one_that_crashes_costs_itself_alone);
    tcase_add_test(t, one_that_hangs_is_not_waited_for);
    tcase_add_loop_test(t, drivers_that_fail_as_they_are_loaded, 0, (int)(sizeof bad / sizeof bad[0]));
    tcase_add_test(t, lines_in_the_wrong_place);
    tcase_add_test(t, each_of_many_fails);
    tcase_add_test(t, a_program_that_is_not_there);
    tcase_add_test(t, without_a_child_the_process_asks);
    suite_add_tcase(s, t);
    return s;
}
