/* Finding, listing and refusing names of a table. */
#include "engine/base/names.h"

#include <check.h>
#include <string.h>

Suite *names_suite(void);

static const char *fruit(int i)
{
    static const char *const names[] = {"fig", "figs", "pear"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

static const char *nothing(int i)
{
    (void)i;
    return NULL;
}

START_TEST(a_name_is_found_by_all_of_it)
{
    ck_assert_int_eq(names_find(fruit, "fig"), 0);
    ck_assert_int_eq(names_find(fruit, "pear"), 2);
    ck_assert_int_eq(names_find(fruit, "fi"), -1);
    ck_assert_int_eq(names_find(fruit, "Fig"), -1);
    ck_assert_int_eq(names_find(fruit, ""), -1);
    ck_assert_int_eq(names_find(nothing, "fig"), -1);
}
END_TEST

START_TEST(what_is_refused_is_told_the_names)
{
    struct err_info info = {0};
    ck_assert_int_eq(names_refuse(fruit, "basket", "plum", &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "basket: expected one of fig, figs, pear; found 'plum'");
    ck_assert(info.code == ERR_CONFIG && strcmp(info.where, "basket") == 0);
    mem_fail_at(0);
    ck_assert_int_eq(names_refuse(fruit, "basket", "plum", &info), ERR_CONFIG); /* still the cause */
    mem_fail_at(-1);
    ck_assert_str_eq(info.text, "basket: expected one of the names of the manual; found 'plum'");
}
END_TEST

Suite *names_suite(void)
{
    Suite *s = suite_create("names");
    TCase *t = tcase_create("names");
    tcase_add_test(t, a_name_is_found_by_all_of_it);
    tcase_add_test(t, what_is_refused_is_told_the_names);
    suite_add_tcase(s, t);
    return s;
}
