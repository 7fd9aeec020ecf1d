/* The error table and the messages: complete, cut at UTF-8 borders, printable whatever they quote. */
#include "engine/base/err.h"

#include "engine/base/utf8.h"

#include <check.h>
#include <string.h>

Suite *err_suite(void);

START_TEST(every_row_is_complete)
{
    for (int i = 0; i < ERR_COUNT; i++) {
        enum err e = (enum err)i;
        ck_assert_msg(err_code(e) != NULL && strlen(err_code(e)) > 1, "row %d has no code", i);
        ck_assert_msg(err_text(e) != NULL && strlen(err_text(e)) > 1, "row %d has no text", i);
        ck_assert_msg(strspn(err_code(e), "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(err_code(e)), "%s",
                      err_code(e));
        ck_assert_ptr_null(strchr(err_text(e), '\n'));
    }
    ck_assert_int_eq(ERR_OK, 0);
    ck_assert_str_eq(err_code(ERR_INVALID_JSON), "invalid_json");
    ck_assert_str_eq(err_code((enum err)ERR_COUNT), "internal_error");
    ck_assert_str_eq(err_code((enum err) - 1), "internal_error");
}
END_TEST

START_TEST(err_set_fills_what_it_is_given)
{
    struct err_info info = {0};
    ck_assert_int_eq(err_set(&info, ERR_INVALID_VALUE, "messages[0].role", "expected %s, found %d", "a role", 7),
                     ERR_INVALID_VALUE);
    ck_assert_int_eq(info.code, ERR_INVALID_VALUE);
    ck_assert_str_eq(info.where, "messages[0].role");
    ck_assert_str_eq(info.text, "expected a role, found 7");
    ck_assert_uint_eq(info.offset, ERR_NO_OFFSET);
    ck_assert_int_eq(err_set_at(&info, ERR_BAD_KEY, 99, "here"), ERR_BAD_KEY);
    ck_assert_uint_eq(info.offset, 99);
    ck_assert_str_eq(info.where, ""); /* nothing is left of the message before */
    ck_assert_str_eq(info.text, "here");
    ck_assert_int_eq(err_set(NULL, ERR_IO, "x", "y"), ERR_IO);
    ck_assert_int_eq(err_set_at(NULL, ERR_IO, 1, "y"), ERR_IO);
}
END_TEST

START_TEST(long_messages_are_cut_at_a_utf8_border)
{
    char text[2 * ERR_TEXT_BYTES] = "";
    for (size_t shift = 0; shift < 3; shift++) { /* the border falls on each byte of a three-byte sequence */
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3) {
            memcpy(text + i, "\xE2\x82\xAC", 4);
        }
        struct err_info info;
        err_set(&info, ERR_IO, text, "%s", text);
        ck_assert(utf8_valid(info.text, strlen(info.text), NULL));
        ck_assert(utf8_valid(info.where, strlen(info.where), NULL));
        ck_assert_uint_ge(strlen(info.text), ERR_TEXT_BYTES - 4);
        ck_assert_uint_ge(strlen(info.where), ERR_WHERE_BYTES - 4);
        ck_assert_ptr_null(strchr(info.text, '?')); /* cut, not replaced */
    }
}
END_TEST

START_TEST(messages_are_printable)
{
    struct err_info info;
    err_set(&info, ERR_IO, "k\x1B[2J", "a\nb\rc\x7F\x1B[0m \xC2\x9B \xFF\xC3 ok \xC3\xA9 \xE2\x82\xAC");
    ck_assert_str_eq(info.where, "k?[2J");
    ck_assert_str_eq(info.text, "a?b?c??[0m \xC2\xBF ?? ok \xC3\xA9 \xE2\x82\xAC");
}
END_TEST

static enum err forwards(enum err e)
{
    TRY(e);
    return ERR_NONE;
}

START_TEST(try_forwards_failures_only)
{
    ck_assert_int_eq(forwards(ERR_IO), ERR_IO);
    ck_assert_int_eq(forwards(ERR_OK), ERR_NONE);
}
END_TEST

Suite *err_suite(void)
{
    Suite *s = suite_create("err");
    TCase *c = tcase_create("err");
    tcase_add_test(c, every_row_is_complete);
    tcase_add_test(c, err_set_fills_what_it_is_given);
    tcase_add_test(c, long_messages_are_cut_at_a_utf8_border);
    tcase_add_test(c, messages_are_printable);
    tcase_add_test(c, try_forwards_failures_only);
    suite_add_tcase(s, c);
    return s;
}
