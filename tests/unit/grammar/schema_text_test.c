/* Numbers within bounds against arithmetic; formats by examples. */
#include "engine/grammar/schema_text.h"

#include "engine/base/compiler.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *schema_text_suite(void);

static struct regex_set *set;

static void set_up(void) { ck_assert_int_eq(regex_set_new(0, &set), ERR_OK); }
static void tear_down(void) { regex_set_free(&set); }

static bool says(regex_id r, const char *s)
{
    for (; *s != '\0'; s++) {
        r = regex_next(set, r, (unsigned char)*s);
    }
    return regex_is_nullable(set, r);
}

static bool is_within(double v, struct schema_bound min, struct schema_bound max)
{
    return (!min.is_there || v > (double)min.value || (v == (double)min.value && !min.is_open)) &&
           (!max.is_there || v < (double)max.value || (v == (double)max.value && !max.is_open));
}

static void check(struct schema_bound min, struct schema_bound max, bool is_whole)
{
    static const char *const fractions[] = {"", ".0", ".5", ".05", ".500", ".00"};
    regex_id r = schema_numbers(set, min, max, is_whole);
    for (int v = -130; v <= 1300; v += v > 120 ? 97 : 1) {
        for (size_t k = 0; k < ARRAY_LEN(fractions); k++) {
            char text[32];
            snprintf(text, sizeof text, "%d%s", v, fractions[k]);
            bool wanted = is_within(strtod(text, NULL), min, max) && (!is_whole || k == 0);
            ck_assert_msg(says(r, text) == wanted, "%s in %d:%d:%d .. %d:%d:%d, whole %d", text, min.is_there,
                          (int)min.value, min.is_open, max.is_there, (int)max.value, max.is_open, is_whole);
        }
    }
    ck_assert(!says(r, "") && !says(r, "-") && !says(r, "007") && !says(r, "1.") && !says(r, ".5") && !says(r, "+1") &&
              !says(r, "1e1"));
    ck_assert(says(r, "99999999999999999999") == (!max.is_there));
    ck_assert(says(r, "-99999999999999999999") == (!min.is_there));
}

START_TEST(numbers_within_bounds)
{
    static const int values[] = {-120, -100, -99, -10, -1, 0, 1, 2, 9, 10, 11, 19, 99, 100, 101, 1000};
    for (size_t i = 0; i <= ARRAY_LEN(values); i++) {
        for (size_t k = 0; k <= ARRAY_LEN(values); k++) {
            for (int kind = 0; kind < 8; kind++) {
                struct schema_bound min = {i < ARRAY_LEN(values), (kind & 1) != 0,
                                           i < ARRAY_LEN(values) ? values[i] : 0};
                struct schema_bound max = {k < ARRAY_LEN(values), (kind & 2) != 0,
                                           k < ARRAY_LEN(values) ? values[k] : 0};
                if ((i * 7 + k * 3 + (size_t)kind) % 5 == 0 || i == k) { /* a part of them: a second instead of five */
                    tear_down();
                    set_up();
                    check(min, max, (kind & 4) != 0);
                }
            }
        }
    }
    struct schema_bound far = {true, false, SCHEMA_MAX_BOUND}, none = {false, false, 0};
    regex_id r = schema_numbers(set, far, none, true);
    ck_assert(says(r, "1000000000000000") && !says(r, "999999999999999") && says(r, "9000000000000000000000"));
}
END_TEST

/* Texts of numbers with the value in thousandths. */
static int write_number(char *text, size_t cap, int front, const char *fraction, bool is_negative)
{
    char digits[4] = "000";
    memcpy(digits, fraction, strlen(fraction) < 3 ? strlen(fraction) : 3);
    snprintf(text, cap, "%s%d%s%s", is_negative ? "-" : "", front, fraction[0] != '\0' ? "." : "", fraction);
    return (is_negative ? -1 : 1) * (front * 1000 + atoi(digits));
}

static const char *const some_fractions[] = {"",     "0",   "1",  "2",   "5",   "9",   "00",   "01",   "05",    "24",
                                             "25",   "26",  "50", "99",  "009", "125", "249",  "250",  "251",   "500",
                                             "5000", "999", "33", "333", "010", "100", "2500", "2400", "25000", "75"};

START_TEST(decimals)
{
    static const struct schema_decimal bounds[] = {{0, 0},     {25, 2},   {5, 1},    {-25, 2}, {-5, 1}, {105, 1},
                                                   {-1051, 2}, {1, 3},    {999, 3},  {-1, 3},  {10, 0}, {-10, 0},
                                                   {250, 3},   {1010, 2}, {9999, 2}, {-25, 1}, {1, 12}, {3, 0}};
    static const int fronts[] = {0, 1, 2, 3, 9, 10, 11, 99, 100, 1000};
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        for (int kind = 0; kind < 4; kind++) {
            bool is_min = (kind & 1) != 0, is_open = (kind & 2) != 0;
            regex_id r = schema_numbers_from(set, bounds[i], is_min, is_open);
            double bound = (double)bounds[i].value * 1000;
            for (int p = 0; p < bounds[i].places; p++) {
                bound /= 10;
            }
            for (size_t f = 0; f < ARRAY_LEN(fronts) * ARRAY_LEN(some_fractions) * 2; f++) {
                char text[32];
                int v = write_number(text, sizeof text, fronts[f / 2 % ARRAY_LEN(fronts)],
                                     some_fractions[f / 2 / ARRAY_LEN(fronts)], (f & 1) != 0);
                bool wanted = is_min ? v > bound || (v == bound && !is_open) : v < bound || (v == bound && !is_open);
                bool minus_zero = v == 0 && (f & 1) != 0; /* need not be one of them */
                ck_assert_msg(says(r, text) == wanted || (minus_zero && wanted), "%s and bound %zu, %d", text, i, kind);
            }
            ck_assert(!says(r, "") && !says(r, "-") && !says(r, "007") && !says(r, "1.") && !says(r, ".5") &&
                      !says(r, "1e1"));
        }
    }
}
END_TEST

START_TEST(multiples)
{
    static const struct schema_decimal all[] = {{1, 0},    {2, 0},  {3, 0}, {7, 0},  {10, 0}, {77, 0},
                                                {1000, 0}, {1, 2},  {1, 1}, {5, 1},  {25, 2}, {15, 1},
                                                {75, 2},   {33, 2}, {1, 3}, {125, 3}};
    static const int fronts[] = {0, 1, 2, 3, 5, 6, 7, 8, 10, 12, 14, 21, 33, 70, 77, 100, 150, 154, 1000, 1001, 3000};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        regex_id r = schema_multiples(set, all[i]);
        int of = (int)all[i].value;
        for (int p = all[i].places; p < 3; p++) {
            of *= 10;
        }
        for (size_t f = 0; f < ARRAY_LEN(fronts) * ARRAY_LEN(some_fractions) * 2; f++) {
            char text[32];
            int v = write_number(text, sizeof text, fronts[f / 2 % ARRAY_LEN(fronts)],
                                 some_fractions[f / 2 / ARRAY_LEN(fronts)], (f & 1) != 0);
            ck_assert_msg(says(r, text) == (v % of == 0), "%s and multiple %zu", text, i);
        }
        ck_assert(!says(r, "") && !says(r, "-") && !says(r, "1.") && !says(r, ".5") && !says(r, "00"));
    }
    ck_assert_int_eq(regex_ok(set), ERR_OK);
}
END_TEST

START_TEST(formats)
{
    static const struct {
        const char *name, *right[8], *wrong[10];
    } all[] = {
        {"date",
         {"2024-02-29", "2000-02-29", "1999-12-31", "0400-02-29"},
         {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "2024-1-1", "0000-01-01", "2024-01-01T"}},
        {"time", {"23:59:59Z", "00:00:00.123+05:30"}, {"24:00:00Z", "12:00:00", "12:60:00Z", "12:00Z", "12:00:00z"}},
        {"date-time",
         {"2024-02-29T12:00:00Z", "1985-04-12T23:20:50.52-08:00"},
         {"2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29"}},
        {"email", {"a@b", "first.last+tag@sub.example.com"}, {"a", "@b", "a@", "a..b@c", ".a@b", "a@-b", "a b@c"}},
        {"hostname", {"a", "a-b.example.com", "1.2"}, {"-a", "a-", "a..b", "a_b", "", "xn--a", "a.ab--c"}},
        {"ipv4", {"0.0.0.0", "255.249.10.1"}, {"256.1.1.1", "1.1.1", "01.1.1.1", "1.1.1.1.1"}},
        {"ipv6",
         {"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1", "1::", "1:2::7:8"},
         {"1:2:3:4:5:6:7", ":::", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9", ":1"}},
        {"uri",
         {"http://example.com/a?b=c#d", "urn:isbn:123", "mailto:a@b.c", "file:///etc", "a:", "http://u:p@h:80/%20"},
         {"example.com", "//a/b", "http://a b", "1http://a", "http://a/%2", "http://[a", "http://a/\\"}},
        {"uri-reference", {"", "a/b", "/a", "//h/p", "#x", "?q", "http://a", "../a"}, {"a b", "%", "\\a", "#a#b"}},
        {"uuid",
         {"123e4567-e89b-12d3-A456-426614174000"},
         {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
          "g23e4567-e89b-12d3-a456-426614174000"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        regex_id r;
        ck_assert_int_eq(schema_format_of(set, all[i].name, &r), SCHEMA_FORMAT_KNOWN);
        ck_assert_int_eq(regex_ok(set), ERR_OK);
        for (size_t k = 0; k < 8 && all[i].right[k] != NULL; k++) {
            ck_assert_msg(says(r, all[i].right[k]), "%s: %s", all[i].name, all[i].right[k]);
        }
        for (size_t k = 0; k < 10 && all[i].wrong[k] != NULL; k++) {
            ck_assert_msg(!says(r, all[i].wrong[k]), "%s: %s", all[i].name, all[i].wrong[k]);
        }
    }
    regex_id r;
    ck_assert_int_eq(schema_format_of(set, "regex", &r), SCHEMA_FORMAT_REFUSED);
    ck_assert_int_eq(schema_format_of(set, "color", &r), SCHEMA_FORMAT_UNKNOWN);
}
END_TEST

/* Letters, dashes and dots: as RFC 1123 has it, and without -- at a label's third and fourth place. */
static bool is_host(const char *text, size_t n)
{
    bool is = n > 0 && n <= 253;
    for (size_t i = 0, begin = 0; is && i <= n; i++) {
        if (i == n || text[i] == '.') {
            size_t len = i - begin;
            is = len >= 1 && len <= 63 && text[begin] != '-' && text[i - 1] != '-' &&
                 (len < 4 || text[begin + 2] != '-' || text[begin + 3] != '-');
            begin = i + 1;
        }
    }
    return is;
}

START_TEST(host_names)
{
    regex_id r;
    char text[256] = "";
    ck_assert_int_eq(schema_format_of(set, "hostname", &r), SCHEMA_FORMAT_KNOWN);
    for (int n = 0, all = 1; n <= 8; n++, all *= 3) { /* all texts */
        for (int i = 0; i < all; i++) {
            for (int k = 0, left = i; k < n; k++, left /= 3) {
                text[k] = "a-."[left % 3];
            }
            text[n] = '\0';
            ck_assert_msg(says(r, text) == is_host(text, (size_t)n), "%s", text);
        }
    }
    for (size_t n = 60; n < 256; n++) { /* labels and names of all lengths */
        memset(text, 'a', n);
        text[n] = '\0';
        ck_assert_msg(says(r, text) == (n <= 63), "%zu", n);
        for (size_t k = 50; k + 1 < n; k += 51) {
            text[k] = '.';
        }
        ck_assert_msg(says(r, text) == is_host(text, n), "%s", text);
    }
    /* What is dead is seen so at once, as each mask comes by there. */
    for (const char *at = "co--"; *at != '\0'; at++) {
        r = regex_next(set, r, (unsigned char)*at);
    }
    ck_assert_uint_eq(r, REGEX_NONE);
}
END_TEST

Suite *schema_text_suite(void)
{
    Suite *s = suite_create("schema_text");
    TCase *t = tcase_create("schema_text");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, numbers_within_bounds);
    tcase_add_test(t, formats);
    tcase_add_test(t, host_names);
    tcase_add_test(t, decimals);
    tcase_add_test(t, multiples);
    suite_add_tcase(s, t);
    return s;
}
