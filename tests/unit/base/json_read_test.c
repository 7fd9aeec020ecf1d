/* JSON of strangers: what the parser does not refuse by itself, and integers that Python writes. */
#include "engine/base/json_read.h"
#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/base/mem_account.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

Suite *json_read_suite(void);

enum { DEPTH = 8 };

/* Integers beyond 64 bits are doubles in files, and errors in requests. */
static const struct {
    const char *text;
    bool is_wide;
    double value;
} integers[] = {
    {"{\"a\": 1000000000000000019884624838656}", true, 1e30},
    {"{\"a\": -1000000000000000019884624838656}", true, -1e30},
    {"{\"a\": 9223372036854775808}", true, 9223372036854775808.0},
    {"{\"a\": -9223372036854775809}", true, -9223372036854775809.0},
    {"{\"a\": [1, 99999999999999999999, 2]}", true, 0},
    {"{\"a\": 9223372036854775807}", false, 9223372036854775807.0},
    {"{\"a\": -9223372036854775808}", false, -9223372036854775808.0},
    {"{\"a\": 0.99999999999999999999}", false, 1},
    {"{\"a\": 99999999999999999999.5}", false, 1e20},
    {"{\"a\": 100000000000000000000e2}", false, 1e22},
    {"{\"a\": 100000000000000000000E-20}", false, 1},
    {"{\"a\": 1E-00000000000000000000001}", false, 0.1},
    {"{\"a\": 1e+00000000000000000000001}", false, 10},
    {"{\"99999999999999999999\": \"\\\" 99999999999999999999\", \"a\": 1}", false, 1},
};

START_TEST(wide_integers)
{
    struct err_info info = {0};
    json_t *v;
    ck_assert_int_eq(json_read_file(integers[_i].text, strlen(integers[_i].text), DEPTH, "the file", &v, &info),
                     ERR_OK);
    const json_t *a = json_read_get(v, "a");
    if (json_is_array(a)) {
        ck_assert(json_array_size(a) == 3 && json_real_value(json_array_get(a, 1)) == 1e20);
        ck_assert(json_integer_value(json_array_get(a, 0)) == 1 && json_integer_value(json_array_get(a, 2)) == 2);
    } else {
        ck_assert(json_number_value(a) == integers[_i].value);
    }
    json_decref(v);
    enum err err = json_read(integers[_i].text, strlen(integers[_i].text), DEPTH, "the body", &v, &info);
    ck_assert_int_eq(err, integers[_i].is_wide ? ERR_INVALID_VALUE : ERR_OK);
    ck_assert(!integers[_i].is_wide || strcmp(info.where, "a") == 0);
    json_decref(v);
}
END_TEST

static const struct {
    const char *text;
    enum err err;
} refused[] = {
    {"", ERR_INVALID_JSON},
    {"[]", ERR_INVALID_JSON},
    {"{\"a\": 99999999999999999999", ERR_INVALID_JSON},
    {"{\"a\": 099999999999999999999}", ERR_INVALID_JSON},
    {"{\"a\": +99999999999999999999}", ERR_INVALID_JSON},
    {"{\"a\": \"99999999999999999999\\", ERR_INVALID_JSON},
    {"{\"a\": 1e400}", ERR_INVALID_VALUE},
    {"{\"a\": 1, \"a\": 2}", ERR_DUPLICATE_FIELD},
    {"{\"a\": \"\xff\"}", ERR_INVALID_UTF8},
    {"{\"a\":[[[[[[[[]]]]]]]]}", ERR_JSON_TOO_DEEP},
};

START_TEST(what_is_no_json_is_refused)
{
    struct err_info info = {0};
    json_t *v;
    ck_assert_int_eq(json_read_file(refused[_i].text, strlen(refused[_i].text), DEPTH, "the file", &v, &info),
                     refused[_i].err);
    ck_assert_ptr_null(v);
}
END_TEST

START_TEST(what_was_found_is_shown)
{
    static const char *const rows[][2] = {{"\"x\"", "'x'"},    {"-7", "-7"},       {"0.5", "0.5"},
                                          {"true", "true"},    {"false", "false"}, {"null", "null"},
                                          {"[1]", "an array"}, {"{}", "an object"}};
    char room[JSON_READ_SHOWN];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *v = json_loads(rows[i][0], JSON_DECODE_ANY, NULL);
        ck_assert_str_eq(json_read_show(v, room), rows[i][1]);
        json_decref(v);
    }
    ck_assert_str_eq(json_read_show(NULL, room), "none");
}
END_TEST

/* v with its bytes; NULL gives none. */
static json_t *text_of(const char *s, size_t n) { return json_stringn_nocheck(s, n); }

START_TEST(whole_strings_are_compared)
{
    json_t *word = text_of("text", 4), *longer = text_of("text\0x", 6), *ended = text_of("text\0", 5), *none = json_null();
    ck_assert(json_read_is(word, "text") && !json_read_is(word, "tex") && !json_read_is(word, "texts"));
    ck_assert(!json_read_is(longer, "text") && !json_read_is(ended, "text"));
    ck_assert(!json_read_is(none, "") && !json_read_is(NULL, "") && !json_read_is(json_true(), "true"));
    json_decref(word);
    json_decref(longer);
    json_decref(ended);
}
END_TEST

START_TEST(what_was_found_is_shown_whole)
{
    static const struct {
        const char *text;
        size_t n;
        const char *shown;
    } cases[] = {
        {"user\0x", 6, "'user\\u0000x'"},
        {"\n\x7F", 2, "'\\u000a\\u007f'"},
        {"", 0, "''"},
        {"1234567890123456789012345678901234567890123456789012345678901234567890", 70,
         "'1234567890123456789012345678901234567890123456789012345678901234'"},
    };
    char shown[JSON_READ_SHOWN], zeros[70] = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *v = text_of(cases[i].text, cases[i].n);
        ck_assert_str_eq(json_read_show(v, shown), cases[i].shown);
        json_decref(v);
    }
    json_t *v = text_of(zeros, sizeof zeros);
    ck_assert_uint_lt(strlen(json_read_show(v, shown)), sizeof shown);
    json_decref(v);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* {"a":[part,part,...]} or, for parts with a colon, {"a":{"k0":part...}}. */
static void repeat(struct buf *b, const char *part, int n)
{
    bool is_member = part[0] == ':';
    buf_puts(b, is_member ? "{\"a\":{" : "{\"a\":[");
    for (int i = 0; i < n; i++) {
        buf_puts(b, i == 0 ? "" : ",");
        if (is_member) {
            buf_printf(b, "\"k%d\"", i);
        }
        buf_puts(b, part);
    }
    buf_puts(b, is_member ? "}}" : "]}");
}

START_TEST(the_size_of_a_tree_is_told_beforehand)
{
    static const char *const parts[] = {"{}",        "[]",     "\"\"", "1",     "-1.5e3",   "49151", "\"a word\"", "[1,2,3]",
                                        "{\"a\":1}", ":1",     ":{}",  ":\"\"", "[[[[1]]]]", "{\"role\":\"user\",\"content\":\"Hi\"}"};
    static struct mem_account account;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        for (int n = 1000; n <= 9000; n = n * 3 / 2) { /* tables double: before and after */
            struct buf b;
            json_t *v;
            buf_init(&b, 0, MEM_GENERAL);
            repeat(&b, parts[i], n);
            struct json_size z = json_read_size(b.data, b.len);
            mem_account_enter(&account);
            ck_assert_int_eq(json_read(b.data, b.len, DEPTH, "the body", &v, NULL), ERR_OK);
            size_t held = atomic_load(&account.held_bytes);
            json_decref(v);
            size_t most = mem_account_leave();
            ck_assert_msg(most <= z.bytes, "%d of %s: %zu told, %zu taken", n, parts[i], z.bytes, most);
            ck_assert_msg(2 * z.bytes <= 5 * held, "%d of %s: %zu told, %zu held", n, parts[i], z.bytes, held);
            ck_assert_uint_eq(atomic_load(&account.held_bytes), 0);
            buf_fini(&b);
        }
    }
}
END_TEST

START_TEST(values_are_counted)
{
    static const struct {
        const char *text;
        size_t n, depth;
    } cases[] = {{"{}", 1, 1},
                 {"{\"a\":1}", 2, 1},
                 {"{\"a\":[1,-2.5e+3,\"]:,{\\\"\",true,null,{}]}", 8, 3},
                 {"", 0, 0},
                 {"]]]", 0, 0},
                 {"\"", 1, 0},
                 {"\"\\", 1, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_size z = json_read_size(cases[i].text, strlen(cases[i].text));
        ck_assert_msg(z.n_values == cases[i].n && z.depth == cases[i].depth, "%s: %zu values, %zu deep", cases[i].text,
                      z.n_values, z.depth);
    }
}
END_TEST

START_TEST(out_of_memory_is_called_that)
{
    /* texts of many lengths: each growth of the parser's buffers is refused once */
    char text[6000] = "{\"a\":[1,2.5,\"a text that grows while it is read\",{\"b\":{},\"c\":[]},true,\"\\u00e9\"],"
                      "\"d\":{\"e\":1},\"long\":\"";
    size_t n_text = strlen(text);
    memset(text + n_text, 'x', 4500);
    n_text += 4500;
    n_text += (size_t)snprintf(text + n_text, sizeof text - n_text, "\\n\",\"n\":[0.%0200d,2,3,4,5,6,7,8,9,10]}", 1);
    size_t before = mem_live();
    bool fired = true;
    for (long n = 0; fired; n++) {
        struct err_info info = {0};
        json_t *v;
        mem_fail_at(n);
        enum err err = json_read(text, n_text, DEPTH, "the body", &v, &info);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == (fired ? ERR_NOMEM : ERR_OK), "allocation %ld: %s: %s", n, err_code(err), info.text);
        ck_assert((v == NULL) == fired);
        json_decref(v);
        ck_assert_uint_eq(mem_live(), before);
    }
}
END_TEST

Suite *json_read_suite(void)
{
    Suite *s = suite_create("json_read");
    TCase *tc = tcase_create("json_read");
    tcase_add_test(tc, what_was_found_is_shown);
    tcase_add_test(tc, what_was_found_is_shown_whole);
    tcase_add_test(tc, whole_strings_are_compared);
    tcase_add_loop_test(tc, wide_integers, 0, ARRAY_LEN(integers));
    tcase_add_loop_test(tc, what_is_no_json_is_refused, 0, ARRAY_LEN(refused));
    tcase_add_test(tc, the_size_of_a_tree_is_told_beforehand);
    tcase_add_test(tc, values_are_counted);
    tcase_add_test(tc, out_of_memory_is_called_that);
    suite_add_tcase(s, tc);
    return s;
}
