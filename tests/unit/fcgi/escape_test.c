/* Untrusted text on a terminal. */
#include "fcgi/cmd/escape.h"

#include "engine/base/compiler.h"

#include <check.h>
#include <string.h>

Suite *escape_suite(void);

static void check_printed(void (*print)(FILE *out, const char *s, size_t n), const char *text, size_t n,
                          const char *expected)
{
    char said[256] = "";
    FILE *out = fmemopen(said, sizeof said, "w");
    ck_assert_ptr_nonnull(out);
    print(out, text, n);
    fclose(out);
    ck_assert_str_eq(said, expected);
}

START_TEST(what_acts_on_a_terminal_is_escaped)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {{"plain \xC3\xA4", "plain \xC3\xA4"},
                {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
                {"\x1B[2J", "\\u001b[2J"},
                {"\x7F", "\\u007f"},
                {"\xC2\x9B", "\\u009b"},
                {"\xE2\x80\xAE", "\\u202e"}, /* a change of direction */
                {"\xE2\x81\xA6", "\\u2066"},
                {"\xFFx\xC3", "\\xffx\\xc3"},
                {"a\\b", "a\\\\b"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_printed(escape_print, rows[i].text, strlen(rows[i].text), rows[i].expected);
        check_printed(escape_print_plain, rows[i].text, strlen(rows[i].text), rows[i].expected);
    }
    check_printed(escape_print, "a\0b", 3, "a\\u0000b");
    check_printed(escape_print, "", 0, "");
}
END_TEST

START_TEST(quotes_are_escaped_where_they_end_a_text)
{
    check_printed(escape_print, "\"a\"", 3, "\\\"a\\\"");
    check_printed(escape_print_plain, "\"a\"", 3, "\"a\"");
}
END_TEST

Suite *escape_suite(void)
{
    Suite *s = suite_create("escape");
    TCase *t = tcase_create("escape");
    tcase_add_test(t, what_acts_on_a_terminal_is_escaped);
    tcase_add_test(t, quotes_are_escaped_where_they_end_a_text);
    suite_add_tcase(s, t);
    return s;
}
