/* Tenants: what the file may say and what is refused by its line, who is who, limits by a clock of the test's own, and what
 * a reload keeps. */
#include "engine/base/mem.h"
#include "fcgi/api/anthropic/anthropic.h"
#include "fcgi/tenant/tenant.h"
#include "tests/support/folder.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

Suite *tenant_suite(void);

static struct err_info info;
static const uint64_t S = 1000000000u;

static void teardown(void) { folder_remove(); }

static enum err load(const char *text)
{
    info = (struct err_info){0};
    return tenant_load(folder_write("tenants", text, strlen(text)), &info);
}

static void load_well(const char *text)
{
    enum err err = load(text);
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
}

static struct tenant *enter(const char *named, const char *key)
{
    struct apikey_id id;
    struct tenant *t = NULL;
    ck_assert_msg(tenant_enter(named, NULL, key, &t, &id), "%s is refused", named != NULL ? named : key);
    return t;
}

static bool may_enter(const char *named, const char *key)
{
    struct apikey_id id;
    struct tenant *t = NULL;
    bool may = tenant_enter(named, NULL, key, &t, &id);
    tenant_leave(&t);
    return may;
}

static struct tenant_report report_of(const char *name)
{
    static struct tenant_report all[64];
    size_t n = tenant_snapshot(NULL, all, 64);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].rules.name, name) == 0) {
            return all[i];
        }
    }
    ck_abort_msg("%s is not known", name);
}

static const char file[] =
    "; all\n[default]\nweight = 2\nrequests-per-minute = 60\nmodels = small, other\n\n"
    "[anna]\nkey = sk-anna\nkey = sk-anna-2\nweight = 8\npriority = high\n"
    "[bert]\nkey = sha256:3adb1d36ce08f9e55f1f38fbd30eab9ac4ec4da1bbc4e6b7b1a3dbf47e1d9c00\n"
    "key = sk-bert\nrequests-per-minute = 0\nmodels = *\ntokens-per-minute=1000\nmax-tokens = 50\n"
    "concurrent = 2\npriority = -7\n";

START_TEST(a_file)
{
    load_well(file);
    struct tenant *a = enter(NULL, "sk-anna-2"), *b = enter(NULL, "sk-bert"), *same = enter("anna", NULL);
    ck_assert_ptr_eq(a, same);
    ck_assert_str_eq(tenant_name(b), "bert");
    struct tenant_rules r = report_of("anna").rules;
    ck_assert_int_eq(r.weight, 8);
    ck_assert_int_eq(r.priority, 10);
    ck_assert_int_eq(r.requests_per_minute, 60);
    ck_assert(tenant_may_use(a, "small") && tenant_may_use(a, "other"));
    ck_assert(!tenant_may_use(a, "smal") && !tenant_may_use(a, "smaller") && !tenant_may_use(a, ""));
    r = report_of("bert").rules;
    ck_assert_int_eq(r.weight, 2);
    ck_assert_int_eq(r.priority, -7);
    ck_assert_int_eq(r.requests_per_minute, 0);
    ck_assert_int_eq(r.tokens_per_minute, 1000);
    ck_assert_int_eq(tenant_max_tokens(b), 50);
    ck_assert(tenant_may_use(b, "any"));
    ck_assert(!may_enter(NULL, "sk-none") && !may_enter(NULL, NULL) && !may_enter("", NULL));
    tenant_leave(&a);
    tenant_leave(&b);
    tenant_leave(&same);
}
END_TEST

/* Of "abc" [FIPS 180-2, appendix B.1]. */
START_TEST(a_key_by_its_digest)
{
    load_well("[a]\nkey = sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n");
    ck_assert(may_enter(NULL, "abc"));
    ck_assert(!may_enter(NULL, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}
END_TEST

START_TEST(bad_lines)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"weight = 1\n", "line 1: expected [name]"},
        {"[a]\n\nsk-secret\n", "line 3: expected `name = value`"},
        {"[a]\nweight = 0\n", "line 2: expected weight of 1 to 1000"},
        {"[a]\nweight = 1001\n", "line 2"},
        {"[a]\nweight = 1.5\n", "line 2"},
        {"[a]\npriority = urgent\n", "line 2: expected priority of -100 to 100, or high, normal or low"},
        {"[a]\nconcurrent = -1\n", "line 2"},
        {"[a]\ncolour = red\n", "line 2: expected key, weight"},
        {"[a]\nkey = \n", "line 2: expected a key"},
        {"[a]\nkey = sk-secret two\n", "line 2: expected a key"},
        {"[a]\nkey = sha256:12\n", "line 2: expected a key"},
        {"[a]\nkey = sk-secret\n[b]\nkey = sk-secret\n", "line 4: expected each key once"},
        {"[a]\n[b]\n[a]\n", "line 3: expected each tenant once"},
        {"[default]\n[default]\n", "line 2: expected [default] once"},
        {"[default]\nkey = sk-secret\n", "line 2: expected no key"},
        {"[a b]\n", "line 1: expected a name"},
        {"[]\n", "line 1"},
        {"[a\n", "line 1"},
        {"[a]\nmodels = ,\n", "line 2: expected names of models"},
    };
    load_well(file);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_msg(load(bad[i].text) == ERR_CONFIG, "case %zu is taken", i);
        ck_assert_msg(strstr(info.text, bad[i].says) != NULL && strstr(info.text, "/tenants") != NULL, "case %zu: %s",
                      i, info.text);
        ck_assert_msg(strstr(info.text, "secret") == NULL, "a key is shown: %s", info.text);
    }
    ck_assert_int_eq(tenant_load(folder_file("absent"), &info), ERR_CONFIG);
    ck_assert(may_enter(NULL, "sk-anna") && !may_enter(NULL, "sk-secret"));
    ck_assert_int_eq(report_of("anna").rules.weight, 8);
}
END_TEST

START_TEST(who_is_who)
{
    struct tenant *t = enter(NULL, NULL); /* no file, no key */
    ck_assert_str_eq(tenant_name(t), "anonymous");
    tenant_leave(&t);
    ck_assert_int_eq(apikey_load(folder_write("keys", "abc\nsk-anna\n", 12), &info), ERR_OK);
    load_well(file);
    t = enter(NULL, "abc");
    ck_assert_str_eq(tenant_name(t), "key-ba7816bf8f01");
    tenant_leave(&t);
    t = enter(NULL, "sk-anna"); /* in both */
    ck_assert_str_eq(tenant_name(t), "anna");
    tenant_leave(&t);
    t = enter("new \"one\"\n", NULL);
    ck_assert_str_eq(tenant_name(t), "new__one__");
    ck_assert_int_eq(report_of("new__one__").rules.weight, 2);
    tenant_leave(&t);
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    ck_assert(!may_enter(long_name, NULL));
    struct apikey_id by_name, by_key;
    ck_assert(tenant_enter("anna", NULL, NULL, &t, &by_name));
    tenant_leave(&t);
    ck_assert(tenant_enter(NULL, NULL, "sk-anna-2", &t, &by_key));
    tenant_leave(&t);
    ck_assert_mem_eq(by_name.bytes, by_key.bytes, sizeof by_name.bytes); /* its cache, its responses */
}
END_TEST

static int begin_at(struct tenant *t, struct tenant_request *r, uint64_t now)
{
    int wait = 0;
    enum err err = tenant_begin(t, r, now, &wait, &info);
    ck_assert(err == ERR_OK || (err == ERR_RATE_LIMIT && wait > 0));
    return wait;
}

START_TEST(limits)
{
    static const struct tenant_use some = {.prompt = 600, .cached = 100, .completion = 50, .computed = 550};
    struct tenant_request r[3] = {{0}};
    load_well("[t]\nrequests-per-minute = 6\ntokens-per-minute = 1200\nconcurrent = 2\n");
    uint64_t now = 1u << 30;
    now = now * 1000000; /* after the clock of the load */
    struct tenant *t = enter("t", NULL);
    int wait = -1;
    ck_assert_int_eq(begin_at(t, &r[0], now), 0);
    ck_assert_int_eq(tenant_reserve(t, &r[0], 600, now, &wait, &info), ERR_OK);
    ck_assert_int_eq(begin_at(t, &r[1], now), 0);
    ck_assert_int_eq(tenant_reserve(t, &r[1], 1201, now, &wait, &info), ERR_RATE_LIMIT);
    ck_assert_int_eq(wait, 0); /* never */
    ck_assert_int_eq(tenant_reserve(t, &r[1], 700, now, &wait, &info), ERR_RATE_LIMIT);
    ck_assert_int_eq(wait, 5); /* 100 are missing of 20 a second */
    ck_assert_int_ne(begin_at(t, &r[2], now), 0);
    ck_assert_msg(strstr(info.text, "2 requests in progress") != NULL, "%s", info.text);
    now += 2 * S;
    tenant_end(t, &r[0], &some, now); /* 50 less than were reserved */
    ck_assert_double_eq_tol(report_of("t").rules.tokens_per_minute - 1200, 0, 1e-9);
    ck_assert_int_eq(tenant_reserve(t, &r[1], 690, now, &wait, &info), ERR_OK);
    ck_assert_int_ne(begin_at(t, &r[0], now), 0); /* no token is there */
    ck_assert_msg(strstr(info.text, "tokens a minute") != NULL, "%s", info.text);
    tenant_end(t, &r[1], &(struct tenant_use){0}, now); /* it came to nothing */
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(begin_at(t, &r[0], now), 0);
        tenant_end(t, &r[0], &(struct tenant_use){0}, now);
    }
    ck_assert_int_eq(begin_at(t, &r[0], now), 10 - 2); /* six a minute */
    ck_assert_int_eq(begin_at(t, &r[0], now + 8 * S), 0);
    ck_assert_int_ne(begin_at(t, &r[1], now + 8 * S), 0);
    struct tenant_report is = report_of("t");
    ck_assert_uint_eq(is.counts.requests, 7);
    ck_assert_uint_eq(is.counts.refused, 6);
    ck_assert_uint_eq(is.counts.prompt_tokens, 600);
    ck_assert_uint_eq(is.counts.cached_tokens, 100);
    ck_assert_uint_eq(is.counts.completion_tokens, 50);
    ck_assert_int_eq(is.n_active, 1);
    tenant_leave(&t);
}
END_TEST

START_TEST(headers)
{
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    load_well("[t]\nrequests-per-minute = 6\ntokens-per-minute = 1200\n[u]\n");
    struct tenant *t = enter("t", NULL), *u = enter("u", NULL);
    tenant_write_headers(u, &tenant_headers_openai, &out);
    ck_assert_uint_eq(out.len, 0);
    tenant_write_headers(t, &tenant_headers_openai, &out);
    ck_assert_str_eq(out.data, "x-ratelimit-limit-requests: 6\r\nx-ratelimit-remaining-requests: 6\r\n"
                               "x-ratelimit-reset-requests: 0ms\r\nx-ratelimit-limit-tokens: 1200\r\n"
                               "x-ratelimit-remaining-tokens: 1200\r\nx-ratelimit-reset-tokens: 0ms\r\n");
    buf_reset(&out);
    tenant_write_headers(t, dialect_anthropic.limits, &out);
    ck_assert_msg(strncmp(out.data,
                          "anthropic-ratelimit-requests-limit: 6\r\nanthropic-ratelimit-requests-remaining: 6\r\n"
                          "anthropic-ratelimit-requests-reset: 20",
                          118) == 0,
                  "%s", out.data);
    buf_fini(&out);
    tenant_leave(&t);
    tenant_leave(&u);
}
END_TEST

START_TEST(a_reload_keeps_what_was_taken)
{
    struct tenant_request r = {0};
    load_well("[t]\nrequests-per-minute = 60000\n");
    struct tenant *t = enter("t", NULL);
    ck_assert_int_eq(begin_at(t, &r, 1), 0);
    load_well("[u]\n[default]\nweight = 3\n"); /* it is gone from the file, and its request goes on */
    ck_assert_int_eq(report_of("t").rules.weight, 3);
    ck_assert_int_eq(report_of("t").n_active, 1);
    ck_assert(!report_of("t").has_section && report_of("u").has_section);
    tenant_end(t, &r, &(struct tenant_use){.prompt = 5}, 2);
    ck_assert_uint_eq(report_of("t").counts.prompt_tokens, 5);
    tenant_leave(&t);
}
END_TEST

START_TEST(many_without_section)
{
    static struct tenant_report all[TENANT_MAX_UNNAMED + 10];
    struct tenant *held[TENANT_MAX_UNNAMED];
    for (int i = 0; i < 3 * TENANT_MAX_UNNAMED; i++) {
        char name[32];
        struct tenant_request r = {0};
        snprintf(name, sizeof name, "n%d", i);
        struct tenant *t = enter(name, NULL);
        ck_assert_str_eq(tenant_name(t), name);
        ck_assert_int_eq(begin_at(t, &r, 1), 0);
        tenant_end(t, &r, &(struct tenant_use){.prompt = 1}, 2);
        tenant_leave(&t);
    }
    size_t n = tenant_snapshot(NULL, all, ARRAY_LEN(all));
    ck_assert_uint_eq(n, TENANT_MAX_UNNAMED + 1);
    ck_assert_str_eq(all[0].rules.name, "other");
    ck_assert_uint_eq(all[0].counts.prompt_tokens, 2 * TENANT_MAX_UNNAMED);
    for (int i = 0; i < TENANT_MAX_UNNAMED; i++) {
        char name[32];
        snprintf(name, sizeof name, "m%d", i);
        held[i] = enter(name, NULL);
    }
    struct tenant *t = enter("one more", NULL);
    ck_assert_str_eq(tenant_name(t), "other");
    tenant_leave(&t);
    for (int i = 0; i < TENANT_MAX_UNNAMED; i++) {
        tenant_leave(&held[i]);
    }
}
END_TEST

START_TEST(failed_allocations)
{
    load_well(file);
    for (long n = 0;; n++) {
        mem_fail_at(n);
        enum err err = load("[a]\nkey = sk-a\n");
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        if (!fired) {
            ck_assert_int_eq(err, ERR_OK);
            break;
        }
        ck_assert(err == ERR_OK || may_enter(NULL, "sk-anna")); /* a tenant may be made later */
        ck_assert_int_lt(n, 50);
        load_well(file);
    }
}
END_TEST

Suite *tenant_suite(void)
{
    Suite *s = suite_create("tenant");
    TCase *t = tcase_create("tenant");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, a_file);
    tcase_add_test(t, a_key_by_its_digest);
    tcase_add_test(t, bad_lines);
    tcase_add_test(t, who_is_who);
    tcase_add_test(t, limits);
    tcase_add_test(t, headers);
    tcase_add_test(t, a_reload_keeps_what_was_taken);
    tcase_add_test(t, many_without_section);
    tcase_add_test(t, failed_allocations);
    suite_add_tcase(s, t);
    return s;
}
