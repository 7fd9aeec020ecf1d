/* The table of formats of calls, and which one a template tells. */
#include "engine/chat/chat_format.h"

#include <check.h>
#include <string.h>

Suite *chat_format_suite(void);

START_TEST(templates_tell_their_format)
{
    static const char with[] = "{% if tools %}<tool_call>{% endif %}", without[] = "{{ messages }}";
    ck_assert_str_eq(chat_format_of(with, strlen(with))->name, "hermes");
    ck_assert(!chat_format_of(with, strlen(with))->is_told);
    ck_assert_str_eq(chat_format_of(without, strlen(without))->name, "generic");
    ck_assert(chat_format_of(NULL, 0)->is_told);
}
END_TEST

START_TEST(names_are_known_once)
{
    for (int i = 0; chat_format_at(i) != NULL; i++) {
        ck_assert_str_eq(chat_format_name_at(i), chat_format_at(i)->name);
        for (int k = 0; k < i; k++) {
            ck_assert_str_ne(chat_format_name_at(i), chat_format_name_at(k));
        }
    }
    ck_assert_ptr_null(chat_format_name_at(-1));
}
END_TEST

Suite *chat_format_suite(void)
{
    Suite *s = suite_create("chat_format");
    TCase *t = tcase_create("table");
    tcase_add_test(t, templates_tell_their_format);
    tcase_add_test(t, names_are_known_once);
    suite_add_tcase(s, t);
    return s;
}
