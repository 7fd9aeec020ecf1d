/* Generations that go wrong: what the client is told, what is counted, and that the next request does well. */
#include "engine/base/mem_account.h"
#include "fcgi/api/generation.h"
#include "tests/support/faulty_backend.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Suite *generation_suite(void);

#define URL   "/v1/completions"
#define WHOLE "{\"prompt\":\"ab\",\"max_tokens\":8,\"ignore_eos\":true}"
#define LONG  "{\"prompt\":\"ab\",\"max_tokens\":100,\"ignore_eos\":true,\"stream\":true}"

static void setup(void)
{
    faulty_backend_arm(-1, ERR_OK);
    rig_serve(false, false);
}

/* A sample of /metrics, 0 when it is not there. */
static double count_of(const char *sample)
{
    double v = 0;
    ck_assert_int_eq(rig_get("/metrics"), 200);
    const char *p = strstr(rig_got.body, sample);
    ck_assert(p == NULL || sscanf(p + strlen(sample), " %lf", &v) == 1);
    return v;
}

#define ENDED(class) "infcgi_requests_total{endpoint=\"/v1/completions\",status=\"" class "\"}"

/* Requests are counted after their last byte. */
static void wait_for(const char *sample, double n)
{
    for (int i = 0; i < 500 && count_of(sample) < n; i++) {
        usleep(10000);
    }
    ck_assert_msg(count_of(sample) == n, "%s: expected %g in %s", sample, n, rig_got.body);
}

/* Whether a stream has a token, or only the comment that keeps it open. */
static bool has_token(const char *body) { return strstr(body, "\"choices\":[{\"index\":0,\"text\":") != NULL; }

/* A stream that has begun ends with the error event. */
static void check_broken(const char *body, const char *code, const char *why)
{
    char expected[256];
    snprintf(expected, sizeof expected,
             "data: {\"error\":{\"message\":\"%s\",\"type\":\"server_error\",\"param\":null,\"code\":\"%s\"}}\n\n", why,
             code);
    size_t n = strlen(body), n_expected = strlen(expected);
    ck_assert_msg(n > n_expected && strcmp(body + n - n_expected, expected) == 0, "%s", body);
    ck_assert_msg(strstr(body, "[DONE]") == NULL, "%s", body);
}

START_TEST(a_failed_batch_ends_a_whole_answer_with_its_cause)
{
    static const char *const id[] = {"HTTP_X_REQUEST_ID=mine-1", NULL};
    faulty_backend_arm(2, ERR_NOMEM);
    ck_assert_int_eq(rig_ask("POST", URL, id, WHOLE, strlen(WHOLE)), 500);
    ck_assert_str_eq(rig_text_at("error.code"), "out_of_memory");
    ck_assert_str_eq(rig_text_at("error.message"), FAULTY_BACKEND_WHY);
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nX-Request-Id: mine-1\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_post(URL, WHOLE), 200);
    ck_assert_int_eq(rig_get("/health"), 200);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(rig_answer, "device_memory"), "weights")), 0);
    ck_assert_uint_eq(json_object_size(json_object_get(rig_answer, "device_memory")), 4);
    ck_assert_uint_eq(json_array_size(json_object_get(rig_answer, "devices")), 0);
    wait_for("infcgi_errors_total{code=\"out_of_memory\"}", 1);
}
END_TEST

START_TEST(a_stream_that_broke_off_is_no_success)
{
    faulty_backend_arm(5, ERR_INTERNAL);
    ck_assert_int_eq(rig_post(URL, LONG), 200);
    ck_assert_msg(has_token(rig_got.body), "%s", rig_got.body);
    check_broken(rig_got.body, "internal_error", FAULTY_BACKEND_WHY);
    wait_for(ENDED("5xx"), 1);
    wait_for("infcgi_errors_total{code=\"internal_error\"}", 1);
    ck_assert(count_of(ENDED("2xx")) == 0);
    ck_assert_int_eq(rig_post(URL, LONG), 200);
    ck_assert_msg(strstr(rig_got.body, "[DONE]") != NULL, "%s", rig_got.body);
    wait_for(ENDED("2xx"), 1);
}
END_TEST

START_TEST(a_client_that_left_is_no_success)
{
    static const char body[] = "{\"prompt\":\"ab\",\"max_tokens\":120,\"n\":8,\"ignore_eos\":true,\"stream\":true}";
    close(rig_send("POST", URL, NULL, body, sizeof body - 1));
    wait_for(ENDED("4xx"), 1);
    wait_for("infcgi_errors_total{code=\"cancelled\"}", 1);
    ck_assert(count_of(ENDED("2xx")) == 0);
}
END_TEST

/* One stream has begun, others run or wait: all are told, and so is who comes later. */
START_TEST(a_lost_back_end_is_told_to_all)
{
    int fds[4];
    struct rig_reply got;
    faulty_backend_arm(20, ERR_LOST);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        const char *body = i % 2 == 0 ? LONG : WHOLE;
        fds[i] = rig_send("POST", URL, NULL, body, strlen(body));
    }
    int n_broken = 0;
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        rig_receive(fds[i], &got);
        ck_assert(got.has_end && got.body != NULL);
        if (got.status == 200 && strstr(got.body, "[DONE]") == NULL && i % 2 == 0) {
            check_broken(got.body, "backend_lost", FAULTY_BACKEND_WHY);
            n_broken += has_token(got.body); /* on a busy machine the other stream can have none yet */
        } else if (got.status != 200) {      /* 500 on its way, 503 where it came too late */
            ck_assert_msg(strstr(got.body, "\"code\":\"backend_lost\"") != NULL, "%s", got.body);
        }
        rig_reply_fini(&got);
    }
    ck_assert_int_ge(n_broken, 1);
    ck_assert_int_eq(rig_get("/health"), 503);
    ck_assert_str_eq(rig_text_at("status"), "lost");
    ck_assert_str_eq(rig_text_at("reason"), FAULTY_BACKEND_WHY);
    ck_assert_int_eq(rig_post(URL, WHOLE), 503);
    ck_assert_str_eq(rig_text_at("error.code"), "backend_lost");
    ck_assert_str_eq(rig_text_at("error.message"), FAULTY_BACKEND_WHY);
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nRetry-After: 1\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_get("/metrics"), 200);
    ck_assert_msg(strstr(rig_got.body, "\ninfcgi_up 0\n") != NULL, "%s", rig_got.body);
}
END_TEST

/* What does not change from one answer to the next: after each "choices", but for times. */
static void strip(const char *body, struct buf *out)
{
    buf_reset(out);
    for (const char *p = body; (p = strstr(p, "\"choices\":")) != NULL;) {
        size_t n = strcspn(p, "\n");
        const char *times = memmem(p, n, ",\"timings\":", 11);
        buf_append(out, p, times != NULL ? (size_t)(times - p) : n);
        p += n;
    }
    buf_puts(out, strstr(body, "[DONE]") != NULL ? "[DONE]" : "");
}

/* With little more memory each time, until it is enough: the answer is whole, or it says that it is not. */
START_TEST(out_of_memory_cuts_no_answer_short_in_silence)
{
    static const char *const rest[] = {"\"prompt\":\"ab\",\"logprobs\":3,\"echo\":true,\"stream\":true",
                                       "\"prompt\":\"ab\",\"stream\":true",
                                       "\"prompt\":\"ab\",\"logprobs\":3,\"echo\":true,\"n\":2",
                                       "\"prompt\":\"ab\",\"return_token_ids\":true,\"echo\":true"};
    struct buf whole, got;
    char body[256];
    int n_refused = 0, n_broken = 0;
    bool is_whole = false;
    buf_init(&whole, 0, MEM_GENERAL);
    buf_init(&got, 0, MEM_GENERAL);
    snprintf(body, sizeof body, "{%s,\"max_tokens\":100,\"temperature\":0,\"ignore_eos\":true}", rest[_i]);
    ck_assert_int_eq(rig_post(URL, body), 200);
    strip(rig_got.body, &whole);
    for (size_t share = 8 << 10; !is_whole; share += 48) {
        mem_account_limit(0, share);
        int status = rig_post(URL, body);
        strip(rig_got.body, &got);
        const char *error = strstr(rig_got.body, "{\"error\":");
        if (error == NULL) {
            ck_assert_int_eq(status, 200);
            ck_assert_msg(got.len == whole.len && memcmp(got.data, whole.data, got.len) == 0, "%s", rig_got.body);
            is_whole = true;
        } else {
            ck_assert_msg(strstr(error, "\"code\":\"request_too_large\"") != NULL, "%s", rig_got.body);
            ck_assert(strstr(rig_got.body, "[DONE]") == NULL && (status == 413 || _i < 2));
            n_broken += status == 200;
            n_refused += status == 413;
        }
        ck_assert_uint_lt(share, 1 << 20);
    }
    mem_account_limit(0, 0);
    /* Only a stream breaks off. One that holds little may go from refused to whole, where its reader keeps up. */
    ck_assert(n_refused > 10 && (n_broken > 0 || _i != 0) && (n_broken == 0 || _i < 2));
    buf_fini(&got);
    buf_fini(&whole);
}
END_TEST

Suite *generation_suite(void)
{
    Suite *s = suite_create("generation");
    TCase *t = tcase_create("generation");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, rig_unserve);
    tcase_add_test(t, a_failed_batch_ends_a_whole_answer_with_its_cause);
    tcase_add_test(t, a_stream_that_broke_off_is_no_success);
    tcase_add_test(t, a_client_that_left_is_no_success);
    tcase_add_test(t, a_lost_back_end_is_told_to_all);
    tcase_add_loop_test(t, out_of_memory_cuts_no_answer_short_in_silence, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
