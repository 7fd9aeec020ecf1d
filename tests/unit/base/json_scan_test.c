/* JSON in pieces: every beginning of an object is one, and what is wrong is seen at its byte. */
#include "engine/base/json_scan.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *json_scan_suite(void);

static const char *const objects[] = {
    "{}",
    " \n{ \"a\" : [ ] , \"b\":{} }",
    "{\"a\":[0,-0,1,10,-1.50,1e5,2E+07,3.25e-10,{\"b\":null}],\"c\":true,\"d\":false}",
    "{\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83d\\uDE00\"}",
    "{\"k\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\",\"\xc3\xa9\":1}",
    "{\"a\":1,\"a\":1e999}",
};

START_TEST(beginnings_are_taken)
{
    const char *text = objects[_i];
    struct json_scan s = {.depth = 0};
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_ne(s.state, JSON_SCAN_WHOLE);
        ck_assert_msg(json_scan_feed(&s, text + i, 1) == 1, "'%s' at %zu", text, i);
    }
    ck_assert_int_eq(s.state, JSON_SCAN_WHOLE);
    ck_assert_uint_eq(s.depth, 0);
    ck_assert_uint_eq(json_scan_feed(&s, " ", 1), 0);
    ck_assert_int_eq(s.state, JSON_SCAN_WHOLE);
}
END_TEST

/* The byte after ^ is none that may come. */
static const char *const wrong[] = {
    "^[]",
    "{^]",
    "{^a",
    "{^1",
    "{\"a\"^}",
    "{\"a\":^}",
    "{\"a\":1,^}",
    "{\"a\":[1,^]",
    "{\"a\":[^,",
    "{\"a\":1^]",
    "{\"a\":[1^}",
    "{\"a\":0^1",
    "{\"a\":-^}",
    "{\"a\":-0^0",
    "{\"a\":1.^}",
    "{\"a\":1e^}",
    "{\"a\":1e+^}",
    "{\"a\":^+1",
    "{\"a\":^.5",
    "{\"a\":tr^e",
    "{\"a\":^True",
    "{\"a\":nul^}",
    "{\"a\":\"^\n\"",
    "{\"a\":\"\\^x",
    "{\"a\":\"\\u00^g",
    "{\"a\":\"\\uDE0^0\"",
    "{\"a\":\"\\uD83D^\"",
    "{\"a\":\"\\uD83D\\^n",
    "{\"a\":\"\\uD83D\\u004^1",
    "{\"a\":\"^\xff",
    "{\"a\":\"\xc3^\"",
    "{\"a\":\"\xe0^\x80",
    "{\"a\":\"\xed^\xa0",
    "{\"a\":\"\xf4^\x90",
    "{\"a\":\"^\xc0",
    "{\"a\" ^\"b\"",
    "{\"a\":1 ^2",
    "{}^}",
    "{\"a\":{}^\"b\"",
    "{^'a'",
};

START_TEST(what_is_wrong_is_seen)
{
    char text[64];
    size_t at = strcspn(wrong[_i], "^");
    snprintf(text, sizeof text, "%.*s%s", (int)at, wrong[_i], wrong[_i] + at + 1);
    struct json_scan s = {.depth = 0};
    size_t n = json_scan_feed(&s, text, strlen(text));
    ck_assert_msg(n == at, "'%s': took %zu", text, n);
}
END_TEST

START_TEST(depth_has_a_limit)
{
    struct json_scan s = {.depth = 0};
    char text[JSON_SCAN_DEPTH + 8] = "{\"a\":";
    memset(text + 5, '[', JSON_SCAN_DEPTH);
    ck_assert_uint_eq(json_scan_feed(&s, text, 5 + JSON_SCAN_DEPTH), 5 + JSON_SCAN_DEPTH - 1);
}
END_TEST

Suite *json_scan_suite(void)
{
    Suite *s = suite_create("json_scan");
    TCase *t = tcase_create("scan");
    tcase_add_loop_test(t, beginnings_are_taken, 0, (int)(sizeof objects / sizeof *objects));
    tcase_add_loop_test(t, what_is_wrong_is_seen, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(t, depth_has_a_limit);
    suite_add_tcase(s, t);
    return s;
}
