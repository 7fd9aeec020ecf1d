/* The status page over a tiny model, and where the log of slow requests says the time went. */
#include "fcgi/ground/log.h"
#include "fcgi/watch/status.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

Suite *status_suite(void);

START_TEST(the_page_answers_while_the_model_loads)
{
    (void)rig_serve(false, true);
    ck_assert_int_eq(rig_get("/status"), 200);
    ck_assert_ptr_nonnull(strstr(rig_got.body, "state:                      loading\n"));
    static const char *const query[] = {"QUERY_STRING=json", NULL};
    ck_assert_int_eq(rig_ask("GET", "/status", query, NULL, 0), 200);
    ck_assert_str_eq(rig_text_at("state"), "loading");
    ck_assert_int_eq(rig_number_at("accepted conn"), 2);
    rig_unserve();
}
END_TEST

START_TEST(names_are_escaped_in_html)
{
    static const char *const query[] = {"QUERY_STRING=x&html", NULL};
    struct server *s = rig_serve(false, false);
    s->model_id = "<b>&\"";
    ck_assert_int_eq(rig_ask("GET", "/status", query, NULL, 0), 200);
    ck_assert_ptr_nonnull(strstr(rig_got.body, "<td>&lt;b&gt;&amp;&quot;</td>"));
    rig_unserve();
}
END_TEST

static uint64_t field(const char *line, const char *name)
{
    const char *p = strstr(line, name);
    ck_assert_ptr_nonnull(p);
    return strtoull(p + strlen(name), NULL, 10);
}

/* Until nothing more has come for 200 ms. */
static void wait_until_full(int fd)
{
    int before = 0, now = 0;
    for (int i = 0; i < 100 && (now == 0 || now != before); i++) {
        before = now;
        usleep(200000);
        ck_assert_int_eq(ioctl(fd, FIONREAD, &now), 0);
    }
    ck_assert_int_gt(now, 0);
}

/* A client that takes nothing for 300 ms of an answer that no socket's buffer holds. */
START_TEST(a_slow_reader_is_seen_as_such)
{
    static const char body[] =
        "{\"prompt\":\"a\",\"stream\":true,\"n\":8,\"max_tokens\":100,\"ignore_eos\":true,\"logprobs\":5}";
    struct server *s = rig_serve(false, false);
    struct conf conf = *s->conf;
    char line[4096] = "";
    conf.slow_log_s = 0.001;
    conf.slow_log_file = folder_file("slow.log");
    s->conf = &conf;
    struct rig_reply got;
    /* Nothing more may come for want of a CPU, too. */
    for (int i = 0; i < 5 && (line[0] == '\0' || field(line, "reader_ms=") < 100); i++) {
        int fd = rig_send("POST", "/v1/completions", NULL, body, sizeof body - 1);
        wait_until_full(fd);
        usleep(300000);
        rig_receive(fd, &got);
        ck_assert_int_eq(got.status, 200);
        rig_reply_fini(&got);
        FILE *f = fopen(conf.slow_log_file, "r");
        ck_assert_ptr_nonnull(f);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
        fclose(f);
        ck_assert_int_eq(unlink(conf.slow_log_file), 0);
    }
    ck_assert_msg(field(line, "reader_ms=") >= 100 && field(line, "reader_ms=") <= field(line, "total_ms="), "%s",
                  line);
    ck_assert_uint_eq(field(line, "completion_tokens="), 800);
    rig_unserve();
    folder_remove();
}
END_TEST

Suite *status_suite(void)
{
    Suite *s = suite_create("status");
    TCase *t = tcase_create("all");
    tcase_set_tags(t, "fork");
    tcase_add_test(t, the_page_answers_while_the_model_loads);
    tcase_add_test(t, names_are_escaped_in_html);
    tcase_add_test(t, a_slow_reader_is_seen_as_such);
    suite_add_tcase(s, t);
    return s;
}
