/* Numbers within bounds, and multiples, byte by byte against arithmetic: in thousandths, and by decimals of any length. */
#include "engine/schema/schema_number.h"

#include "engine/base/compiler.h"
#include "engine/base/rng.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *schema_number_suite(void);

static struct regex_set *set;
static const struct schema_bound none = {.is_there = false};

static void set_up(void) { ck_assert_int_eq(regex_set_new(0, &set), ERR_OK); }
static void tear_down(void) { regex_set_free(&set); }

static bool says(regex_id r, const char *s)
{
    for (; *s != '\0'; s++) {
        r = regex_next(set, r, (unsigned char)*s);
    }
    return regex_is_nullable(set, r);
}

static struct schema_bound bound(const char *text, bool is_open)
{
    return (struct schema_bound){.is_there = true, .is_open = is_open, .at = schema_decimal_read(text, strlen(text))};
}

static bool is_within(const struct schema_decimal *d, const struct schema_bound *min, const struct schema_bound *max)
{
    int low = min->is_there ? schema_decimal_compare(d, &min->at) : 1;
    int high = max->is_there ? schema_decimal_compare(d, &max->at) : -1;
    return (low > 0 || (low == 0 && !min->is_open)) && (high < 0 || (high == 0 && !max->is_open));
}

/* The text is a number of JSON's form without an exponent. -0 need not be taken. */
static void check_text(regex_id r, const char *text, const struct schema_bound *min, const struct schema_bound *max,
                       bool is_whole, const struct regex_steps *of, const char *what)
{
    struct schema_decimal d = schema_decimal_read(text, strlen(text));
    bool has_fraction = strchr(text, '.') != NULL, is_minus_zero = d.n == 0 && text[0] == '-';
    bool wanted = is_within(&d, min, max) && !(is_whole && has_fraction) &&
                  (of == NULL || schema_decimal_is_multiple(&d, of->m, of->places));
    bool is = says(r, text);
    ck_assert_msg(is == wanted || (is_minus_zero && wanted), "%s: %s is %d", what, text, is);
}

static void check_forms(regex_id r)
{
    static const char *const wrong[] = {"", "-", "007", "1.", ".5", "+1", "1e1", "00", "-01", "0..1", "1.2.3"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        ck_assert_msg(!says(r, wrong[i]), "%s", wrong[i]);
    }
    ck_assert_int_eq(regex_ok(set), ERR_OK);
}

START_TEST(small_bounds)
{
    static const char *const values[] = {"-120", "-100", "-99", "-10", "-1",  "0",   "1",    "2",   "9",
                                         "10",   "11",   "19",  "99",  "100", "101", "1000", "2.5", "-0.25"};
    static const char *const fractions[] = {"", ".0", ".5", ".05", ".500", ".00", ".25", ".251"};
    for (size_t i = 0; i <= ARRAY_LEN(values); i++) {
        for (size_t k = 0; k <= ARRAY_LEN(values); k++) {
            int kind = (int)((i * 7 + k * 3) % 8); /* a part of them */
            struct schema_bound min = i < ARRAY_LEN(values) ? bound(values[i], (kind & 1) != 0) : none;
            struct schema_bound max = k < ARRAY_LEN(values) ? bound(values[k], (kind & 2) != 0) : none;
            bool is_whole = (kind & 4) != 0;
            tear_down();
            set_up();
            regex_id r = schema_numbers(set, &min, &max, is_whole, NULL);
            check_forms(r);
            for (int v = -130; v <= 1300; v += v > 120 ? 97 : 1) {
                for (size_t f = 0; f < ARRAY_LEN(fractions); f++) {
                    char text[32], what[64];
                    snprintf(text, sizeof text, "%d%s", v, fractions[f]);
                    snprintf(what, sizeof what, "%zu to %zu, kind %d", i, k, kind);
                    check_text(r, text, &min, &max, is_whole, NULL, what);
                }
            }
            ck_assert(says(r, "99999999999999999999") == !max.is_there);
            ck_assert(says(r, "-99999999999999999999") == !min.is_there);
        }
    }
}
END_TEST

static uint32_t draws;

static uint32_t draw(uint32_t below) { return (uint32_t)(rng_uniform(7, 0, draws++) * below); }

/* A number of up to so many digits on each side of the point. */
static void draw_number(char *out, size_t whole, size_t fraction)
{
    size_t n = draw((uint32_t)whole + 1), at = 0;
    if (draw(3) == 0) {
        out[at++] = '-';
    }
    for (size_t i = 0; i < n; i++) {
        out[at++] = (char)('0' + (i == 0) + draw(9 + (i > 0)));
    }
    if (n == 0) {
        out[at++] = '0';
    }
    n = draw(2) == 0 ? 0 : draw((uint32_t)fraction + 1);
    out[at] = '.';
    at += n > 0;
    for (size_t i = 0; i < n; i++) {
        out[at++] = (char)('0' + draw(10));
    }
    out[at] = '\0';
}

/* A text near another number's: a digit changed, cut off or added, in front or at the end. */
static void draw_near(const char *of, char *out)
{
    size_t n = strlen(of), first = of[0] == '-';
    memcpy(out, of, n + 1);
    for (uint32_t times = draw(3); times > 0; times--) {
        size_t at = first + draw((uint32_t)(n - first));
        if (out[at] != '.' && !(at == first && n > first + 1 && out[first + 1] != '.')) {
            out[at] = (char)('0' + draw(10));
        }
    }
    bool has_point = strchr(out, '.') != NULL;
    uint32_t what = draw(5);
    if (what == 0 && has_point && out[n - 2] != '.') {
        out[--n] = '\0';
    } else if (what <= 2) {
        if (!has_point && draw(2) == 0) {
            out[n++] = '.';
            has_point = true;
        }
        if (has_point || out[first] != '0') {
            out[n++] = (char)('0' + (draw(2) == 0 ? 0 : draw(10)));
            out[n] = '\0';
        }
    }
}

START_TEST(long_bounds)
{
    enum { ROUNDS = 3000, TEXTS = 60 };
    static const struct regex_steps steps[] = {{1, 0, false},
                                               {1, 2, false},
                                               {5, 2, false},
                                               {25, 3, false},
                                               {7, 0, false},
                                               {3, 1, false},
                                               {1000, 0, false},
                                               {86400, 0, false},
                                               {123, 2, false},
                                               {REGEX_MAX_STEP, 0, false},
                                               {999999999989, 3, false},
                                               {64, 0, false}};
    for (int round = 0; round < ROUNDS; round++) {
        char low[80], high[80], text[120], what[400];
        size_t whole = 1 + draw(round % 3 == 0 ? 25 : 4), fraction = draw(2) == 0 ? 0 : draw(round % 5 == 0 ? 25 : 4);
        draw_number(low, whole, fraction);
        draw_number(high, whole, fraction);
        if (draw(3) == 0) {
            draw_near(low, high);
        }
        struct schema_bound min = bound(low, draw(2) == 0), max = bound(high, draw(2) == 0);
        if (schema_decimal_compare(&min.at, &max.at) > 0) {
            struct schema_bound other = min;
            min = max;
            max = other;
        }
        min.is_there = draw(8) != 0;
        max.is_there = draw(8) != 0;
        bool is_whole = draw(2) == 0;
        struct regex_steps of = steps[draw(ARRAY_LEN(steps))];
        const struct regex_steps *some = draw(2) == 0 ? &of : NULL;
        of.is_whole = is_whole;
        of.places = is_whole ? 0 : of.places;
        snprintf(what, sizeof what, "%s, %s, there %d %d, open %d %d, whole %d, steps %llu / 10^%u", low, high,
                 min.is_there, max.is_there, min.is_open, max.is_open, is_whole,
                 some != NULL ? (unsigned long long)of.m : 0, of.places);
        tear_down();
        set_up();
        regex_id r = schema_numbers(set, &min, &max, is_whole, some);
        check_forms(r);
        bool dead;
        ck_assert_int_eq(regex_is_none(set, r, 0, &dead), ERR_OK); /* without a search */
        for (int i = 0; i < TEXTS; i++) {
            draw_number(text, whole + 1, fraction + 1);
            if (i % 3 > 0) {
                draw_near(i % 3 == 1 ? low : high, text);
            }
            check_text(r, text, &min, &max, is_whole, some, what);
        }
        check_text(r, low, &min, &max, is_whole, some, what);
        check_text(r, high, &min, &max, is_whole, some, what);
    }
}
END_TEST

/* From any state that a walk comes by, something is left to say: so masks lead into no dead end. */
START_TEST(no_dead_ends)
{
    static const struct {
        const char *low, *high;
        struct regex_steps of;
    } rows[] = {{"10", "19", {7, 0, true}},           {"95", "1005", {97, 0, true}},
                {"0.5", "2.25", {7, 1, false}},       {"12", "13", {1, 2, false}},
                {"100", "199", {64, 0, false}},       {"-20", "-11", {6, 0, true}},
                {"0.001", "0.0099", {125, 5, false}}, {"1", "100000", {99991, 0, true}},
                {"15", "16", {100, 0, true}},         {"9", "11", {1, 0, false}}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct schema_bound min = bound(rows[i].low, false), max = bound(rows[i].high, false);
        regex_id states[4096];
        size_t n = 0;
        states[n++] = schema_numbers(set, &min, &max, rows[i].of.is_whole, &rows[i].of);
        for (size_t at = 0; at < n; at++) {
            bool can = regex_is_nullable(set, states[at]) || states[at] == REGEX_NONE;
            for (const char *c = "0123456789.-"; *c != '\0'; c++) {
                regex_id next = regex_next(set, states[at], (unsigned char)*c);
                size_t k = 0;
                while (k < n && states[k] != next) {
                    k++;
                }
                ck_assert_uint_lt(n, ARRAY_LEN(states));
                states[n] = next;
                n += k == n && next != REGEX_NONE;
                can = can || next != REGEX_NONE;
            }
            ck_assert_msg(can, "row %zu, state %zu", i, at);
        }
    }
    struct schema_bound min = bound("15", false), max = bound("16", false);
    ck_assert_uint_eq(schema_numbers(set, &min, &max, true, &rows[8].of), REGEX_NONE); /* 100 has none of 15 .. 16 */
}
END_TEST

/* All texts of up to five digits and a point. */
static void check_multiples(const struct regex_steps *of)
{
    static const char *const fractions[] = {"",     ".0",   ".1",    ".5",  ".25", ".05",
                                            ".005", ".125", ".0625", ".50", ".33", ".99"};
    regex_id r = schema_numbers(set, &none, &none, of->is_whole, of);
    check_forms(r);
    for (int v = -3000; v <= 30000; v += v > 2100 ? 13 : 1) {
        for (size_t k = 0; k < (of->is_whole ? 1 : ARRAY_LEN(fractions)); k++) {
            char text[32];
            snprintf(text, sizeof text, "%d%s", v, fractions[k]);
            check_text(r, text, &none, &none, of->is_whole, of, "multiples");
        }
    }
}

START_TEST(multiples)
{
    static const struct regex_steps all[] = {{1, 0, false},   {2, 0, true},    {3, 0, false},   {7, 0, true},
                                             {10, 0, false},  {77, 0, true},   {1000, 0, true}, {1, 2, false},
                                             {1, 1, false},   {5, 1, false},   {25, 2, false},  {15, 1, false},
                                             {75, 2, false},  {33, 2, false},  {1, 3, false},   {125, 3, false},
                                             {1024, 0, true}, {3600, 0, true}, {1250, 0, false}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        check_multiples(&all[i]);
    }
    ck_assert_uint_le(regex_multiple_states(&all[6], 0, 100), 4); /* 1000 */
    ck_assert_uint_eq(regex_multiple_states(&(struct regex_steps){1000003, 0, true}, 0, 50000), SIZE_MAX);
}
END_TEST

START_TEST(decimals)
{
    static const struct {
        const char *text, *key;
    } keys[] = {{"0", "0"},
                {"-0.00e7", "0"},
                {"12000.0", "12e3"},
                {"-0.0120", "-12e-3"},
                {"1e3", "1e3"},
                {"10E+2", "1e3"},
                {"0.1e1", "1e0"},
                {"100.5", "1005e-1"},
                {"1.20e-5", "12e-6"},
                {"9007199254740993", "9007199254740993e0"},
                {"1e999999999999999999999", "1e1073741824"}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        char key[64];
        struct schema_decimal d = schema_decimal_read(keys[i].text, strlen(keys[i].text));
        ck_assert_uint_eq(schema_decimal_key(&d, key, sizeof key), strlen(keys[i].key));
        ck_assert_str_eq(key, keys[i].key);
    }
    static const char *const in_order[] = {"-1e400",
                                           "-12.5",
                                           "-12",
                                           "-0.5",
                                           "-1e-400",
                                           "0",
                                           "1e-400",
                                           "0.30000000000000004",
                                           "0.5",
                                           "9",
                                           "10",
                                           "10.01",
                                           "9007199254740992",
                                           "9007199254740993",
                                           "1e400"};
    for (size_t i = 0; i < ARRAY_LEN(in_order); i++) {
        for (size_t k = 0; k < ARRAY_LEN(in_order); k++) {
            struct schema_decimal a = schema_decimal_read(in_order[i], strlen(in_order[i]));
            struct schema_decimal b = schema_decimal_read(in_order[k], strlen(in_order[k]));
            ck_assert_int_eq(schema_decimal_compare(&a, &b), (i > k) - (i < k));
        }
    }
    struct schema_decimal one = schema_decimal_read("1e30", 4), part = schema_decimal_read("0.3", 3);
    ck_assert(schema_decimal_is_multiple(&one, 64, 0) && !schema_decimal_is_multiple(&one, 7, 0));
    ck_assert(schema_decimal_is_multiple(&part, 1, 1) && !schema_decimal_is_multiple(&part, 2, 1));
    ck_assert(schema_decimal_is_multiple(&part, 3, 12) && !schema_decimal_is_whole(&part) &&
              schema_decimal_is_whole(&one));
}
END_TEST

Suite *schema_number_suite(void)
{
    Suite *s = suite_create("schema_number");
    TCase *t = tcase_create("schema_number");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, small_bounds);
    tcase_add_test(t, long_bounds);
    tcase_add_test(t, no_dead_ends);
    tcase_add_test(t, multiples);
    tcase_add_test(t, decimals);
    suite_add_tcase(s, t);
    return s;
}
