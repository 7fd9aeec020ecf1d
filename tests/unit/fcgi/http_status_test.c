/* Each error has a status and a type, and only the server's own are 500. */
#include "fcgi/wire/http_status.h"

#include <check.h>
#include <string.h>

Suite *http_status_suite(void);

START_TEST(every_error_has_a_status_and_a_type)
{
    for (int i = 0; i < ERR_COUNT; i++) {
        enum err e = (enum err)i;
        ck_assert_ptr_nonnull(http_status_type(e));
        ck_assert_msg(http_status(e) >= 200 && http_status(e) < 600, "%s: %d", err_code(e), http_status(e));
        bool is_server = strcmp(http_status_type(e), "server_error") == 0;
        ck_assert_msg(http_status(e) != 500 || is_server, "%s", err_code(e));
    }
    ck_assert_int_eq(http_status(ERR_TOO_LARGE), 413);
    ck_assert_int_eq(http_status(ERR_BAD_MAGIC), 500);
    ck_assert_int_eq(http_status((enum err)ERR_COUNT), 500);
    ck_assert_int_eq(http_status((enum err) - 1), 500);
    ck_assert_str_eq(http_status_type(ERR_RATE_LIMIT), "rate_limit_error");
}
END_TEST

Suite *http_status_suite(void)
{
    Suite *s = suite_create("http_status");
    TCase *t = tcase_create("table");
    tcase_add_test(t, every_error_has_a_status_and_a_type);
    suite_add_tcase(s, t);
    return s;
}
