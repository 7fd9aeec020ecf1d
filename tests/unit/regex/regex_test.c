/* Expressions against languages that are computed as sets of words; characters, JSON strings, limits. */
#include "engine/regex/regex.h"

#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "tests/unit/regex/words.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *regex_suite(void);

static struct regex_set *set;

static void set_up(void) { ck_assert_int_eq(regex_set_new(0, &set), ERR_OK); }

static void tear_down(void) { regex_set_free(&set); }

static bool matches(regex_id r, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        r = regex_next(set, r, (unsigned char)s[i]);
    }
    return regex_is_nullable(set, r);
}

static bool says(regex_id r, const char *s) { return matches(r, s, strlen(s)); }

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* --- languages ---------------------------------------------------------------------------------------------------- */

enum { N_MADE = 1500 };

static struct {
    regex_id id;
    uint64_t words;
    uint32_t size;
} made[N_MADE];

static void make(int i, uint32_t *state)
{
    uint32_t a = random_below(state, (uint32_t)i), b = random_below(state, (uint32_t)i), min = random_below(state, 3);
    uint32_t max = random_below(state, 3) == 0 ? REGEX_UNBOUNDED : min + random_below(state, 3);
    if (made[a].size + made[b].size > 12) { /* what is made of much has ever more states */
        a = b = random_below(state, 4);
    }
    made[i].size = made[a].size + made[b].size;
    switch (random_below(state, 5)) {
    case 0:
        made[i].id = regex_concat(set, made[a].id, made[b].id);
        made[i].words = words_concat(made[a].words, made[b].words);
        break;
    case 1:
        made[i].id = regex_or(set, made[a].id, made[b].id);
        made[i].words = made[a].words | made[b].words;
        break;
    case 2:
        made[i].id = regex_and(set, made[a].id, made[b].id);
        made[i].words = made[a].words & made[b].words;
        break;
    case 3:
        made[i].id = regex_not(set, made[a].id);
        made[i].words = words_all & ~made[a].words;
        break;
    default:
        made[i].id = regex_repeat(set, made[a].id, min, max);
        made[i].words = words_repeat(made[a].words, min, max);
        break;
    }
}

START_TEST(random_expressions)
{
    uint32_t state = 1;
    char word[WORDS_LONGEST + 1];
    made[0].id = regex_bytes(set, "a", 1);
    made[0].words = words_a;
    made[1].id = regex_bytes(set, "b", 1);
    made[1].words = words_b;
    made[2].id = REGEX_EMPTY;
    made[2].words = words_empty;
    made[3].id = regex_byte_range(set, 'a', 'b');
    made[3].words = words_a | words_b;
    for (int i = 0; i < N_MADE; i++) {
        made[i].size = 1;
        if (i >= 4) {
            make(i, &state);
        }
        for (int w = 0; w < N_WORDS; w++) {
            size_t n = (size_t)word_at(w, word);
            bool wanted = (made[i].words >> w & 1) != 0;
            ck_assert_msg(matches(made[i].id, word, n) == wanted, "expression %d and '%s'", i, word);
        }
        bool none;
        ck_assert_int_eq(regex_is_none(set, made[i].id, 100000, &none), ERR_OK);
        ck_assert_msg(!none || made[i].words == 0, "expression %d has words", i);
        regex_id near = regex_near(set, made[i].id, WORDS_LONGEST);
        for (int w = 0; w < N_WORDS; w++) {
            size_t n = (size_t)word_at(w, word);
            ck_assert_msg(matches(near, word, n) == ((made[i].words >> w & 1) != 0), "near expression %d and '%s'", i,
                          word);
        }
    }
    ck_assert_int_eq(regex_ok(set), ERR_OK);
}
END_TEST

START_TEST(equal_ones_are_one)
{
    regex_id a = regex_bytes(set, "ab", 2), b = regex_bytes(set, "c", 1), c = regex_bytes(set, "de", 2);
    ck_assert_uint_eq(regex_or(set, a, regex_or(set, b, c)), regex_or(set, regex_or(set, c, b), regex_or(set, a, a)));
    ck_assert_uint_eq(regex_and(set, a, regex_and(set, b, c)), regex_and(set, c, regex_and(set, a, b)));
    ck_assert_uint_eq(regex_concat(set, a, regex_concat(set, b, c)), regex_concat(set, regex_concat(set, a, b), c));
    ck_assert_uint_eq(regex_not(set, regex_not(set, a)), a);
    ck_assert_uint_eq(regex_or(set, a, REGEX_ALL), REGEX_ALL);
    ck_assert_uint_eq(regex_and(set, a, REGEX_ALL), a);
    ck_assert_uint_eq(regex_concat(set, a, REGEX_NONE), REGEX_NONE);
    ck_assert_uint_eq(regex_or(set, regex_repeat(set, b, 0, 5), REGEX_EMPTY), regex_repeat(set, b, 0, 5));

    struct regex_set *other; /* the same forms hash the same in another set, whatever was made before */
    ck_assert_int_eq(regex_set_new(0, &other), ERR_OK);
    regex_id x = regex_bytes(other, "de", 2), y = regex_bytes(other, "ab", 2);
    struct regex_hash h = regex_hash(set, regex_or(set, a, c)), k = regex_hash(other, regex_or(other, x, y));
    ck_assert(h.a == k.a && h.b == k.b);
    k = regex_hash(other, x);
    ck_assert(h.a != k.a && h.b != k.b && h.a != h.b);
    regex_set_free(&other);
}
END_TEST

/* Is there a word? Also where no two strings of the parts look alike. */
START_TEST(empty_intersections)
{
    regex_id even = regex_repeat(set, regex_bytes(set, "aa", 2), 0, REGEX_UNBOUNDED);
    regex_id odd = regex_concat(set, regex_bytes(set, "a", 1), even);
    bool none;
    ck_assert_int_eq(regex_is_none(set, regex_and(set, even, odd), 1000, &none), ERR_OK);
    ck_assert(none);
    ck_assert_int_eq(
        regex_is_none(set, regex_and(set, odd, regex_repeat(set, regex_bytes(set, "aaa", 3), 1, 9)), 1000, &none),
        ERR_OK);
    ck_assert(!none);
    ck_assert_int_eq(regex_is_none(set, REGEX_NONE, 1000, &none), ERR_OK);
    ck_assert(none);
    regex_id far = regex_and(set, regex_repeat(set, regex_bytes(set, "a", 1), 5000, 5000),
                             regex_repeat(set, regex_bytes(set, "aa", 2), 0, 2499));
    ck_assert_int_eq(regex_is_none(set, far, 100, &none), ERR_GRAMMAR_LIMIT);
    ck_assert_int_eq(regex_is_none(set, far, 100000, &none), ERR_OK);
    ck_assert(none);
}
END_TEST

START_TEST(counts_are_no_copies)
{
    regex_id r = regex_repeat(set, regex_byte_range(set, 'a', 'z'), 1000000, 2000000);
    size_t before = regex_set_bytes(set);
    for (int i = 0; i < 1000; i++) {
        r = regex_next(set, r, 'q');
        ck_assert_uint_ne(r, REGEX_NONE);
    }
    ck_assert_uint_lt(regex_set_bytes(set) - before, 1u << 20);
    ck_assert_uint_eq(regex_near(set, r, 200), regex_near(set, regex_next(set, r, 'c'), 200));
    ck_assert_uint_ne(regex_near(set, regex_repeat(set, regex_byte_range(set, 'a', 'z'), 0, 200), 200),
                      regex_near(set, regex_repeat(set, regex_byte_range(set, 'a', 'z'), 0, 201), 200));
}
END_TEST

/* --- characters ---------------------------------------------------------------------------------------------------- */

START_TEST(characters)
{
    static const uint32_t edges[] = {0,      0x41,   0x7f,    0x80,    0x7ff,   0x800,   0xfff,   0x1000,   0xd7ff,
                                     0xe000, 0xffff, 0x10000, 0x2f800, 0x3ffff, 0x40000, 0xfffff, 0x100000, 0x10ffff};
    uint32_t state = 3;
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
        for (size_t k = i; k < ARRAY_LEN(edges); k++) {
            const struct regex_range range = {edges[i], edges[k]};
            regex_id r = regex_code_points(set, &range, 1);
            for (int t = 0; t < 40; t++) {
                char s[4];
                uint32_t c = t < (int)ARRAY_LEN(edges) ? edges[t] : random_below(&state, 0x110000);
                if (c >= 0xd800 && c <= 0xdfff) {
                    continue;
                }
                ck_assert_msg(matches(r, s, utf8_encode(c, s)) == (c >= edges[i] && c <= edges[k]), "%x in %x-%x", c,
                              edges[i], edges[k]);
            }
            ck_assert(!says(r, "\xed\xa0\x80") && !says(r, "\xc0\x80") && !says(r, "\xf4\x90\x80\x80") &&
                      !says(r, "\x80"));
        }
    }
}
END_TEST

START_TEST(json_strings)
{
    regex_id text = regex_bytes(set, "a\"\n\xc3\xa9/", 6), r = regex_json_escaped(set, text);
    ck_assert(says(r, "a\\\"\\n\xc3\xa9/"));
    ck_assert(says(r, "\\u0061\\u0022\\u000A\xc3\xa9\\/"));
    ck_assert(says(r, "a\\u0022\\u000a\xc3\xa9\\u002F"));
    ck_assert(!says(r, "a\"\\n\xc3\xa9/") && !says(r, "a\\\"\n\xc3\xa9/") && !says(r, "a\\\"\\n\xc3\xa9"));
    /* What is not that text, but is a string. */
    regex_id other = regex_json_escaped(set, regex_not(set, text));
    ck_assert(says(other, "") && says(other, "b\\\\") && says(other, "a\\\"\\n\xc3\xa9"));
    ck_assert(!says(other, "a\\\"\\n\xc3\xa9/") && !says(other, "\\u0061\\\"\\n\xc3\xa9/") && !says(other, "\"") &&
              !says(other, "\\x"));
    regex_id both = regex_json_escaped(
        set, regex_and(set, regex_not(set, regex_bytes(set, "b", 1)), regex_byte_range(set, 'a', 'c')));
    ck_assert(says(both, "a") && says(both, "\\u0063") && !says(both, "b") && !says(both, "\\u0062") &&
              !says(both, "d"));
    ck_assert(says(regex_json_escaped(set, regex_repeat(set, regex_byte_range(set, 0, 127), 2, 3)), "\\t\\u0000x"));
}
END_TEST

/* An enumeration says its words and no others, and what they share stands there once. */
START_TEST(words_of_an_enumeration)
{
    enum { N = 3000, MOST = 12, HIGHEST = 0x1000 * 17 };
    static char text[N][MOST];
    static bool is_word[HIGHEST];
    static struct regex_word words[N];
    ck_assert_uint_eq(regex_words(set, words, 0), REGEX_NONE);
    for (int i = 0; i < N; i++) { /* in no order, some twice, some the beginning of others, one empty */
        int value = (i * 7919 & 0xfff) * (i % 3 == 0 ? 17 : 1), n = snprintf(text[i], MOST, "%x", value);
        words[i] = (struct regex_word){text[i], i == 7 ? 0 : (size_t)n};
        is_word[value] = is_word[value] || i != 7;
    }
    regex_id r = regex_words(set, words, N);
    for (int value = 0; value < HIGHEST; value++) {
        char word[MOST];
        snprintf(word, sizeof word, "%x", value);
        ck_assert_msg(says(r, word) == is_word[value], "%s", word);
    }
    ck_assert(says(r, "") && !says(r, "g"));
    struct regex_word numbers[1000];
    for (int i = 0; i < 1000; i++) {
        numbers[i] = (struct regex_word){text[i], (size_t)snprintf(text[i], MOST, "%03d", 999 - i)};
    }
    regex_id digit = regex_byte_range(set, '0', '9');
    ck_assert_uint_eq(regex_words(set, numbers, 1000), regex_concat(set, digit, regex_concat(set, digit, digit)));
}
END_TEST

/* --- limits -------------------------------------------------------------------------------------------------------- */

START_TEST(nodes_are_limited)
{
    regex_set_free(&set);
    ck_assert_int_eq(regex_set_new(40, &set), ERR_OK);
    char word[64];
    memset(word, 'a', sizeof word);
    ck_assert_int_eq(regex_ok(set), ERR_OK);
    ck_assert_uint_eq(regex_bytes(set, word, sizeof word), REGEX_NONE);
    ck_assert_int_eq(regex_ok(set), ERR_GRAMMAR_LIMIT);
    ck_assert_uint_eq(regex_bytes(set, "a", 1), REGEX_NONE); /* for good */
}
END_TEST

START_TEST(work_is_limited)
{
    ck_assert(regex_spend(set, 1000));
    regex_limit_work(set, regex_work(set) + 100);
    regex_id r = regex_bytes(set, "abc", 3);
    ck_assert(r != REGEX_NONE && regex_ok(set) == ERR_OK);
    for (int i = 0; i < 100; i++) {
        r = regex_bytes(set, "abc", 3);
    }
    ck_assert_uint_eq(r, REGEX_NONE);
    ck_assert_int_eq(regex_ok(set), ERR_GRAMMAR_LIMIT);
}
END_TEST

START_TEST(memory_runs_out)
{
    for (long n = 0;; n++) {
        tear_down();
        mem_fail_at(n);
        enum err err = regex_set_new(0, &set);
        if (err == ERR_OK) {
            regex_id r =
                regex_repeat(set, regex_or(set, regex_bytes(set, "abc", 3), regex_bytes(set, "abd", 3)), 2, 900);
            struct regex_word words[] = {{"x", 1}, {"xyz", 3}, {"aa", 2}};
            r = regex_and(set, regex_json_escaped(set, r), regex_not(set, regex_words(set, words, 3)));
            for (int i = 0; i < 600; i++) {
                r = regex_next(set, r, (unsigned char)"abc"[i % 3]);
            }
            err = regex_ok(set);
            ck_assert(err == ERR_OK || r == REGEX_NONE);
        }
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_int_eq(err, fired ? ERR_NOMEM : ERR_OK);
        if (!fired) {
            break;
        }
    }
}
END_TEST

Suite *regex_suite(void)
{
    Suite *s = suite_create("regex");
    TCase *t = tcase_create("regex");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, random_expressions);
    tcase_add_test(t, equal_ones_are_one);
    tcase_add_test(t, empty_intersections);
    tcase_add_test(t, counts_are_no_copies);
    tcase_add_test(t, characters);
    tcase_add_test(t, json_strings);
    tcase_add_test(t, words_of_an_enumeration);
    tcase_add_test(t, nodes_are_limited);
    tcase_add_test(t, work_is_limited);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
