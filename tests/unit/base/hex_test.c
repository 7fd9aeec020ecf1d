#include "engine/base/hex.h"

#include <check.h>
#include <limits.h>
#include <string.h>

Suite *hex_suite(void);

START_TEST(each_char_is_a_digit_or_none)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    for (int i = CHAR_MIN; i <= CHAR_MAX; i++) {
        char c = (char)i;
        const char *in_lower = c != '\0' ? strchr(lower, c) : NULL, *in_upper = c != '\0' ? strchr(upper, c) : NULL;
        int value = in_lower != NULL ? (int)(in_lower - lower) : in_upper != NULL ? (int)(in_upper - upper) : -1;
        ck_assert_int_eq(hex_value(c), value);
    }
    for (unsigned i = 0; i < 32; i++) {
        ck_assert_int_eq(hex_digit(i), lower[i % 16]);
    }
}
END_TEST

Suite *hex_suite(void)
{
    Suite *s = suite_create("hex");
    TCase *c = tcase_create("hex");
    tcase_add_test(c, each_char_is_a_digit_or_none);
    suite_add_tcase(s, c);
    return s;
}
