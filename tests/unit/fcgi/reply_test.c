/* Answers byte by byte, as they come through FastCGI: heads, error objects, event streams; and the protocol's edges. */
#include "fcgi/wire/reply.h"
#include "fcgi/wire/http_status.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *reply_suite(void);

static struct rig_reply got;

/* --- what the handler does, by path ----------------------------------------------------------------------------- */

static atomic_int n_gone;
static atomic_bool is_watched, is_over;

static void on_gone(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

static void send_text(struct reply *r, int status, const char *text, size_t n)
{
    struct buf body;
    buf_init(&body, 0, MEM_REQUEST);
    buf_append(&body, text, n);
    reply_send(r, status, "text/plain", &body);
    buf_fini(&body);
}

/* An event each 10 ms until the client has gone. */
static void stream_until_gone(struct reply *r)
{
    struct buf event;
    buf_init(&event, 0, MEM_REQUEST);
    buf_puts(&event, "data: x\n\n");
    bool connected = reply_start_stream(r, NULL) == ERR_OK;
    fastcgi_watch(r->request, on_gone, &n_gone);
    atomic_store(&is_watched, true);
    for (int i = 0; connected && i < 500; i++) {
        connected = reply_push(r, &event) == ERR_OK;
        usleep(10000);
    }
    fastcgi_watch(r->request, NULL, NULL);
    atomic_store(&is_over, !connected);
    buf_fini(&event);
}

/* A request that computes and writes nothing. */
static void wait_until_gone(struct reply *r)
{
    fastcgi_watch(r->request, on_gone, &n_gone);
    atomic_store(&is_watched, true);
    for (int i = 0; atomic_load(&n_gone) == 0 && i < 500; i++) {
        usleep(10000);
    }
    fastcgi_watch(r->request, NULL, NULL);
    atomic_store(&is_over, true);
}

static void read_body(struct reply *r, const char *limit)
{
    struct buf body;
    buf_init(&body, 0, MEM_REQUEST);
    enum err err = fastcgi_read_body(r->request, (size_t)strtol(limit, NULL, 10), &body);
    if (err != ERR_OK) {
        reply_error(r, err, NULL);
    } else {
        reply_send(r, 200, "application/octet-stream", &body);
    }
    buf_fini(&body);
}

static void send_events(struct reply *r)
{
    struct buf event;
    buf_init(&event, 0, MEM_REQUEST);
    bool ok = reply_start_stream(r, NULL) == ERR_OK;
    buf_puts(&event, "data: {\"a\":\"\xE2\x82\xAC\"}\n\n");
    ok = ok && reply_push(r, &event) == ERR_OK;
    buf_reset(&event);
    buf_puts(&event, ": ping\n\n");
    ok = ok && reply_push(r, &event) == ERR_OK;
    buf_reset(&event);
    buf_puts(&event, "data: [DONE]\n\n");
    ok = ok && reply_push(r, &event) == ERR_OK;
    buf_fini(&event);
    (void)ok;
}

static void handle(struct fastcgi_request *request, void *arg)
{
    (void)arg;
    struct reply r;
    struct err_info info = {0};
    reply_init(&r, request);
    const char *uri = fastcgi_param(request, "REQUEST_URI");
    if (strcmp(uri, "/text") == 0) {
        send_text(&r, 200, "one\r\n\r\ntwo\0three", 16);
    } else if (strcmp(uri, "/empty") == 0) {
        send_text(&r, 200, "", 0);
    } else if (strcmp(uri, "/big") == 0) {
        static char big[300000];
        memset(big, 'b', sizeof big);
        send_text(&r, 200, big, sizeof big);
    } else if (strcmp(uri, "/405") == 0) {
        r.allow = "POST";
        reply_error(&r, ERR_METHOD, NULL);
    } else if (strcmp(uri, "/503") == 0) {
        r.retry_after_s = 7;
        reply_error(&r, ERR_OVERLOADED, NULL);
    } else if (strncmp(uri, "/error/", 7) == 0) {
        enum err code = (enum err)strtol(uri + 7, NULL, 10);
        err_set(&info, code, "messages[0].\"x\"", "expected \"%s\", found \\ and \xFF", "a");
        reply_error(&r, code, &info);
    } else if (strcmp(uri, "/events") == 0) {
        send_events(&r);
    } else if (strcmp(uri, "/stream") == 0) {
        stream_until_gone(&r);
    } else if (strcmp(uri, "/wait") == 0) {
        wait_until_gone(&r);
    } else if (strncmp(uri, "/body/", 6) == 0) {
        read_body(&r, uri + 6);
    }
}

static void setup(void) { rig_listen(handle, NULL); }
static void teardown(void)
{
    rig_reply_fini(&got);
    rig_stop();
}

static void get(const char *uri, const char *const *extra)
{
    rig_reply_fini(&got);
    rig_call("GET", uri, extra, "", 0, &got);
    ck_assert(got.has_end);
}

/* The value of a header, in a static buffer; NULL when it is absent. Fails the test when it stands twice. */
static const char *header(const char *name)
{
    static char value[256];
    char start[64];
    size_t n = (size_t)snprintf(start, sizeof start, "\r\n%s: ", name);
    const char *p = strstr(got.raw.data, start);
    if (p == NULL || p >= got.body) {
        return NULL;
    }
    const char *again = strstr(p + n, start);
    ck_assert_msg(again == NULL || again >= got.body, "%s stands twice", name);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(p + n, "\r\n"), p + n);
    return value;
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

START_TEST(a_whole_body)
{
    get("/text", NULL);
    ck_assert_msg(strncmp(got.raw.data, "Status: 200 OK\r\nContent-Type: text/plain\r\n", 42) == 0, "%s", got.raw.data);
    ck_assert_str_eq(header("Content-Length"), "16");
    ck_assert_str_eq(header("Cache-Control"), "no-store");
    ck_assert_str_eq(header("OpenAI-Version"), "2020-10-01");
    ck_assert_ptr_nonnull(header("OpenAI-Processing-Ms"));
    ck_assert_ptr_null(header("Retry-After"));
    ck_assert_ptr_null(header("Allow"));
    ck_assert_ptr_null(header("X-Should-Retry"));
    ck_assert(got.n_body == 16 && memcmp(got.body, "one\r\n\r\ntwo\0three", 16) == 0);
    get("/empty", NULL);
    ck_assert_str_eq(header("Content-Length"), "0");
    ck_assert_uint_eq(got.n_body, 0);
    get("/big", NULL);
    ck_assert_uint_eq(got.n_body, 300000);
}
END_TEST

START_TEST(request_ids)
{
    static const struct {
        const char *client, *nginx, *kept; /* kept NULL: one of our own */
    } cases[] = {
        {"HTTP_X_REQUEST_ID=theirs", "REQUEST_ID=abc-1_2.3:Z", "abc-1_2.3:Z"}, /* nginx has logged its own */
        {"HTTP_X_REQUEST_ID=abc-1_2.3:Z", "REQUEST_ID=", "abc-1_2.3:Z"},
        {"HTTP_X_REQUEST_ID=abc-1_2.3:Z", "REQUEST_ID=a b", "abc-1_2.3:Z"},
        {"HTTP_X_REQUEST_ID=a\r\nSet-Cookie: x", "REQUEST_ID=n1", "n1"},
        {"HTTP_X_REQUEST_ID=a\r\nSet-Cookie: x", "Y=", NULL},
        {"HTTP_X_REQUEST_ID=\xC3\xA9", "REQUEST_ID=x\ny", NULL},
        {"HTTP_X_REQUEST_ID=1234567890123456789012345678901234567890123456789012345678901234",
         "Y=", "1234567890123456789012345678901234567890123456789012345678901234"},
        {"X=", "REQUEST_ID=1234567890123456789012345678901234567890123456789012345678901234",
         "1234567890123456789012345678901234567890123456789012345678901234"},
        {"HTTP_X_REQUEST_ID=12345678901234567890123456789012345678901234567890123456789012345", "REQUEST_ID=n1", "n1"},
        {"HTTP_X_REQUEST_ID=12345678901234567890123456789012345678901234567890123456789012345", "Y=", NULL},
        {"X=", "Y=", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const extra[] = {cases[i].client, cases[i].nginx, NULL};
        get("/empty", extra);
        const char *id = header("X-Request-Id");
        ck_assert_ptr_nonnull(id);
        if (cases[i].kept != NULL) {
            ck_assert_str_eq(id, cases[i].kept);
        } else {
            ck_assert_msg(strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16, "%s", id);
        }
        ck_assert_ptr_null(header("Set-Cookie"));
    }
}
END_TEST

START_TEST(every_error_is_an_object_with_its_status)
{
    for (int code = ERR_NOMEM; code < ERR_COUNT; code++) {
        char uri[32];
        snprintf(uri, sizeof uri, "/error/%d", code);
        get(uri, NULL);
        ck_assert_int_eq(got.status, http_status((enum err)code));
        ck_assert_str_eq(header("Content-Type"), "application/json");
        json_t *root = json_loadb(got.body, got.n_body, 0, NULL), *e = json_object_get(root, "error");
        ck_assert_msg(json_object_size(e) == 4, "%s", got.body);
        ck_assert_str_eq(json_string_value(json_object_get(e, "code")), err_code((enum err)code));
        ck_assert_str_eq(json_string_value(json_object_get(e, "type")), http_status_type((enum err)code));
        ck_assert_str_eq(json_string_value(json_object_get(e, "param")), "messages[0].\"x\"");
        const char *message = json_string_value(json_object_get(e, "message"));
        ck_assert_msg(strncmp(message, "expected \"a\", found \\ and ", 25) == 0, "%s", message);
        json_decref(root);
        bool is_final =
            (got.status >= 500 && got.status != 503) || got.status == 429; /* which has no Retry-After here */
        ck_assert((header("X-Should-Retry") != NULL) == is_final);
        ck_assert((header("Retry-After") != NULL) == (got.status == 503));
        ck_assert((header("WWW-Authenticate") != NULL) == (got.status == 401));
        ck_assert_msg(strstr(got.raw.data, " Error\r\n") == NULL || got.status == 500, "%d has no reason phrase",
                      got.status);
    }
    ck_assert_str_eq(reply_reason(418), "Error");
}
END_TEST

START_TEST(errors_without_details)
{
    get("/405", NULL);
    ck_assert_int_eq(got.status, 405);
    ck_assert_str_eq(header("Allow"), "POST");
    ck_assert_str_eq(got.body,
                     "{\"error\":{\"message\":\"method not allowed for this URL\",\"type\":\"invalid_request_error\","
                     "\"param\":null,\"code\":\"method_not_allowed\"}}");
    get("/503", NULL);
    ck_assert_str_eq(header("Retry-After"), "7");
}
END_TEST

START_TEST(an_event_stream)
{
    get("/events", NULL);
    ck_assert_int_eq(got.status, 200);
    ck_assert_str_eq(header("Content-Type"), "text/event-stream; charset=utf-8");
    ck_assert_str_eq(header("X-Accel-Buffering"), "no");
    ck_assert_ptr_null(header("Content-Length"));
    ck_assert_str_eq(got.body, "data: {\"a\":\"\xE2\x82\xAC\"}\n\n: ping\n\ndata: [DONE]\n\n");
}
END_TEST

START_TEST(bodies_have_a_limit)
{
    static char body[100000];
    for (size_t i = 0; i < sizeof body; i++) {
        body[i] = (char)i;
    }
    rig_call("POST", "/body/100000", NULL, body, sizeof body, &got);
    ck_assert(got.n_body == sizeof body && memcmp(got.body, body, sizeof body) == 0);
    rig_reply_fini(&got);
    rig_call("POST", "/body/99999", NULL, body, sizeof body, &got);
    ck_assert_int_eq(got.status, 413);
    rig_reply_fini(&got);
    rig_call("POST", "/body/0", NULL, body, 1, &got);
    ck_assert_int_eq(got.status, 413);
    rig_reply_fini(&got);
    rig_call("POST", "/body/0", NULL, body, 0, &got);
    ck_assert_int_eq(got.status, 200);
}
END_TEST

START_TEST(bodies_are_as_long_as_they_say)
{
    static const struct {
        const char *length;
        int status;
    } cases[] = {{"CONTENT_LENGTH=5", 200}, {"CONTENT_LENGTH=", 200},
                 {"CONTENT_LENGTH=4", 400}, {"CONTENT_LENGTH=6", 400},
                 {"CONTENT_LENGTH=0", 400}, {"CONTENT_LENGTH=-5", 400},
                 {"CONTENT_LENGTH=x", 400}, {"CONTENT_LENGTH=99999999999999999999", 400}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const extra[] = {cases[i].length, NULL};
        rig_reply_fini(&got);
        rig_call("POST", "/body/100", extra, "hello", 5, &got);
        ck_assert_msg(got.status == cases[i].status, "%s: %d", cases[i].length, got.status);
    }
}
END_TEST

static void wait_for(atomic_bool *what)
{
    for (int i = 0; i < 500 && !atomic_load(what); i++) {
        usleep(10000);
    }
    ck_assert(atomic_load(what));
}

START_TEST(a_client_that_leaves_is_told_once)
{
    static const char *const uris[] = {"/wait", "/stream"};
    for (size_t i = 0; i < ARRAY_LEN(uris); i++) {
        atomic_store(&n_gone, 0);
        atomic_store(&is_over, false);
        atomic_store(&is_watched, false);
        int fd = rig_send("GET", uris[i], NULL, "", 0);
        for (int k = 0; k < 1000 && !atomic_load(&is_watched); k++) {
            usleep(10000);
        }
        ck_assert_int_eq(fastcgi_n_active(), 1);
        ck_assert_int_eq(atomic_load(&n_gone), 0); /* still there */
        close(fd);
        wait_for(&is_over);
        int n = atomic_load(&n_gone); /* a failing write may be quicker than the watcher */
        ck_assert_msg(n == 1 || (n == 0 && i == 1), "%s: told %d times", uris[i], n);
    }
    get("/text", NULL); /* others are served as before */
    ck_assert_int_eq(got.status, 200);
}
END_TEST

START_TEST(more_clients_than_first_threads)
{
    int fds[6];
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = rig_send("GET", "/stream", NULL, "", 0);
    }
    for (int i = 0; i < 300 && fastcgi_n_active() < 6; i++) {
        usleep(10000);
    }
    ck_assert_int_eq(fastcgi_n_active(), 6);
    get("/text", NULL);
    ck_assert_int_eq(got.status, 200);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        close(fds[i]);
    }
}
END_TEST

START_TEST(stopping_lets_requests_end)
{
    atomic_store(&is_over, false);
    int fd = rig_send("GET", "/stream", NULL, "", 0);
    char head[64] = "";
    ck_assert(recv(fd, head, 8, MSG_WAITALL) == 8); /* it runs */
    fastcgi_stop();
    ck_assert_int_eq(fastcgi_n_active(), 1);
    ck_assert(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
    close(fd);
    wait_for(&is_over);
}
END_TEST

START_TEST(sockets_live_stale_and_impossible)
{
    struct err_info info = {0};
    struct stat st;
    int fd = -1;
    const char *path = folder_file("socket");
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0660);
    ck_assert_int_eq(fastcgi_listen(path, &fd, &info), ERR_ADDRESS_IN_USE);
    const char *other = folder_file("other");
    ck_assert_int_eq(fastcgi_listen(other, &fd, &info), ERR_OK);
    close(fd); /* a process that died leaves its socket behind */
    ck_assert_int_eq(fastcgi_listen(other, &fd, &info), ERR_OK);
    close(fd);
    const char *file = folder_write("file", "x", 1);
    ck_assert_int_ne(fastcgi_listen(file, &fd, &info), ERR_OK);
    ck_assert(stat(file, &st) == 0 && S_ISREG(st.st_mode)); /* a file of the user's is left alone */
    char long_path[200];
    memset(long_path, 'p', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    ck_assert_int_eq(fastcgi_listen(long_path, &fd, &info), ERR_CONFIG);
}
END_TEST

Suite *reply_suite(void)
{
    Suite *s = suite_create("reply");
    TCase *t = tcase_create("reply");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_whole_body);
    tcase_add_test(t, request_ids);
    tcase_add_test(t, every_error_is_an_object_with_its_status);
    tcase_add_test(t, errors_without_details);
    tcase_add_test(t, an_event_stream);
    tcase_add_test(t, bodies_have_a_limit);
    tcase_add_test(t, bodies_are_as_long_as_they_say);
    tcase_add_test(t, a_client_that_leaves_is_told_once);
    tcase_add_test(t, more_clients_than_first_threads);
    tcase_add_test(t, stopping_lets_requests_end);
    tcase_add_test(t, sockets_live_stale_and_impossible);
    suite_add_tcase(s, t);
    return s;
}
