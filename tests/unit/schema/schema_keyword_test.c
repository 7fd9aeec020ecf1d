#include "engine/schema/schema_keyword.h"

#include "engine/base/compiler.h"

#include <check.h>

Suite *schema_keyword_suite(void);

START_TEST(keywords_are_found_by_name)
{
    static const struct schema_keyword rows[] = {
        {"$defs", SCHEMA_KEYWORD_NAMED, false},     {"$ref", SCHEMA_KEYWORD_STRING, true},
        {"const", SCHEMA_KEYWORD_ANY, true},        {"dependencies", SCHEMA_KEYWORD_DEPENDS, true},
        {"then", SCHEMA_KEYWORD_SCHEMA, false},     {"title", SCHEMA_KEYWORD_STRING, false},
        {"uniqueItems", SCHEMA_KEYWORD_FLAG, true}, {"x-lark", SCHEMA_KEYWORD_ANY, true},
    };
    static const char *const others[] = {"", "$", "Type", "default", "examples", "typed", "x-", "z"};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct schema_keyword *found = schema_keyword_find(rows[i].name);
        ck_assert_ptr_nonnull(found);
        ck_assert_str_eq(found->name, rows[i].name);
        ck_assert_int_eq(found->form, rows[i].form);
        ck_assert_int_eq(found->restricts, rows[i].restricts);
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        ck_assert_ptr_null(schema_keyword_find(others[i]));
    }
}
END_TEST

Suite *schema_keyword_suite(void)
{
    Suite *s = suite_create("schema_keyword");
    TCase *c = tcase_create("schema_keyword");
    tcase_add_test(c, keywords_are_found_by_name);
    suite_add_tcase(s, c);
    return s;
}
