/* Which addresses are one client. */
#include "engine/base/compiler.h"
#include "fcgi/tenant/client_address.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>

Suite *client_address_suite(void);

START_TEST(addresses_are_told_apart)
{
    static const struct {
        const char *a, *b;
        bool is_same;
    } cases[] = {
        {"127.0.0.1", "127.0.0.1", true},
        {"127.0.0.1", "127.0.0.2", false},
        {"192.0.2.1", "::ffff:192.0.2.1", true},
        {"192.0.2.1", "::192.0.2.1", false},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
        {"2001:db8:1:2::1", "2001:DB8:0001:2::77", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"::1", "127.0.0.1", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t a = client_address_key(cases[i].a), b = client_address_key(cases[i].b);
        ck_assert(a != 0 && b != 0 && a % 2 == 0 && b % 2 == 0);
        ck_assert_msg((a == b) == cases[i].is_same, "%s and %s", cases[i].a, cases[i].b);
    }
}
END_TEST

START_TEST(what_is_no_address_is_nobodys)
{
    static const char *const none[] = {NULL, "", "unix:", "localhost", "1.2.3", "1.2.3.4.5", "::g", "127.0.0.1:80"};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        ck_assert_uint_eq(client_address_key(none[i]), 0);
    }
}
END_TEST

Suite *client_address_suite(void)
{
    Suite *s = suite_create("client_address");
    TCase *c = tcase_create("client_address");
    tcase_add_test(c, addresses_are_told_apart);
    tcase_add_test(c, what_is_no_address_is_nobodys);
    suite_add_tcase(s, c);
    return s;
}
