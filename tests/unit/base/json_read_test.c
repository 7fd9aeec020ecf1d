/* JSON of strangers: what the parser does not refuse by itself, and integers that Python writes. */
#include "engine/base/json_read.h"
#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "engine/base/rng.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *json_read_suite(void);

enum { DEPTH = 8 };

/* Integers beyond 64 bits are doubles that carry their digits. */
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
    ck_assert_int_eq(err, ERR_OK);
    a = json_read_get(v, "a");
    a = json_is_array(a) ? json_array_get(a, 1) : a;
    ck_assert(json_number_is_wide(a) == integers[_i].is_wide);
    json_decref(v);
}
END_TEST

/* What a number carries: digits only where int64 and the shortest double do not have its value. */
static const struct {
    const char *text, *digits;
    double value;
    const char *printed; /* NULL: the text */
} numbers[] = {
    {"0", NULL, 0, NULL},
    {"-0", NULL, 0, "0"},
    {"9223372036854775807", NULL, 9223372036854775807.0, NULL},
    {"-9223372036854775808", NULL, -9223372036854775808.0, NULL},
    {"9223372036854775808", "9223372036854775808", 9223372036854775808.0, NULL},
    {"-9223372036854775809", "-9223372036854775809", -9223372036854775808.0, NULL},
    {"18446744073709551615", "18446744073709551615", 18446744073709551615.0, NULL},
    {"1.0", NULL, 1, NULL},
    {"1.10", NULL, 1.1, "1.1"},
    {"-0.0", NULL, -0.0, NULL},
    {"0e9999999999999999999999", NULL, 0, "0.0"},
    {"1E2", NULL, 100, "100.0"},
    {"1e22", NULL, 1e22, "1e+22"},
    {"10000000000000000000000.0", NULL, 1e22, "1e+22"},
    {"0.000001", NULL, 1e-6, "1e-06"},
    {"0.1234567890123456789", "0.1234567890123456789", 0.1234567890123456789, NULL},
    {"123456789012345.67", NULL, 123456789012345.67, NULL},
    {"12345678901234567.25", "12345678901234567.25", 12345678901234567.25, NULL},
    {"0.30000000000000004", NULL, 0.30000000000000004, NULL},
    {"0.300000000000000044", "0.300000000000000044", 0.30000000000000004, NULL},
    {"9007199254740993.0", "9007199254740993.0", 9007199254740992.0, NULL},
    {"1e400", "1e400", DBL_MAX, NULL},
    {"-1E+400", "-1E+400", -DBL_MAX, NULL},
    {"1e-400", "1e-400", 0, NULL},
    {"1e99999999999999999999", "1e99999999999999999999", DBL_MAX, NULL},
    {"5e-324", NULL, 5e-324, NULL},
    {"4e-324", "4e-324", 5e-324, NULL},
    {"1.7976931348623157e308", NULL, DBL_MAX, "1.7976931348623157e+308"},
};

START_TEST(numbers_keep_their_value)
{
    json_t *v;
    char room[JSON_NUMBER_BYTES];
    const char *text = numbers[_i].text, *digits = numbers[_i].digits;
    ck_assert_int_eq(json_read_value(text, strlen(text), DEPTH, "the number", &v, NULL), ERR_OK);
    ck_assert(json_is_number(v) && json_number_value(v) == numbers[_i].value);
    ck_assert_pstr_eq(json_number_digits(v), digits);
    ck_assert_str_eq(json_number_text(v, room), numbers[_i].printed != NULL ? numbers[_i].printed : text);
    ck_assert(json_number_is_wide(v) == (digits != NULL && strpbrk(digits, ".eE") == NULL));
    json_decref(v);
}
END_TEST

/* The shortest form as its definition has it: the first of 1, 2, .. digits that reads back as v. */
static void shortest_by_trial(double v, char sci[JSON_NUMBER_BYTES])
{
    for (int n = 1; n <= DBL_DECIMAL_DIG; n++) {
        snprintf(sci, JSON_NUMBER_BYTES, "%.*e", n - 1, v);
        if (strtod(sci, NULL) == v) {
            return;
        }
    }
}

/* The digits of a number from its first to its last that is not 0. */
static void digits_of(const char *text, char out[JSON_NUMBER_BYTES])
{
    size_t n = 0;
    for (const char *c = text; *c != '\0' && *c != 'e'; c++) {
        if (*c != '.' && *c != '-' && (*c != '0' || n > 0)) {
            out[n++] = *c;
        }
    }
    while (n > 0 && out[n - 1] == '0') {
        n--;
    }
    out[n] = '\0';
}

static void check_shortest(double v)
{
    char expected[JSON_NUMBER_BYTES], got[JSON_NUMBER_BYTES], digits[2][JSON_NUMBER_BYTES];
    shortest_by_trial(v, expected);
    json_number_shortest(v, got);
    digits_of(expected, digits[0]);
    digits_of(got, digits[1]);
    ck_assert_msg(strcmp(digits[0], digits[1]) == 0, "expected %s, got %s", expected, got);
    ck_assert_msg(strtod(got, NULL) == v && signbit(strtod(got, NULL)) == signbit(v), "%a: got %s", v, got);
    ck_assert_msg(json_number_is_exact(v, expected, strlen(expected)), "%s is exact", expected);
    bool carries = false;
    for (char last = '1'; last <= '9'; last++) {
        snprintf(got, sizeof got, "%.*s%s%c%s", (int)strcspn(expected, "e"), expected,
                 strchr(expected, '.') == NULL ? "." : "", last, strchr(expected, 'e'));
        carries |= strtod(got, NULL) == v && json_number_is_exact(v, got, strlen(got));
    }
    ck_assert_msg(!carries, "%s and one digit more is exact", expected);
}

/* Doubles of all sizes: subnormal, normal, powers of two, whose neighbours are not equally far, and short decimals. */
START_TEST(the_shortest_form_reads_back)
{
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t words[4];
        rng_philox((const uint32_t[2]){7, 0}, (const uint32_t[4]){i, 0, 0, 0}, words);
        uint64_t bits = (uint64_t)words[0] << 32 | words[1];
        uint64_t subnormal = (bits & 0xFFFFFFFFFFFFFu) >> words[2] % 52;
        double v;
        memcpy(&v, &bits, sizeof v);
        check_shortest(isfinite(v) ? v : 1);
        memcpy(&v, &subnormal, sizeof v);
        check_shortest(v);
        check_shortest(words[3] % 2000000 / 1000.0);
    }
    for (int e = -1074; e <= 1023; e++) {
        check_shortest(ldexp(1, e));
        check_shortest(nextafter(ldexp(1, e), 0));
        check_shortest(nextafter(ldexp(1, e), DBL_MAX));
    }
    check_shortest(DBL_MAX);
    check_shortest(-0.0);
}
END_TEST

START_TEST(digits_can_be_many)
{
    enum { MANY = 100000 };
    static char text[MANY + 1];
    size_t before = mem_live();
    json_t *v;
    memset(text, '7', MANY);
    ck_assert_int_eq(json_read_value(text, MANY, DEPTH, "the number", &v, NULL), ERR_OK);
    ck_assert(json_real_value(v) == DBL_MAX && strcmp(json_number_digits(v), text) == 0);
    char shown[JSON_READ_SHOWN];
    ck_assert_str_eq(json_read_show(v, shown), "7777777777777777777777777777777777777777777777777777777777777777...");
    json_decref(v);
    ck_assert_uint_eq(mem_live(), before);
}
END_TEST

/* Values of other makers carry none. */
START_TEST(only_what_was_read_has_digits)
{
    json_t *real = json_real(1e30), *whole = json_integer(5), *text = json_string("18446744073709551615");
    ck_assert_ptr_null(json_number_digits(real));
    ck_assert_ptr_null(json_number_digits(whole));
    ck_assert_ptr_null(json_number_digits(text));
    ck_assert_ptr_null(json_number_digits(NULL));
    ck_assert(!json_number_is_wide(NULL) && !json_number_is_wide(real));
    json_decref(real);
    json_decref(whole);
    json_decref(text);
}
END_TEST

/* What Python's json.loads takes. */
START_TEST(a_lenient_reader_takes_what_others_refuse)
{
    static const struct {
        const char *text, *written; /* NULL: refused all the same */
    } cases[] = {
        {"{\"a\":1,\"b\":{\"c\":2},\"a\":{\"d\":3}}", "{\"a\":{\"d\":3},\"b\":{\"c\":2}}"},
        {"{\"a\":{\"x\":[]},\"a\":2}", "{\"a\":2}"},
        {"\"\\ud83d\"", "\"\xEF\xBF\xBD\""},
        {"\"\\ude00x\\ud83d\\n\"", "\"\xEF\xBF\xBDx\xEF\xBF\xBD\\n\""},
        {"\"\\ud83d\\ud83d\\ude00\"", "\"\xEF\xBF\xBD\xF0\x9F\x98\x80\""},
        {"\"\\ud83d\\u0041\"", "\"\xEF\xBF\xBD"
                               "A\""},
        {"[NaN,Infinity,-Infinity]", "[NaN,Infinity,-Infinity]"},
        {"{\"a\\u0000b\":18446744073709551616}", "{\"a\\u0000b\":18446744073709551616}"},
        {"null", "null"},
        {"[1,]", NULL},
        {"{'a':1}", NULL},
        {"nan", NULL},
        {"\"\n\"", NULL},
        {"\"\\u12\"", NULL},
        {"", NULL},
        {"[[[[[[[[[]]]]]]]]]", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *v;
        struct err_info info = {0};
        enum err err = json_read_lenient(cases[i].text, strlen(cases[i].text), DEPTH, "arguments", &v, &info);
        ck_assert_msg((err == ERR_OK) == (cases[i].written != NULL), "%s: %s", cases[i].text, info.text);
        ck_assert(err == ERR_OK || v == NULL);
        if (err == ERR_OK) {
            struct buf b;
            buf_init(&b, 0, MEM_GENERAL);
            json_write_value(&b, v, false);
            ck_assert_str_eq(b.data, cases[i].written);
            buf_fini(&b);
            json_decref(v);
        }
    }
}
END_TEST

/* The place of a fault, and what was expected there. */
START_TEST(faults_are_placed)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\n \"\xC3\xA9\": x}", "the body is not valid JSON: line 2, column 7: expected a value, found 'x'"},
        {"{\"a\"", "line 1, column 5: expected ':', found the end"},
        {"{\"a\":[1 2]}", "line 1, column 9: expected ',' or ']', found '2'"},
        {"{\"a\":1,\"a\":2}", "line 1, column 8: duplicate key 'a'"},
        {"{\"a\":\"\\ud83d\"}", "line 1, column 7: a surrogate without its pair"},
        {"{\"a\":\"\\q\"}", "line 1, column 7: a backslash that begins no escape"},
        {"{\"a\":\"x", "line 1, column 6: a string without its end"},
        {"{} x", "line 1, column 4: expected the end, found 'x'"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *v;
        struct err_info info = {0};
        ck_assert_int_ne(json_read(cases[i].text, strlen(cases[i].text), DEPTH, "the body", &v, &info), ERR_OK);
        ck_assert_msg(strstr(info.text, cases[i].says) != NULL, "%s: %s", cases[i].text, info.text);
    }
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
    json_t *word = text_of("text", 4), *longer = text_of("text\0x", 6), *ended = text_of("text\0", 5),
           *none = json_null();
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
    static const char *const parts[] = {"{}",
                                        "[]",
                                        "\"\"",
                                        "1",
                                        "-1.5e3",
                                        "49151",
                                        "18446744073709551615",
                                        "1e400",
                                        "\"a word\"",
                                        "[1,2,3]",
                                        "{\"a\":1}",
                                        ":1",
                                        ":{}",
                                        ":\"\"",
                                        "[[[[1]]]]",
                                        "{\"role\":\"user\",\"content\":\"Hi\"}"};
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
    } cases[] = {{"{}", 1, 1},  {"{\"a\":1}", 2, 1}, {"{\"a\":[1,-2.5e+3,\"]:,{\\\"\",true,null,{}]}", 8, 3},
                 {"", 0, 0},    {"]]]", 0, 0},       {"\"", 1, 0},
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
                      "\"d\":{\"e\":18446744073709551615,\"\\u0066\":1e400},\"long\":\"";
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
    tcase_add_loop_test(tc, numbers_keep_their_value, 0, ARRAY_LEN(numbers));
    tcase_add_test(tc, the_shortest_form_reads_back);
    tcase_add_test(tc, digits_can_be_many);
    tcase_add_test(tc, only_what_was_read_has_digits);
    tcase_add_test(tc, a_lenient_reader_takes_what_others_refuse);
    tcase_add_test(tc, faults_are_placed);
    tcase_add_loop_test(tc, what_is_no_json_is_refused, 0, ARRAY_LEN(refused));
    tcase_add_test(tc, the_size_of_a_tree_is_told_beforehand);
    tcase_add_test(tc, values_are_counted);
    tcase_add_test(tc, out_of_memory_is_called_that);
    suite_add_tcase(s, tc);
    return s;
}
