/* Lists of names of a model. */
#include "fcgi/model_names.h"

#include <check.h>

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
    ck_assert(!model_names_have("tiny,ab", "tin") && !model_names_have("tiny,ab", "tiny,ab") && !model_names_have(NULL, "a"));
    ck_assert(!model_names_have(",,", ""));
}
END_TEST

Suite *model_names_suite(void)
{
    Suite *s = suite_create("model_names");
    TCase *t = tcase_create("lists");
    tcase_add_test(t, lists);
    suite_add_tcase(s, t);
    return s;
}
