/* Request bodies: what is JSON, what is too deep, and a table of kinds against every type of value. */
#include "engine/base/buf.h"
#include "fcgi/wire/json_in.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *json_in_suite(void);

static struct err_info info;

static enum err parse_n(const char *text, size_t n)
{
    json_t *root;
    info = (struct err_info){0};
    enum err err = json_in_parse(text, n, &root, &info);
    if ((err == ERR_OK) != (root != NULL)) {
        ck_abort_msg("%s: %s with root %p", text, err_code(err), (void *)root);
    }
    json_decref(root);
    return err;
}

static enum err parse(const char *text) { return parse_n(text, strlen(text)); }

START_TEST(bodies)
{
    static const struct {
        const char *text;
        enum err err;
    } cases[] = {
        {"{}", ERR_OK},
        {" \t\r\n{ \"a\" : [ 1 , null , true , \"\\u0041\\ud83d\\ude00\" ] }\n", ERR_OK},
        {"{\"a\":\"x\\u0000y\"}", ERR_OK},          /* data */
        {"{\"role\\u0000x\":1}", ERR_INVALID_JSON}, /* a name is none */
        {"{\"a\":{\"\\u0000\":1}}", ERR_INVALID_JSON},
        {"{\"a\":-0.0,\"b\":-0,\"c\":1e308,\"d\":9223372036854775807,\"e\":-9223372036854775808}", ERR_OK},
        {"", ERR_INVALID_JSON},
        {" ", ERR_INVALID_JSON},
        {"{", ERR_INVALID_JSON},
        {"{}}", ERR_INVALID_JSON},
        {"{} x", ERR_INVALID_JSON},
        {"[]", ERR_INVALID_JSON},
        {"null", ERR_INVALID_JSON},
        {"5", ERR_INVALID_JSON},
        {"\"{}\"", ERR_INVALID_JSON},
        {"{a:1}", ERR_INVALID_JSON},
        {"{'a':1}", ERR_INVALID_JSON},
        {"{\"a\":1,}", ERR_INVALID_JSON},
        {"{\"a\":}", ERR_INVALID_JSON},
        {"{\"a\":+1}", ERR_INVALID_JSON},
        {"{\"a\":01}", ERR_INVALID_JSON},
        {"{\"a\":1.}", ERR_INVALID_JSON},
        {"{\"a\":.5}", ERR_INVALID_JSON},
        {"{\"a\":0x1}", ERR_INVALID_JSON},
        {"{\"a\":NaN}", ERR_INVALID_JSON},
        {"{\"a\":Infinity}", ERR_INVALID_JSON},
        {"{\"a\":tru}", ERR_INVALID_JSON},
        {"{\"a\":\"\\x41\"}", ERR_INVALID_JSON},
        {"{\"a\":\"\\ud800\"}", ERR_INVALID_JSON}, /* lone surrogates */
        {"{\"a\":\"\\udc00\\ud800\"}", ERR_INVALID_JSON},
        {"{\"a\":\"line\nfeed\"}", ERR_INVALID_JSON},
        {"{\"a\":1/*c*/}", ERR_INVALID_JSON},
        {"\xEF\xBB\xBF{}", ERR_INVALID_JSON}, /* a byte order mark */
        {"{\"a\":\"\xFF\"}", ERR_INVALID_UTF8},
        {"{\"a\":\"\xC0\xAF\"}", ERR_INVALID_UTF8},         /* overlong */
        {"{\"a\":\"\xED\xA0\x80\"}", ERR_INVALID_UTF8},     /* a surrogate */
        {"{\"a\":\"\xF4\x90\x80\x80\"}", ERR_INVALID_UTF8}, /* beyond U+10FFFF */
        {"{\"a\":\"\xE2\x82", ERR_INVALID_UTF8},
        {"{\"a\":1,\"a\":1}", ERR_DUPLICATE_FIELD},
        {"{\"a\":1,\"\\u0061\":2}", ERR_DUPLICATE_FIELD},
        {"{\"x\":[{\"a\":1,\"a\":2}]}", ERR_DUPLICATE_FIELD},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum err err = parse(cases[i].text);
        ck_assert_msg(err == cases[i].err, "%s: expected %s, found %s (%s)", cases[i].text, err_code(cases[i].err),
                      err_code(err), info.text);
        ck_assert_msg(err == ERR_OK || info.text[0] != '\0', "%s: no message", cases[i].text);
    }
    ck_assert_int_eq(parse_n("{}\0", 3), ERR_INVALID_JSON);
    ck_assert_int_eq(parse_n("\0", 1), ERR_INVALID_JSON);
}
END_TEST

/* A number of any size passes where no field has a range; a field with one names itself and shows the digits. */
START_TEST(numbers_beyond_all_bounds_name_their_field)
{
    static const struct {
        const char *text, *field, *shown;
    } cases[] = {
        {"{\"temperature\":1e400}", "temperature", "temperature: expected 0 to 2, found 1e400"},
        {"{\"temperature\":-1e400}", "temperature", "found -1e400"},
        {"{\"a\":\"x\",\"seed\":18446744073709551616}", "seed", "found 18446744073709551616"},
        {"{\"a\":{\"b\":[1,2]},\"seed\":1000000000000000000000000000000,\"c\":1}", "seed",
         "found 1000000000000000000000000000000"},
        {"{\"n\":-1000000000000000000000000000000}", "n", "n: expected 1 to 8, found -1000000000000000000000000000000"},
        {"{\"n\":1e400}", "n", "n: expected 1 to 8, found 1e400"},
        {"{\"\xC3\xA9\":[18446744073709551616,{\"a\":1e400}]}", NULL, NULL},
    };
    struct {
        uint64_t seed;
        int64_t n;
        float temperature;
    } to;
    const struct field table[] = {{"seed", FIELD_UINT64, (size_t)((char *)&to.seed - (char *)&to), 0, 0},
                                  {"n", FIELD_INT, (size_t)((char *)&to.n - (char *)&to), 1, 8},
                                  {"temperature", FIELD_FLOAT, (size_t)((char *)&to.temperature - (char *)&to), 0, 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *root;
        info = (struct err_info){0};
        ck_assert_int_eq(json_in_parse(cases[i].text, strlen(cases[i].text), &root, &info), ERR_OK);
        enum err err = json_in_fields(root, table, ARRAY_LEN(table), false, &to, &info);
        ck_assert_int_eq(err, cases[i].field != NULL ? ERR_INVALID_VALUE : ERR_OK);
        if (cases[i].field != NULL) {
            ck_assert_str_eq(info.where, cases[i].field);
            ck_assert_msg(strstr(info.text, cases[i].shown) != NULL, "%s", info.text);
        }
        json_decref(root);
    }
}
END_TEST

/* {"a":[[...]]} with `depth` levels in all. */
static enum err parse_depth(size_t depth, char open, char close)
{
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    buf_puts(&b, "{\"a\":");
    for (size_t i = 1; i < depth; i++) {
        buf_puts(&b, open == '{' ? "{\"a\":" : "[");
    }
    buf_puts(&b, "1");
    for (size_t i = 1; i < depth; i++) {
        buf_putc(&b, close);
    }
    buf_putc(&b, '}');
    enum err err = parse_n(b.data, b.len);
    buf_fini(&b);
    return err;
}

START_TEST(nesting_ends_at_the_limit)
{
    ck_assert_int_eq(parse_depth(JSON_IN_MAX_DEPTH, '[', ']'), ERR_OK);
    ck_assert_int_eq(parse_depth(JSON_IN_MAX_DEPTH, '{', '}'), ERR_OK);
    ck_assert_int_eq(parse_depth(JSON_IN_MAX_DEPTH + 1, '[', ']'), ERR_JSON_TOO_DEEP);
    ck_assert_int_eq(parse_depth(JSON_IN_MAX_DEPTH + 1, '{', '}'), ERR_JSON_TOO_DEEP);
    ck_assert_int_eq(parse_depth(200000, '[', ']'), ERR_JSON_TOO_DEEP);
    static char open[100001];
    memset(open, '[', sizeof open - 1);
    ck_assert_int_eq(parse(open), ERR_JSON_TOO_DEEP);
    /* Brackets in strings do not count, whatever is escaped around them. */
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    buf_puts(&b, "{\"a\":\"\\\\\\\"");
    for (int i = 0; i < 1000; i++) {
        buf_putc(&b, '[');
    }
    buf_puts(&b, "\"}");
    ck_assert_int_eq(parse_n(b.data, b.len), ERR_OK);
    buf_fini(&b);
}
END_TEST

/* --- fields ----------------------------------------------------------------------------------------------------- */

struct target {
    bool b;
    int64_t i;
    int32_t i32;
    uint64_t u;
    float f;
    const char *s;
};

static const struct field table[] = {
    {"b", FIELD_BOOL, offsetof(struct target, b), 0, 0},
    {"i", FIELD_INT, offsetof(struct target, i), -5, 1e12},
    {"i32", FIELD_INT32, offsetof(struct target, i32), -1, 2147483647.0},
    {"u", FIELD_UINT64, offsetof(struct target, u), 0, 0},
    {"f", FIELD_FLOAT, offsetof(struct target, f), -2, 2},
    {"s", FIELD_STRING, offsetof(struct target, s), 0, 4},
    {"ignored", FIELD_IGNORED, 0, 0, 0},
    {"custom", FIELD_CUSTOM, 0, 0, 0},
    {"refused", FIELD_REFUSED, 0, 0, 0},
};

static struct target got;

static enum err read(const char *text, bool strict)
{
    static json_t *root; /* strings of `got` point into it */
    json_decref(root);
    info = (struct err_info){0};
    got = (struct target){.b = true, .i = 77, .i32 = 77, .u = 77, .f = 77, .s = "77"};
    enum err err = json_in_parse(text, strlen(text), &root, &info);
    return err != ERR_OK ? err : json_in_fields(root, table, ARRAY_LEN(table), strict, &got, &info);
}

START_TEST(what_is_ignored_is_not_large)
{
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    for (int more = 0; more <= 1; more++) {
        enum err expected = more ? ERR_INVALID_VALUE : ERR_OK;
        buf_reset(&text);
        buf_puts(&text, "{\"ignored\":\"");
        for (int i = 0; i < JSON_IN_IGNORED_BYTES + more; i++) {
            buf_putc(&text, 'x');
        }
        buf_puts(&text, "\"}");
        ck_assert_int_eq(read(text.data, false), expected);
        for (int is_object = 0; is_object <= 1; is_object++) {
            buf_reset(&text);
            buf_puts(&text, is_object ? "{\"ignored\":{" : "{\"ignored\":[");
            for (int i = 0; i < JSON_IN_MAX_FIELDS + more; i++) {
                buf_puts(&text, i > 0 ? "," : "");
                buf_printf(&text, is_object ? "\"%d\":0" : "%d", i);
            }
            buf_puts(&text, is_object ? "}}" : "]}");
            ck_assert_int_eq(read(text.data, false), expected);
        }
        ck_assert_str_eq(info.where, more ? "ignored" : "");
    }
    buf_fini(&text);
}
END_TEST

START_TEST(each_kind_takes_its_type_alone)
{
    static const char *const values[] = {"true", "5", "1.5", "\"x\"", "[]", "[1]", "{}", "{\"a\":1}", "false"};
    static const struct {
        const char *name, *takes; /* a digit for each of values: 1 = taken, t = invalid_type, u = unsupported */
    } kinds[] = {
        {"b", "1ttttttt1"},       {"i", "t1ttttttt"},      {"i32", "t1ttttttt"},
        {"u", "t1ttttttt"},       {"f", "tv1tttttt"},      {"s", "ttt1ttttt"},
        {"ignored", "111111111"}, {"custom", "111111111"}, {"refused", "uuuu1uuu1"},
    };
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
            char text[64];
            snprintf(text, sizeof text, "{\"%s\":%s}", kinds[k].name, values[i]);
            enum err err = read(text, true);
            char c = kinds[k].takes[i];
            enum err expected = c == '1'   ? ERR_OK
                                : c == 't' ? ERR_INVALID_TYPE
                                : c == 'v' ? ERR_INVALID_VALUE
                                           : ERR_UNSUPPORTED_PARAMETER;
            ck_assert_msg(err == expected, "%s: expected %s, found %s", text, err_code(expected), err_code(err));
            ck_assert_msg(err == ERR_OK || strcmp(info.where, kinds[k].name) == 0, "%s: where is '%s'", text,
                          info.where);
        }
    }
}
END_TEST

START_TEST(ranges_are_kept)
{
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        {"{\"i\":-5}", true},
        {"{\"i\":-6}", false},
        {"{\"i\":1000000000000}", true},
        {"{\"i\":1000000000001}", false},
        {"{\"i\":9223372036854775807}", false},
        {"{\"i32\":2147483647}", true},
        {"{\"i32\":2147483648}", false},
        {"{\"i32\":4294967296}", false},
        {"{\"i32\":-2}", false},
        {"{\"f\":2}", true},
        {"{\"f\":-2.0}", true},
        {"{\"f\":2.0000001}", false},
        {"{\"f\":-2.0001}", false},
        {"{\"f\":1e308}", false},
        {"{\"f\":1e-400}", true},
        {"{\"s\":\"1234\"}", true},
        {"{\"s\":\"12345\"}", false},
        {"{\"s\":\"\xE2\x82\xAC\xC3\xA9\"}", false},
        {"{\"s\":\"a\\u0000\"}", false},
        {"{\"s\":\"\"}", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum err err = read(cases[i].text, false);
        ck_assert_msg(err == (cases[i].ok ? ERR_OK : ERR_INVALID_VALUE), "%s: %s", cases[i].text, err_code(err));
    }
    ck_assert_int_eq(read("{\"i\":-5,\"i32\":-1,\"u\":-1,\"f\":-0.0,\"s\":\"ab\",\"b\":false}", true), ERR_OK);
    ck_assert(got.i == -5 && got.i32 == -1 && got.u == UINT64_MAX && got.f == 0 && signbit(got.f) && !got.b);
    ck_assert_str_eq(got.s, "ab");
    ck_assert_int_eq(read("{\"u\":9223372036854775807}", true), ERR_OK);
    ck_assert(got.u == INT64_MAX);
}
END_TEST

START_TEST(whole_numbers_are_integers_in_any_notation)
{
    static const struct {
        const char *text;
        enum err err;
        int64_t i;
    } cases[] = {
        {"{\"i\":2.0}", ERR_OK, 2},
        {"{\"i\":-5.0}", ERR_OK, -5},
        {"{\"i\":1e12}", ERR_OK, 1000000000000},
        {"{\"i\":40.0e1}", ERR_OK, 400},
        {"{\"i\":-0.0}", ERR_OK, 0},
        {"{\"i\":-6.0}", ERR_INVALID_VALUE, 77},
        {"{\"i\":1e13}", ERR_INVALID_VALUE, 77},
        {"{\"i\":2.5}", ERR_INVALID_TYPE, 77},
        {"{\"i\":1e-5}", ERR_INVALID_TYPE, 77},
        {"{\"i\":1e19}", ERR_INVALID_TYPE, 77}, /* 64 bits do not hold it */
        {"{\"i\":-1e300}", ERR_INVALID_TYPE, 77},
        {"{\"i\":\"2\"}", ERR_INVALID_TYPE, 77},
    };
    int64_t out = 1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum err err = read(cases[i].text, false);
        ck_assert_msg(err == cases[i].err && got.i == cases[i].i, "%s: %s, %lld", cases[i].text, err_code(err),
                      (long long)got.i);
    }
    ck_assert_int_eq(read("{\"i32\":2147483647.0,\"u\":-1.0}", true), ERR_OK);
    ck_assert(got.i32 == INT32_MAX && got.u == UINT64_MAX);
    ck_assert_int_eq(read("{\"i32\":2147483648.0}", true), ERR_INVALID_VALUE);
    ck_assert(!json_in_integer(NULL, &out) && out == 0);
}
END_TEST

START_TEST(null_equals_absent)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"%s\":null}", table[i].name);
        ck_assert_msg(read(text, true) == ERR_OK, "%s: %s", text, info.text);
        ck_assert(got.b && got.i == 77 && got.i32 == 77 && got.u == 77 && got.f == 77 && strcmp(got.s, "77") == 0);
    }
    json_t *o = json_pack("{s:n,s:i}", "a", "b", 1);
    ck_assert_ptr_null(json_read_get(o, "a"));
    ck_assert_ptr_null(json_read_get(o, "c"));
    ck_assert_ptr_nonnull(json_read_get(o, "b"));
    ck_assert_ptr_null(json_read_get(NULL, "b"));
    json_decref(o);
}
END_TEST

START_TEST(unknown_fields_are_told_only_when_strict)
{
    ck_assert_int_eq(read("{\"i\":1,\"unknown\":{\"x\":[1]}}", false), ERR_OK);
    ck_assert_int_eq(got.i, 1);
    ck_assert_int_eq(read("{\"i\":1,\"unknown\":1}", true), ERR_UNKNOWN_PARAMETER);
    ck_assert_str_eq(info.where, "unknown");
    ck_assert_int_eq(read("{\"I\":1}", true), ERR_UNKNOWN_PARAMETER); /* names are case-sensitive */
    ck_assert_int_eq(read("{\"\":1}", true), ERR_UNKNOWN_PARAMETER);
    ck_assert_int_eq(read("{\"\\u001b[2J\":1}", true), ERR_UNKNOWN_PARAMETER);
    ck_assert_msg(strchr(info.where, 0x1b) == NULL && strchr(info.text, 0x1b) == NULL,
                  "a control character is passed on");
}
END_TEST

START_TEST(fields_are_counted)
{
    for (int n = JSON_IN_MAX_FIELDS; n <= JSON_IN_MAX_FIELDS + 1; n++) {
        struct buf b;
        buf_init(&b, 0, MEM_GENERAL);
        for (int i = 0; i < n; i++) {
            buf_printf(&b, "%c\"k%d\":%d", i == 0 ? '{' : ',', i, i);
        }
        buf_putc(&b, '}');
        ck_assert_int_eq(read(b.data, false), n <= JSON_IN_MAX_FIELDS ? ERR_OK : ERR_INVALID_VALUE);
        buf_fini(&b);
    }
}
END_TEST

START_TEST(types_have_names)
{
    static const struct {
        const char *text, *name;
    } cases[] = {{"{}", "an object"},
                 {"[]", "an array"},
                 {"\"\"", "a string"},
                 {"1", "an integer"},
                 {"1.5", "a number with a fraction"},
                 {"null", "null"},
                 {"true", "a boolean"},
                 {"false", "a boolean"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *v = json_loads(cases[i].text, JSON_DECODE_ANY, NULL);
        ck_assert_str_eq(json_read_type_name(v), cases[i].name);
        json_decref(v);
    }
}
END_TEST

Suite *json_in_suite(void)
{
    Suite *s = suite_create("json_in");
    TCase *t = tcase_create("json_in");
    tcase_add_test(t, bodies);
    tcase_add_test(t, numbers_beyond_all_bounds_name_their_field);
    tcase_add_test(t, nesting_ends_at_the_limit);
    tcase_add_test(t, what_is_ignored_is_not_large);
    tcase_add_test(t, each_kind_takes_its_type_alone);
    tcase_add_test(t, ranges_are_kept);
    tcase_add_test(t, whole_numbers_are_integers_in_any_notation);
    tcase_add_test(t, null_equals_absent);
    tcase_add_test(t, unknown_fields_are_told_only_when_strict);
    tcase_add_test(t, fields_are_counted);
    tcase_add_test(t, types_have_names);
    suite_add_tcase(s, t);
    return s;
}
