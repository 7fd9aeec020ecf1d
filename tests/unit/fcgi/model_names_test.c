/* Lists of names of a model. */
#include "fcgi/api/model_names.h"

#include <check.h>
#include <string.h>

Suite *model_names_suite(void);

static void expect(const char *list, const char *first, const char *json)
{
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    model_names_first(list, &b);
    buf_putc(&b, '\0');
    ck_assert_str_eq(b.data, first);
    buf_reset(&b);
    model_names_write(list, &b);
    buf_putc(&b, '\0');
    ck_assert_str_eq(b.data, json);
    buf_fini(&b);
}

static bool is_ab(void *arg, const char *name)
{
    ++*(int *)arg;
    return strcmp(name, "ab") == 0;
}

START_TEST(any_of_a_list)
{
    int n = 0;
    ck_assert(model_names_any("tiny, ab ,code", is_ab, &n) && n == 2); /* and asks no further */
    ck_assert(!model_names_any("tiny,a b,", is_ab, &n) && n == 4);
    ck_assert(!model_names_any(NULL, is_ab, &n) && !model_names_any(" , ", is_ab, &n) && n == 4);
}
END_TEST

START_TEST(lists)
{
    expect(NULL, "", "[]");
    expect("", "", "[]");
    expect(" , ,", "", "[]");
    expect("one", "one", "[\"one\"]");
    expect("b a", "b a", "[\"b a\"]");
    expect("tiny, ab ,code,", "ab", "[\"tiny\",\"ab\",\"code\"]");
    expect("aa,a", "a", "[\"aa\",\"a\"]");
    ck_assert(model_names_have("tiny, ab ,code", "ab") && model_names_have("tiny", "tiny"));
    ck_assert(!model_names_have("tiny,ab", "tin") && !model_names_have("tiny,ab", "tiny,ab") &&
              !model_names_have(NULL, "a"));
    ck_assert(!model_names_have(",,", ""));
}
END_TEST

Suite *model_names_suite(void)
{
    Suite *s = suite_create("model_names");
    TCase *t = tcase_create("lists");
    tcase_add_test(t, lists);
    tcase_add_test(t, any_of_a_list);
    suite_add_tcase(s, t);
    return s;
}
