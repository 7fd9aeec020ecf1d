/* Keys from a file: what counts as one, what is refused, and what a reload keeps. */
#include "fcgi/tenant/apikey.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *apikey_suite(void);

static struct err_info info;
static struct apikey_id id; /* of the last check; the thread below has its own */

static void teardown(void) { folder_remove(); }

static enum err load_n(const char *text, size_t n)
{
    info = (struct err_info){0};
    return apikey_load(folder_write("keys", text, n), &info);
}

static enum err load(const char *text) { return load_n(text, strlen(text)); }

static bool is_bearer(const char *key, struct apikey_id *out)
{
    char header[1024];
    snprintf(header, sizeof header, "Bearer %s", key);
    return apikey_check(header, NULL, out);
}

static bool bearer(const char *key) { return is_bearer(key, &id); }

START_TEST(without_keys_all_may_pass)
{
    ck_assert(apikey_check(NULL, NULL, &id));
    ck_assert(apikey_check("Bearer x", "y", &id));
}
END_TEST

START_TEST(comments_blank_lines_and_line_ends)
{
    ck_assert_int_eq(load("# sk-comment\r\n\r\n  sk-one  \r\n\t\n\tsk-two\n#sk-three\nsk-last"), ERR_OK);
    ck_assert(bearer("sk-one") && bearer("sk-two") && bearer("sk-last"));
    static const char *const wrong[] = {"",         "sk-comment", "# sk-comment",  "sk-three", "#sk-three",
                                        "sk-on",    "sk-onee",    "SK-ONE",        "sk-one ",  "sk-one\r",
                                        "sk-two\n", "sk-",        "sk-one,sk-two", "sk-lasT",  "k-one"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        ck_assert_msg(!bearer(wrong[i]), "'%s' passed", wrong[i]);
        ck_assert_msg(!apikey_check(NULL, wrong[i], &id), "'%s' passed as x-api-key", wrong[i]);
    }
}
END_TEST

START_TEST(headers)
{
    ck_assert_int_eq(load("sk-one\n"), ERR_OK);
    ck_assert(!apikey_check(NULL, NULL, &id));
    ck_assert(!apikey_check("", "", &id));
    ck_assert(!apikey_check("sk-one", NULL, &id));
    ck_assert(!apikey_check("Basic sk-one", NULL, &id));
    ck_assert(!apikey_check("Bearer", NULL, &id));
    ck_assert(!apikey_check("Bearersk-one", NULL, &id));
    ck_assert(apikey_check("bearer sk-one", NULL, &id));   /* schemes have no case [RFC 9110, 11.1] */
    ck_assert(apikey_check("Bearer   sk-one", NULL, &id)); /* one or more spaces [RFC 6750, 2.1] */
    ck_assert(apikey_check(NULL, "sk-one", &id));
    ck_assert(apikey_check("Bearer wrong", "sk-one", &id));
    ck_assert(apikey_check("Bearer sk-one", "wrong", &id));
    char key[2000];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    ck_assert(!apikey_check(NULL, key, &id));
}
END_TEST

START_TEST(long_keys)
{
    char text[600];
    memset(text, 'k', sizeof text);
    text[512] = '\0';
    ck_assert_int_eq(load(text), ERR_OK);
    ck_assert(bearer(text));
    text[511] = 'x';
    ck_assert(!bearer(text)); /* the last byte counts */
    text[511] = '\0';
    ck_assert(!bearer(text));
    memset(text, 'k', sizeof text);
    text[513] = '\0';
    ck_assert_int_eq(load(text), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "line 1") != NULL, "%s", info.text);
}
END_TEST

/* UTF-16 would fall apart into keys of one letter, a key with a comment after it could never match. */
START_TEST(what_cannot_be_a_key_is_refused_with_its_line)
{
    static const struct {
        const char *text;
        size_t n;
    } bad[] = {{"sk-ok\ns\0k\0-\0o\0", 14},
               {"sk-ok\n\0\n", 8},
               {"sk-ok\nsk-two # two\n", 19},
               {"sk-ok\n\x01k\n", 9},
               {"sk-ok\nschl\xC3\xBCssel\n", 17}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_msg(load_n(bad[i].text, bad[i].n) == ERR_CONFIG, "case %zu is taken", i);
        ck_assert_msg(strstr(info.text, "line 2") != NULL, "case %zu: %s", i, info.text);
        ck_assert_msg(strstr(info.text, "sk-") == NULL && strstr(info.text, "schl") == NULL, "a key is shown: %s",
                      info.text);
    }
    ck_assert(apikey_check(NULL, NULL, &id)); /* nothing was loaded */
}
END_TEST

START_TEST(a_reload_replaces_all_or_nothing)
{
    static char big[(1 << 20) + 1];
    memset(big, 'k', sizeof big);
    ck_assert_int_eq(load("sk-old\nsk-both\n"), ERR_OK);
    ck_assert_int_eq(load("# none\n\n"), ERR_CONFIG);
    ck_assert_int_eq(load(""), ERR_CONFIG);
    ck_assert_int_eq(apikey_load(folder_file("absent"), &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "api-key-file: ") != NULL && strstr(info.text, folder_file("absent")) != NULL, "%s",
                  info.text);
    ck_assert_int_ne(apikey_load(folder_path(), &info), ERR_OK);
    ck_assert_int_ne(load_n(big, sizeof big), ERR_OK);
    ck_assert(bearer("sk-old") && bearer("sk-both"));
    ck_assert_int_eq(load("sk-both\nsk-new\n"), ERR_OK);
    ck_assert(!bearer("sk-old"));
    ck_assert(bearer("sk-both") && bearer("sk-new"));
}
END_TEST

START_TEST(a_full_file_loses_no_key)
{
    static char text[1 << 20];
    for (size_t i = 0; i < sizeof text; i += 16) { /* the last line has no end */
        char line[17];
        snprintf(line, sizeof line, "%015zu\n", i);
        memcpy(text + i, line, 16);
    }
    text[sizeof text - 1] = 'z';
    enum err err = load_n(text, sizeof text);
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
    ck_assert(bearer("000000000000000"));
    ck_assert(bearer("000000001048560z"));
    ck_assert(!bearer("000000001048560"));
}
END_TEST

/* The salt of a key that passed, with what its client gives. */
static const char *salt_of(const char *key, const char *own, char text[APIKEY_SALT_BYTES])
{
    ck_assert_msg(bearer(key), "'%s' was refused", key);
    return apikey_salt(&id, own, text);
}

START_TEST(each_key_has_a_salt_of_its_own)
{
    char one[APIKEY_SALT_BYTES], two[APIKEY_SALT_BYTES], long_own[APIKEY_OWN_SALT_BYTES + 1];
    ck_assert(bearer("sk-any") && !id.is_set); /* without keys the client's salt stands alone */
    ck_assert_ptr_null(apikey_salt(&id, NULL, one));
    ck_assert_str_eq(apikey_salt(&id, "own", one), "own");
    ck_assert_uint_eq(apikey_number(&id), 0);
    ck_assert_int_eq(load("sk-one\nsk-two\n"), ERR_OK);
    ck_assert_str_ne(salt_of("sk-one", NULL, one), salt_of("sk-two", NULL, two));
    ck_assert_str_ne(salt_of("sk-one", "a", one), salt_of("sk-two", "a", two));
    ck_assert_str_ne(salt_of("sk-one", "a", one), salt_of("sk-one", "b", two));
    ck_assert_str_ne(salt_of("sk-one", "", one), salt_of("sk-one", NULL, two));
    ck_assert_ptr_null(strstr(salt_of("sk-one", NULL, one), "sk-one"));
    ck_assert_str_ne(salt_of("sk-one", salt_of("sk-two", NULL, two), one), two); /* nobody can give another's */
    memset(long_own, 'x', sizeof long_own - 1);
    long_own[sizeof long_own - 1] = '\0';
    ck_assert_uint_eq(strlen(salt_of("sk-one", long_own, one)), APIKEY_SALT_BYTES - 1);
    (void)salt_of("sk-two", "a", two);
    uint64_t number = apikey_number(&id);
    ck_assert_uint_ne(number, 0);
    ck_assert_int_eq(load("# moved\nsk-new\n\nsk-two\n"), ERR_OK); /* and keeps it */
    ck_assert_str_eq(salt_of("sk-two", "a", one), two);
    ck_assert_uint_eq(apikey_number(&id), number);
    ck_assert(apikey_check("Bearer sk-wrong", "sk-two", &id) && apikey_number(&id) == number);
    ck_assert(!apikey_check("Bearer sk-one", NULL, &id) && !id.is_set);
}
END_TEST

static atomic_int n_refused;
static atomic_bool is_over;

static void *ask(void *arg)
{
    (void)arg;
    while (!atomic_load(&is_over)) {
        struct apikey_id own;
        atomic_fetch_add(&n_refused, !is_bearer("sk-both", &own) || !own.is_set || is_bearer("sk-wrong", &own));
    }
    return NULL;
}

START_TEST(checks_and_reloads_at_once)
{
    static const char *const texts[] = {"sk-both\nsk-a\n", "sk-b\nsk-both\nsk-c\n"};
    ck_assert_int_eq(load(texts[0]), ERR_OK);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, ask, NULL), 0);
    for (int i = 0; i < 200; i++) {
        if (load(texts[i % 2]) != ERR_OK) {
            ck_abort_msg("reload %d failed", i);
        }
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    ck_assert_int_eq(atomic_load(&n_refused), 0);
}
END_TEST

Suite *apikey_suite(void)
{
    Suite *s = suite_create("apikey");
    TCase *t = tcase_create("apikey");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, without_keys_all_may_pass);
    tcase_add_test(t, comments_blank_lines_and_line_ends);
    tcase_add_test(t, headers);
    tcase_add_test(t, long_keys);
    tcase_add_test(t, what_cannot_be_a_key_is_refused_with_its_line);
    tcase_add_test(t, each_key_has_a_salt_of_its_own);
    tcase_add_test(t, a_reload_replaces_all_or_nothing);
    tcase_add_test(t, a_full_file_loses_no_key);
    tcase_add_test(t, checks_and_reloads_at_once);
    suite_add_tcase(s, t);
    return s;
}
