/* The JSON writer, with jansson as the reader that must understand it. */
#include "engine/base/json_write.h"

#include <check.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

Suite *json_write_suite(void);

static struct buf b;

static void setup(void) { buf_init(&b, 0, MEM_GENERAL); }
static void teardown(void) { buf_fini(&b); }

static void expect_string(const char *s, size_t n, const char *json)
{
    buf_reset(&b);
    json_write_string(&b, s, n);
    ck_assert_str_eq(b.data, json);
}

START_TEST(strings_are_escaped)
{
    expect_string("", 0, "\"\"");
    expect_string("plain", 5, "\"plain\"");
    expect_string("a\"b\\c/", 6, "\"a\\\"b\\\\c/\"");
    expect_string("\b\t\n\f\r", 5, "\"\\b\\t\\n\\f\\r\"");
    expect_string("\0\x01\x1F\x7F", 4, "\"\\u0000\\u0001\\u001f\\u007f\"");
    expect_string("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9, "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_replaced_one_by_one)
{
    expect_string("a\xFFz", 3, "\"a\xEF\xBF\xBDz\"");
    expect_string("\xE2\x82", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_string("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""); /* a surrogate */
    expect_string("\xC3\"", 2, "\"\xEF\xBF\xBD\\\"\"");                           /* the quote is not swallowed */
}
END_TEST

START_TEST(values_are_written)
{
    json_t *v = json_pack("{s:[i,f,b,n],s:{},s:[],s:{s:s}}", "a", 1, 0.1, 1, "e", "l", "o", "k\"", "\xC3\xA9");
    buf_reset(&b);
    json_write_value(&b, v, false);
    ck_assert_str_eq(b.data, "{\"a\":[1,0.1,true,null],\"e\":{},\"l\":[],\"o\":{\"k\\\"\":\"\xC3\xA9\"}}");
    buf_reset(&b);
    json_write_value(&b, v, true);
    ck_assert_str_eq(b.data, "{\"a\": [1, 0.1, true, null], \"e\": {}, \"l\": [], \"o\": {\"k\\\"\": \"\xC3\xA9\"}}");
    json_decref(v);
    buf_reset(&b);
    json_write_value(&b, NULL, true);
    ck_assert_str_eq(b.data, "null");
}
END_TEST

START_TEST(values_nested_too_deep_fail)
{
    for (int depth = JSON_WRITE_DEPTH; depth <= JSON_WRITE_DEPTH + 1; depth++) {
        json_t *v = json_array();
        for (int i = 1; i < depth; i++) {
            v = json_pack("[o]", v);
        }
        buf_reset(&b);
        json_write_value(&b, v, false);
        ck_assert_int_eq(buf_ok(&b), depth <= JSON_WRITE_DEPTH ? ERR_OK : ERR_JSON_TOO_DEEP);
        json_decref(v);
    }
}
END_TEST

START_TEST(a_parser_reads_every_string_back)
{
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            char s[4] = {(char)first, (char)second, 'x', (char)second};
            buf_reset(&b);
            json_write_string(&b, s, sizeof s);
            json_t *v = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            bool ascii = first < 0x80 && second < 0x80;
            bool ok = v != NULL && (!ascii || (json_string_length(v) == 4 && memcmp(json_string_value(v), s, 4) == 0));
            json_decref(v);
            if (!ok) {
                ck_abort_msg("%02x %02x gives %s", first, second, b.data);
            }
        }
    }
}
END_TEST

START_TEST(numbers_are_json_numbers)
{
    static const struct {
        double v;
        const char *json;
    } floats[] = {{0, "0.0"},        {1, "1.0"},
                  {-1, "-1.0"},      {0.5, "0.5"},
                  {-0.0, "-0.0"},    {1e300, "1e+300"},
                  {-1e-7, "-1e-07"}, {123456789, "123456789.0"},
                  {0.1, "0.1"},      {INFINITY, "-9999.0"},
                  {NAN, "-9999.0"},  {-INFINITY, "-9999.0"},
                  {1e9, "1e+09"}};
    for (size_t i = 0; i < ARRAY_LEN(floats); i++) {
        buf_reset(&b);
        json_write_float(&b, floats[i].v);
        ck_assert_str_eq(b.data, floats[i].json);
    }
    const struct {
        float v;
        const char *json;
    } settings[] = {{0.8f, "0.8"},
                    {0.95f, "0.95"},
                    {0.05f, "0.05"},
                    {1, "1.0"},
                    {0, "0.0"},
                    {-1.5f, "-1.5"},
                    {0.1234567f, "0.123456702"}};
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        buf_reset(&b);
        json_write_setting(&b, settings[i].v);
        ck_assert_str_eq(b.data, settings[i].json);
    }
    for (int e = -37; e < 38; e++) { /* nine digits name every float */
        float v = ldexpf(1.0f + FLT_EPSILON * 12345, e * 3);
        buf_reset(&b);
        json_write_float(&b, v);
        json_t *read = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
        ck_assert_msg(json_is_real(read) && (float)json_real_value(read) == v, "%s", b.data);
        json_decref(read);
    }
    static const struct {
        int64_t v;
        const char *json;
    } ints[] = {{0, "0"}, {-7, "-7"}, {INT64_MAX, "9223372036854775807"}, {INT64_MIN, "-9223372036854775808"}};
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        buf_reset(&b);
        json_write_int(&b, ints[i].v);
        ck_assert_str_eq(b.data, ints[i].json);
    }
}
END_TEST

START_TEST(null_and_failures)
{
    json_write_cstr(&b, NULL);
    json_write_cstr(&b, "x\n");
    ck_assert_str_eq(b.data, "null\"x\\n\"");
    struct buf small;
    buf_init(&small, 3, MEM_GENERAL);
    json_write_string(&small, "long text", 9);
    json_write_float(&small, 1.0); /* must not look at bytes that never arrived */
    ck_assert_int_eq(buf_ok(&small), ERR_TOO_LARGE);
    buf_fini(&small);
}
END_TEST

Suite *json_write_suite(void)
{
    Suite *s = suite_create("json_write");
    TCase *c = tcase_create("json_write");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, values_are_written);
    tcase_add_test(c, values_nested_too_deep_fail);
    tcase_add_test(c, strings_are_escaped);
    tcase_add_test(c, bytes_that_are_no_utf8_are_replaced_one_by_one);
    tcase_add_test(c, a_parser_reads_every_string_back);
    tcase_add_test(c, numbers_are_json_numbers);
    tcase_add_test(c, null_and_failures);
    suite_add_tcase(s, c);
    return s;
}
