/* Values of enum, const and uniqueItems: which are the same, and how they are written. */
#include "engine/schema/schema_value.h"

#include "engine/base/compiler.h"
#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "tests/unit/schema/schema_rig.h"

#include <check.h>

Suite *schema_value_suite(void);

static json_t *read_value(const char *text)
{
    json_t *v = NULL;
    struct err_info info = {0};
    ck_assert_msg(json_read_value(text, strlen(text), 64, "a value", &v, &info) == ERR_OK, "%s: %s", text, info.text);
    return v;
}

static void check_pair(const char *a, const char *b, bool are_same)
{
    bool has_failed = false;
    json_t *x = read_value(a), *y = read_value(b);
    char *key_a = schema_key_of(x), *key_b = schema_key_of(y);
    ck_assert_msg((strcmp(key_a, key_b) == 0) == are_same, "%s, %s: %s, %s", a, b, key_a, key_b);
    ck_assert_msg(schema_is_same(x, y, &has_failed) == are_same && !has_failed, "%s, %s", a, b);
    ck_assert_msg(schema_is_same(y, x, &has_failed) == are_same && !has_failed, "%s, %s", b, a);
    mem_free(key_a);
    mem_free(key_b);
    json_decref(x);
    json_decref(y);
}

START_TEST(numbers_are_exact_at_any_depth)
{
    static const char *const forms[] = {"%s", "[%s]", "{\"a\":%s}", "[0,{\"b\":[%s,\"x\"]}]"};
    static const struct {
        const char *a, *b;
        bool are_same;
    } rows[] = {
        {"1", "1.0", true},
        {"1", "1e0", true},
        {"100", "1E+2", true},
        {"-0", "0.0", true},
        {"0.1", "1e-1", true},
        {"9007199254740993", "9007199254740992", false},
        {"9007199254740993", "9007199254740993.0", true},
        {"9007199254740993", "9007199254740992.0", false},
        {"18446744073709551615", "18446744073709551614", false},
        {"18446744073709551615", "18446744073709551615.0", true},
        {"0.1234567890123456789", "0.1234567890123456788", false},
        {"1e400", "1e401", false},
        {"1e400", "10e399", true},
        {"-1", "1", false},
        {"1", "\"1\"", false},
        {"true", "1", false},
        {"null", "false", false},
        {"\"a\\u0000b\"", "\"a\"", false},
        {"\"a\\u0000b\"", "\"a\\u0000b\"", true},
        {"\"[\"", "[\"[\"]", false},
        {"\"1,2\"", "\"1\\\",\\\"2\"", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (size_t k = 0; k < ARRAY_LEN(forms); k++) {
            char a[96], b[96];
            (void)snprintf(a, sizeof a, forms[k], rows[i].a);
            (void)snprintf(b, sizeof b, forms[k], rows[i].b);
            check_pair(a, b, rows[i].are_same);
        }
    }
    check_pair("{\"a\":1,\"b\":[{}]}", "{\"b\":[{}],\"a\":1.0}", true);
    check_pair("{\"a\":1,\"b\":2}", "{\"a\":2,\"b\":1}", false);
    check_pair("{\"ab\":1}", "{\"a\":1,\"b\":1}", false);
    check_pair("[1,[2]]", "[[1],2]", false);
    check_pair("[]", "{}", false);
    check_pair("[1,2]", "[2,1]", false);
}
END_TEST

static struct grammar *compile(const char *text, enum err expected)
{
    struct grammar *g = NULL;
    json_t *schema = read_value(text);
    enum err err = schema_rig_compile(schema, false, &g);
    ck_assert_msg(err == expected, "%s: %s %s", text, err_code(err), schema_rig_info.text);
    json_decref(schema);
    return g;
}

/* Integers next to each other that are one double. */
START_TEST(schemas_tell_wide_numbers_apart)
{
    static const struct {
        const char *schema, *right, *wrong;
    } rows[] = {
        {"{\"enum\":[[9007199254740993],[9007199254740992]],\"not\":{\"const\":[9007199254740992]}}",
         "[9007199254740993]", "[9007199254740992]"},
        {"{\"oneOf\":[{\"const\":[18446744073709551615]},{\"const\":[18446744073709551614]}]}",
         "[18446744073709551614]", "[18446744073709551613]"},
        {"{\"enum\":[{\"a\":18446744073709551615},1],\"allOf\":[{\"enum\":[{\"a\":18446744073709551614},1]}]}", "1",
         "{\"a\":18446744073709551615}"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2,\"items\":{\"enum\":[[9007199254740993],[9007199254740992]]}}",
         "[[9007199254740993],[9007199254740992]]", "[[9007199254740992],[9007199254740992]]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grammar *g = compile(rows[i].schema, ERR_OK);
        ck_assert_msg(schema_rig_says(g, rows[i].right), "%s: %s", rows[i].schema, rows[i].right);
        ck_assert_msg(!schema_rig_says(g, rows[i].wrong), "%s: %s", rows[i].schema, rows[i].wrong);
        grammar_unref(&g);
    }
    compile("{\"enum\":[[18446744073709551615]],\"const\":[18446744073709551614]}", ERR_INVALID_GRAMMAR);
}
END_TEST

/* A number is written as its double's shortest form is, or as it was given, and also without an exponent. */
START_TEST(numbers_without_exponents)
{
    static const struct {
        const char *schema, *right[4], *wrong[4];
    } rows[] = {
        {"{\"enum\":[1.234567890123456789E-1]}",
         {"0.1234567890123456789", "1.234567890123456789E-1"},
         {"0.1234567890123456788", "0.123456789012345678"}},
        {"{\"enum\":[-2.5E-9,1e-7]}",
         {"-0.0000000025", "-2.5e-09", "0.0000001"},
         {"0.0000000025", "-0.000000025", "0.000000"}},
        {"{\"const\":1E22}",
         {"10000000000000000000000", "1e+22"},
         {"1000000000000000000000", "100000000000000000000000"}},
        {"{\"const\":12.0}", {"12.0", "12"}, {"12.5", "120", "1"}},
        {"{\"const\":-0.0}", {"0"}, {"00", "1"}},
        {"{\"const\":1e400}", {"1e400"}, {"1e401"}},
        {"{\"const\":[1.25E1]}", {"[12.5]"}, {"[125]"}},
        {"{\"enum\":[3,5]}", {"3", "5"}, {"3.0", "35", "5e0"}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1.0,2]}}",
         {"[1]", "[1.0,2]"},
         {"[1,1.0]", "[1.0,1]"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grammar *g = compile(rows[i].schema, ERR_OK);
        for (size_t k = 0; k < 4; k++) {
            const char *right = rows[i].right[k], *wrong = rows[i].wrong[k];
            ck_assert_msg(right == NULL || schema_rig_says(g, right), "%s: %s", rows[i].schema, right);
            ck_assert_msg(wrong == NULL || !schema_rig_says(g, wrong), "%s: %s", rows[i].schema, wrong);
        }
        grammar_unref(&g);
    }
}
END_TEST

START_TEST(memory_runs_out)
{
    json_t *a = read_value("{\"a\":[1,{\"b\":18446744073709551615}],\"c\":\"x\"}");
    for (long n = 0;; n++) {
        mem_fail_at(n);
        char *key = schema_key_of(a);
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg((key == NULL) == fired, "%ld", n);
        mem_free(key);
        if (!fired) {
            break;
        }
    }
    json_decref(a);
}
END_TEST

Suite *schema_value_suite(void)
{
    Suite *s = suite_create("schema_value");
    TCase *t = tcase_create("schema_value");
    tcase_add_checked_fixture(t, schema_rig_set_up, schema_rig_tear_down);
    tcase_add_test(t, numbers_are_exact_at_any_depth);
    tcase_add_test(t, schemas_tell_wide_numbers_apart);
    tcase_add_test(t, numbers_without_exponents);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
