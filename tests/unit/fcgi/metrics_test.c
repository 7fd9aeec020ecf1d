/* The exposition as Prometheus reads it: grammar, cumulative buckets, counters that count. */
#include "fcgi/watch/metrics.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *metrics_suite(void);

static struct buf out;

static void setup(void) { buf_init(&out, 0, MEM_GENERAL); }
static void teardown(void)
{
    buf_fini(&out);
    folder_remove();
}

static const char *const routes[] = {"/v1/chat/completions", "/health"};

static void scrape(const struct engine *e)
{
    buf_reset(&out);
    metrics_write(&out, e, routes, ARRAY_LEN(routes));
    ck_assert_int_eq(buf_ok(&out), ERR_OK);
}

/* Value of the sample whose name and labels are `sample`; NaN when there is none. */
static double value(const char *sample)
{
    size_t n = strlen(sample);
    for (const char *line = out.data; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, sample, n) == 0 && line[n] == ' ') {
            return strtod(line + n + 1, NULL);
        }
    }
    return NAN;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(isalpha((unsigned char)s[i]) || s[i] == '_' || s[i] == ':' || (i > 0 && isdigit((unsigned char)s[i])))) {
            return false;
        }
    }
    return n > 0;
}

/* Every sample stands under the HELP and TYPE of its family, families stand once, values are numbers. */
static int check_grammar(void)
{
    char family[128] = "", type[32] = "", seen[8192] = "";
    int n_samples = 0;
    ck_assert_int_eq(out.data[out.len - 1], '\n');
    for (char *line = out.data, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        if (strncmp(line, "# HELP ", 7) == 0) {
            char padded[160];
            ck_assert(sscanf(line + 7, "%127s", family) == 1);
            ck_assert_msg(strlen(line) > 8 + strlen(family), "no help: %s", line);
            snprintf(padded, sizeof padded, " %s ", family);
            ck_assert_msg(strstr(seen, padded) == NULL, "%s stands twice", family);
            strncat(seen, padded, sizeof seen - strlen(seen) - 1);
            type[0] = '\0';
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            char name[128];
            ck_assert(sscanf(line + 7, "%127s %31s", name, type) == 2);
            ck_assert_str_eq(name, family);
            ck_assert_msg(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0 || strcmp(type, "histogram") == 0,
                          "%s", line);
            bool is_total = strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0;
            ck_assert_msg(is_total == (strcmp(type, "counter") == 0), "a counter ends in _total: %s", line);
        } else {
            size_t n = strcspn(line, "{ "), n_family = strlen(family);
            ck_assert_msg(is_name(line, n), "%s", line);
            ck_assert_msg(n >= n_family && strncmp(line, family, n_family) == 0 && type[0] != '\0', "%s under %s", line,
                          family);
            ck_assert_msg(n == n_family || strcmp(type, "histogram") == 0, "%s under %s", line, family);
            char *number = strrchr(line, ' ') + 1, *rest;
            double v = strtod(number, &rest);
            ck_assert_msg(*number != '\0' && *rest == '\0' && isfinite(v) && v >= 0, "%s", line);
            n_samples++;
        }
        *end = '\n';
    }
    return n_samples;
}

START_TEST(the_text_is_an_exposition)
{
    scrape(NULL);
    int without = check_grammar();
    ck_assert(value("infcgi_up") == 0);
    ck_assert(isnan(value("infcgi_steps_total")));
    struct engine *e = rig_engine();
    scrape(e);
    ck_assert_int_gt(check_grammar(), without + 10);
    ck_assert(value("infcgi_up") == 1);
    ck_assert(value("infcgi_kv_pages") > 0);
    ck_assert(value("infcgi_kv_pages_used") == 0);
    ck_assert(value("infcgi_generated_tokens_total") == 0);
    ck_assert(value("infcgi_draft_tokens_total{source=\"forced\",position=\"1\"}") == 0);
    ck_assert(value("infcgi_draft_tokens_total{source=\"model\",position=\"8+\"}") == 0);
    ck_assert(value("infcgi_draft_accepted_tokens_total{source=\"head\",position=\"7\"}") == 0);
    ck_assert(isnan(value("infcgi_draft_tokens_total{source=\"head\",position=\"9\"}")));
    ck_assert(value("infcgi_sequences_waiting{reason=\"seat\"}") == 0);
    ck_assert(value("infcgi_wait_seconds_total{reason=\"reader\"}") == 0);
    engine_close(&e);
}
END_TEST

START_TEST(memory_of_a_device_is_shown_by_purpose)
{
    static const size_t room = (size_t)1 << 40;
    faulty_backend_shrink(room, room);
    struct engine *e = rig_engine();
    scrape(e);
    (void)check_grammar();
    const struct engine_model_info *m = engine_model(e);
    ck_assert_uint_gt(m->weight_bytes, 0);
    ck_assert(value("infcgi_device_memory_bytes{device=\"7\",purpose=\"weights\"}") == (double)m->weight_bytes);
    ck_assert(value("infcgi_device_memory_bytes{device=\"7\",purpose=\"kv\"}") == (double)m->kv_bytes);
    ck_assert(value("infcgi_device_memory_bytes{device=\"7\",purpose=\"states\"}") == 0);
    ck_assert(value("infcgi_device_memory_bytes{device=\"7\",purpose=\"activations\"}") ==
              0); /* these are the host's there */
    engine_close(&e);
    faulty_backend_shrink(0, 0);
    e = rig_engine();
    scrape(e);
    ck_assert(value("infcgi_device_memory_bytes{purpose=\"weights\"}") == 0); /* there is none */
    engine_close(&e);
}
END_TEST

START_TEST(buckets_are_cumulative)
{
    static const double seconds[] = {0, 0.001, 0.0011, 0.005, 0.3, 0.3, 640, 640.001, 1e6};
    double sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(seconds); i++) {
        metrics_observe(METRIC_TTFT, seconds[i]);
        sum += seconds[i];
    }
    scrape(NULL);
    check_grammar();
#define TTFT "infcgi_time_to_first_token_seconds"
    ck_assert(value(TTFT "_bucket{le=\"0.001\"}") == 2); /* a bound belongs to its bucket */
    ck_assert(value(TTFT "_bucket{le=\"0.005\"}") == 4);
    ck_assert(value(TTFT "_bucket{le=\"0.25\"}") == 4);
    ck_assert(value(TTFT "_bucket{le=\"0.5\"}") == 6);
    ck_assert(value(TTFT "_bucket{le=\"160\"}") == 6);
    ck_assert(value(TTFT "_bucket{le=\"640\"}") == 7);
    ck_assert(value(TTFT "_bucket{le=\"+Inf\"}") == 9);
    ck_assert(value(TTFT "_count") == 9);
    ck_assert_double_eq_tol(value(TTFT "_sum"), sum, 1e-3);
    ck_assert(value("infcgi_queue_time_seconds_count") == 0);
    double last_bound = -1, last_count = 0;
    int n = 0;
    for (const char *p = out.data; (p = strstr(p, TTFT "_bucket{le=\"")) != NULL; n++) {
        p += strlen(TTFT "_bucket{le=\"");
        double bound = strncmp(p, "+Inf", 4) == 0 ? INFINITY : strtod(p, NULL), count = strtod(strchr(p, ' '), NULL);
        ck_assert_msg(bound > last_bound && count >= last_count, "bucket %g with %g", bound, count);
        last_bound = bound;
        last_count = count;
    }
    ck_assert_int_eq(n, 22);
#undef TTFT
}
END_TEST

START_TEST(odd_durations_spoil_no_sum)
{
    metrics_observe(METRIC_ITL, 0.5);
    metrics_observe(METRIC_ITL, -1); /* a clock that went back */
    metrics_observe(METRIC_ITL, NAN);
    scrape(NULL);
    check_grammar();
    ck_assert(value("infcgi_inter_token_latency_seconds_count") == 3);
    ck_assert_double_eq_tol(value("infcgi_inter_token_latency_seconds_sum"), 0.5, 1e-6);
}
END_TEST

START_TEST(requests_are_counted_by_endpoint_and_class)
{
    metrics_count_request(0, 200, ERR_OK);
    metrics_count_request(0, 200, ERR_OK);
    metrics_count_request(0, 404, ERR_UNKNOWN_URL);
    metrics_count_request(0, 499, ERR_CANCELLED);
    metrics_count_request(1, 503, ERR_OVERLOADED);
    metrics_count_request(-1, 200, ERR_OK);                 /* no route */
    metrics_count_request(METRICS_MAX_ROUTES, 200, ERR_OK); /* beyond the table */
    metrics_count_request(0, 0, ERR_OK);                    /* nothing was sent */
    metrics_count_request(0, 700, ERR_OK);
    scrape(NULL);
    check_grammar();
    ck_assert(value("infcgi_requests_total{endpoint=\"/v1/chat/completions\",status=\"2xx\"}") == 2);
    ck_assert(value("infcgi_requests_total{endpoint=\"/v1/chat/completions\",status=\"4xx\"}") == 2);
    ck_assert(value("infcgi_requests_total{endpoint=\"/health\",status=\"5xx\"}") == 1);
    ck_assert(isnan(value("infcgi_requests_total{endpoint=\"/health\",status=\"2xx\"}")));
    ck_assert(isnan(value("infcgi_requests_total{endpoint=\"/v1/chat/completions\",status=\"5xx\"}")));
    ck_assert(value("infcgi_errors_total{code=\"cancelled\"}") == 1);
    ck_assert(isnan(value("infcgi_errors_total{code=\"ok\"}")));
}
END_TEST

START_TEST(failed_batches_are_counted_by_code)
{
    metrics_count_failed_batch(ERR_NOMEM);
    metrics_count_failed_batch(ERR_NOMEM);
    metrics_count_failed_batch(ERR_LOST);
    scrape(NULL);
    check_grammar();
    ck_assert(value("infcgi_failed_batches_total{code=\"out_of_memory\"}") == 2);
    ck_assert(value("infcgi_failed_batches_total{code=\"backend_lost\"}") == 1);
    ck_assert(isnan(value("infcgi_failed_batches_total{code=\"internal_error\"}")));
}
END_TEST

START_TEST(memory_is_shown_by_purpose)
{
    scrape(NULL);
    double before = value("infcgi_memory_bytes{purpose=\"request\"}");
    ck_assert_msg(!isnan(before), "no purpose is called request:\n%s", out.data);
    void *p = mem_alloc(100000, MEM_REQUEST);
    scrape(NULL);
    ck_assert(value("infcgi_memory_bytes{purpose=\"request\"}") >= before + 100000);
    mem_free(p);
    scrape(NULL);
    ck_assert(value("infcgi_memory_bytes{purpose=\"request\"}") == before);
}
END_TEST

Suite *metrics_suite(void)
{
    Suite *s = suite_create("metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_text_is_an_exposition);
    tcase_add_test(t, memory_of_a_device_is_shown_by_purpose);
    tcase_add_test(t, buckets_are_cumulative);
    tcase_add_test(t, odd_durations_spoil_no_sum);
    tcase_add_test(t, requests_are_counted_by_endpoint_and_class);
    tcase_add_test(t, failed_batches_are_counted_by_code);
    tcase_add_test(t, memory_is_shown_by_purpose);
    suite_add_tcase(s, t);
    return s;
}
