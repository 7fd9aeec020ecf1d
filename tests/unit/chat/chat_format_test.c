/* The table of formats of calls, and which one a template tells. */
#include "engine/chat/chat_format.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *chat_format_suite(void);

START_TEST(templates_tell_their_format)
{
    static const char with[] = "{% if tools %}<tool_call>{% endif %}", without[] = "{{ messages }}";
    ck_assert_str_eq(chat_format_of(with, strlen(with))->name, "hermes");
    ck_assert(!chat_format_of(with, strlen(with))->lists_tools);
    ck_assert_str_eq(chat_format_of(without, strlen(without))->name, "generic");
    ck_assert(chat_format_of(NULL, 0)->lists_tools);
}
END_TEST

/* Every row's sign tells it, after what others have in common. */
START_TEST(signs_tell_their_row)
{
    char source[256];
    const struct chat_format *row;
    for (int i = 0; (row = chat_format_at(i)) != NULL; i++) {
        snprintf(source, sizeof source, "{%% if tools %%}<think><tool_call>%s{%% endif %%}",
                 row->signs[0] != NULL ? row->signs[0] : "");
        const char *told = chat_format_of(source, strlen(source))->name;
        ck_assert_str_eq(told, row->signs[0] != NULL ? row->name : "hermes");
        ck_assert_ptr_eq(chat_format_named(row->name), row);
        bool has_open = row->open[0] != '\0' || row->body == CHAT_BODY_CHANNELS;
        ck_assert_msg(has_open && row->call[0] != '\0' && row->think[0] != '\0' && row->think_end[0] != '\0', "%s",
                      row->name);
    }
    ck_assert_ptr_null(chat_format_named("none"));
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
    tcase_add_test(t, signs_tell_their_row);
    tcase_add_test(t, names_are_known_once);
    suite_add_tcase(s, t);
    return s;
}
