/* Lines taken apart, text made of JSON, the table, and the socket's thread against clients that do not behave. */
#include "fcgi/conf/conf.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/unix_socket.h"
#include "fcgi/watch/admin.h"
#include "fcgi/watch/admin_text.h"
#include "fcgi/wire/live.h"
#include "fcgi/wire/server.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

Suite *admin_suite(void);

static const char *path;
static struct server *server;

static void setup(void)
{
    static struct server none;
    static struct conf conf;
    struct err_info info = {0};
    none.conf = &conf;
    server = &none;
    path = folder_file("admin.sock");
    ck_assert_msg(admin_start(path, server, &info) == ERR_OK, "%s", info.text);
}

static void teardown(void)
{
    admin_stop();
    folder_remove();
}

/* --- pieces ------------------------------------------------------------------------------------------------------ */

START_TEST(a_line_is_words_between_blanks)
{
    struct admin_call c = {0};
    char line[] = "  --json cancel\t 12 \r", many[] = "1 2 3 4 5 6 7 8 9", eight[] = "1 2 3 4 5 6 7 8", none[] = " \t ",
         only[] = "--json", late[] = "log --json";
    ck_assert(admin_parse(line, &c));
    ck_assert(c.is_json);
    ck_assert_int_eq(c.n_words, 2);
    ck_assert_str_eq(c.words[0], "cancel");
    ck_assert_str_eq(c.words[1], "12");
    ck_assert(!admin_parse(many, &c));
    ck_assert(admin_parse(eight, &c));
    ck_assert_int_eq(c.n_words, 8);
    ck_assert(!admin_parse(none, &c));
    ck_assert(!admin_parse(only, &c));
    ck_assert(admin_parse(late, &c));
    ck_assert(!c.is_json);
    ck_assert_int_eq(c.n_words, 2);
}
END_TEST

static void expect_text(const char *json, const char *text)
{
    char room[1024];
    struct buf out;
    json_t *v = json_loads(rig_quotes(json, room), JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(v);
    buf_init(&out, 0, MEM_GENERAL);
    admin_text(v, &out);
    ck_assert_str_eq(out.data, text);
    buf_fini(&out);
    json_decref(v);
}

START_TEST(text_is_made_of_the_json)
{
    expect_text("{'state':'ok','up_s':3,'kv_bytes':1610612736,'is':true,'no':null,'of':''}",
                "state  ok\nup s   3\nkv     1.5 GiB\nis     yes\nno     -\nof     -\n");
    expect_text("[{'id':7,'path':'/v1/x','n':1},{'id':12,'path':'/y','n':22}]",
                "id  path    n\n 7  /v1/x   1\n12  /y     22\n");
    expect_text("{'a':1,'in':{'b_bytes':512,'c':[1,2]},'list':[],'rows':[{'x':'1'}]}",
                "a  1\nin:\n    b  512 bytes\n    c  [1,2]\nlist:\n    none\nrows:\n    x\n    1\n");
    expect_text("[]", "none\n");
    expect_text("['one line','another']", "one line\nanother\n");
}
END_TEST

START_TEST(every_row_can_be_found_and_checks_its_words)
{
    const struct admin_command *k;
    for (int i = 0; (k = admin_at(i)) != NULL; i++) {
        struct admin_call c = {.server = server, .words = {k->name, "1", "2", "3", "4"}, .n_words = 2 + k->most};
        ck_assert_ptr_eq(admin_find(k->name), k);
        ck_assert_ptr_null(admin_run(&c));
        ck_assert_int_eq(c.verdict, ADMIN_USAGE);
        if (k->needs_engine) { /* while the model loads */
            c = (struct admin_call){.server = server, .words = {k->name}, .n_words = 1};
            ck_assert_ptr_null(admin_run(&c));
            ck_assert_int_eq(c.verdict, ADMIN_REFUSED);
        }
    }
    ck_assert_ptr_null(admin_find("nonsense"));
    ck_assert_ptr_null(admin_at(-1));
}
END_TEST

/* --- the list of requests ------------------------------------------------------------------------------------------ */

static void count(void *arg, const struct live *l, const struct live_look *look)
{
    uint64_t *sum = arg;
    ck_assert_int_eq(look->state, LIVE_READING);
    *sum = *sum * 10 + l->number % 10;
}

START_TEST(requests_come_and_go_in_any_order)
{
    struct live a, b, c;
    uint64_t seen = 0;
    live_begin(&a, NULL, "a", 0);
    live_begin(&b, NULL, "b", 0);
    live_begin(&c, NULL, "c", 0);
    ck_assert_int_eq(live_each(count, &seen), 3);
    ck_assert_uint_eq(seen, 123);
    live_end(&b);
    seen = 0;
    ck_assert_int_eq(live_each(count, &seen), 2);
    ck_assert_uint_eq(seen, 13);
    live_end(&c);
    live_begin(&b, NULL, "b", 0);
    live_end(&a);
    seen = 0;
    ck_assert_int_eq(live_each(count, &seen), 1);
    ck_assert_uint_eq(seen, 4);
    live_end(&b);
    ck_assert_int_eq(live_each(count, &seen), 0);
    ck_assert(!live_cancel(1));
}
END_TEST

/* --- the socket ------------------------------------------------------------------------------------------------------ */

static int dial(void)
{
    int fd = unix_socket_connect(path);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Reads to the end. */
static void expect_answer(int fd, const char *begin)
{
    char got[65536];
    size_t n = 0;
    for (ssize_t k; n < sizeof got - 1 && (k = recv(fd, got + n, sizeof got - 1 - n, 0)) > 0;) {
        n += (size_t)k;
    }
    got[n] = '\0';
    close(fd);
    ck_assert_msg(strncmp(got, begin, strlen(begin)) == 0, "expected '%s', found '%s'", begin, got);
}

static void say(int fd, const char *text, size_t n) { ck_assert_int_eq(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n); }

static void expect_said(const char *line, const char *begin)
{
    int fd = dial();
    say(fd, line, strlen(line));
    expect_answer(fd, begin);
}

START_TEST(lines_are_answered)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    char want[128];
    snprintf(want, sizeof want, "ok %zu\nversion  %s\n", strlen("version  \n" SERVER_VERSION), SERVER_VERSION);
    expect_said("version\n", want);
    snprintf(want, sizeof want, "ok %zu\n{\"version\":\"%s\"}\n", strlen("{\"version\":\"\"}\n" SERVER_VERSION),
             SERVER_VERSION);
    expect_said("--json version\n", want);
    expect_said("\n", "usage ");
    expect_said("nonsense\n", "usage no such command: nonsense");
    expect_said("kv\n", "refused the model is loading");
    expect_said("cancel 0\n", "usage ");
    expect_said("cancel 99\n", "refused no request 99");
    expect_said("loglevel loud\n", "usage ");
    expect_said("log x\n", "usage ");
    ck_assert_int_eq(log_level(), 2);
    expect_said("loglevel warn\n", "ok ");
    ck_assert_int_eq(log_level(), 1);
}
END_TEST

START_TEST(a_line_in_pieces_without_an_end_or_too_long)
{
    char line[ADMIN_LINE_BYTES];
    int fd = dial();
    say(fd, "ver", 3);
    usleep(20000);
    say(fd, "sion", 4);
    shutdown(fd, SHUT_WR);
    expect_answer(fd, "ok 15\n");
    memset(line, 'x', sizeof line);
    fd = dial();
    say(fd, line, sizeof line);
    expect_answer(fd, "usage expected a line of at most 1023 bytes");
    line[sizeof line - 1] = '\n';
    fd = dial();
    say(fd, line, sizeof line);
    expect_answer(fd, "usage no such command: xxx");
    fd = dial();
    say(fd, "version\0help\n", 13);
    expect_answer(fd, "usage expected a line of text");
    fd = dial(); /* says nothing and leaves */
    close(fd);
    expect_said("version\n", "ok ");
}
END_TEST

START_TEST(silent_clients_have_places_and_no_more)
{
    int silent[ADMIN_CLIENTS];
    for (int i = 0; i < ADMIN_CLIENTS; i++) {
        silent[i] = dial(); /* taken in this order */
    }
    expect_answer(dial(), "refused too many clients");
    for (int i = 0; i < ADMIN_CLIENTS; i++) {
        close(silent[i]);
    }
    char got[16] = "refused ";
    for (int i = 0; i < 1000 && strncmp(got, "refused ", 8) == 0; i++) { /* until it has seen that they left */
        usleep(10000);
        int fd = dial();
        (void)send(fd, "version\n", 8, MSG_NOSIGNAL);
        (void)recv(fd, got, sizeof got, 0);
        close(fd);
    }
    ck_assert_msg(strncmp(got, "ok ", 3) == 0, "%.16s", got);
}
END_TEST

START_TEST(a_log_that_is_followed_gives_lines_as_they_come)
{
    ck_assert_int_eq(log_start(NULL), ERR_OK);
    log_line("info", "before");
    int fd = dial();
    say(fd, "log -f 1\n", 9);
    char got[1024] = "";
    size_t n = 0;
    bool is_told = false;
    for (int i = 0; i < 1000 && strstr(got, "after") == NULL; i++) {
        ssize_t k = recv(fd, got + n, sizeof got - 1 - n, MSG_DONTWAIT);
        n += k > 0 ? (size_t)k : 0;
        got[n] = '\0';
        if (!is_told && strstr(got, "before") != NULL) {
            is_told = true;
            log_line("info", "after");
        }
        usleep(10000);
    }
    ck_assert_msg(strncmp(got, "live\n", 5) == 0 && strstr(got, "info before\n") != NULL &&
                      strstr(got, "info after\n") != NULL,
                  "%s", got);
    close(fd);
    expect_said("--json log 1\n", "ok ");
    log_stop();
}
END_TEST

/* What nobody takes is bounded, and others are served meanwhile. */
START_TEST(a_reader_that_takes_nothing_loses_its_place)
{
    ck_assert_int_eq(log_start(NULL), ERR_OK);
    FILE *quiet = freopen("/dev/null", "w", stderr);
    ck_assert_ptr_nonnull(quiet);
    int fd = dial();
    say(fd, "log -f\n", 7);
    for (int i = 0; i < 24; i++) { /* 6 MiB */
        for (int k = 0; k < 600; k++) {
            log_line("info", "%0450d", k);
        }
        usleep(100000);
        if (i == 5) {
            expect_said("version\n", "ok ");
        }
    }
    size_t all = 0;
    char part[65536];
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 5}, sizeof(struct timeval)),
                     0);
    ssize_t k;
    while ((k = recv(fd, part, sizeof part, 0)) > 0) {
        all += (size_t)k;
    }
    ck_assert_int_eq(k, 0); /* it was hung up on */
    ck_assert_uint_lt(all, ADMIN_ANSWER_BYTES);
    close(fd);
    log_stop();
}
END_TEST

START_TEST(a_second_server_at_the_path_is_refused)
{
    struct err_info info = {0};
    int fd;
    ck_assert_int_eq(unix_socket_listen(path, 0600, 1, "admin-socket", &fd, &info), ERR_ADDRESS_IN_USE);
    ck_assert_ptr_nonnull(strstr(info.text, "admin-socket: another process listens on"));
    char long_path[256];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    ck_assert_int_eq(unix_socket_listen(long_path, 0600, 1, "admin-socket", &fd, &info), ERR_CONFIG);
    ck_assert_int_eq(unix_socket_connect(long_path), -1);
    admin_stop();
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(admin_start(path, server, &info), ERR_OK); /* for teardown */
}
END_TEST

Suite *admin_suite(void)
{
    Suite *s = suite_create("admin");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_tags(t, "fork"); /* a log level, a log's thread and a standard error stay behind */
    tcase_set_timeout(t, 30);
    tcase_add_test(t, a_line_is_words_between_blanks);
    tcase_add_test(t, text_is_made_of_the_json);
    tcase_add_test(t, every_row_can_be_found_and_checks_its_words);
    tcase_add_test(t, requests_come_and_go_in_any_order);
    tcase_add_test(t, lines_are_answered);
    tcase_add_test(t, a_line_in_pieces_without_an_end_or_too_long);
    tcase_add_test(t, silent_clients_have_places_and_no_more);
    tcase_add_test(t, a_log_that_is_followed_gives_lines_as_they_come);
    tcase_add_test(t, a_reader_that_takes_nothing_loses_its_place);
    tcase_add_test(t, a_second_server_at_the_path_is_refused);
    suite_add_tcase(s, t);
    return s;
}
