/* Lists of words in one text. */
#include "fcgi/ground/words.h"

#include <check.h>

Suite *words_suite(void);

START_TEST(a_word_is_found_whole)
{
    ck_assert(words_have("a", ' ', "a", 1));
    ck_assert(words_have("one two three", ' ', "one", 3));
    ck_assert(words_have("one two three", ' ', "two", 3));
    ck_assert(words_have("one two three", ' ', "three of", 5));
    ck_assert(!words_have("one two three", ' ', "tw", 2));
    ck_assert(!words_have("one two three", ' ', "wo", 2));
    ck_assert(!words_have("one two three", ' ', "one two", 7));
    ck_assert(!words_have("one two three", '&', "two", 3));
    ck_assert(words_have("full&json", '&', "json", 4));
    ck_assert(!words_have("", ' ', "", 0));
    ck_assert(!words_have("a", ' ', "", 0));
}
END_TEST

START_TEST(a_list_grows_up_to_its_limit)
{
    char list[12] = "";
    words_append(list, sizeof list, "one");
    ck_assert_str_eq(list, "one");
    words_append(list, sizeof list, "two");
    ck_assert_str_eq(list, "one, two");
    words_append(list, sizeof list, "three");
    ck_assert_str_eq(list, "one, two, t");
    words_append(list, sizeof list, "four");
    ck_assert_str_eq(list, "one, two, t");
}
END_TEST

START_TEST(a_flat_text_is_one_line)
{
    char text[] = "a\nb\x1B[2J\x7F\t\xC3\xA4";
    words_flatten(text);
    ck_assert_str_eq(text, "a b [2J  \xC3\xA4");
}
END_TEST

Suite *words_suite(void)
{
    Suite *s = suite_create("words");
    TCase *t = tcase_create("words");
    tcase_add_test(t, a_word_is_found_whole);
    tcase_add_test(t, a_list_grows_up_to_its_limit);
    tcase_add_test(t, a_flat_text_is_one_line);
    suite_add_tcase(s, t);
    return s;
}
