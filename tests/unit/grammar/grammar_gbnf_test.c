/* GBNF: texts that grammars say and do not say, what is refused, and hostile grammars. */
#include "engine/grammar/grammar_gbnf.h"

#include "tests/unit/grammar/text_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *grammar_gbnf_suite(void);

START_TEST(grammars_say_what_they_should)
{
    static const struct {
        const char *text, *yes[4], *no[5];
    } rows[] = {
        {"root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "b", "abc"}},
        {"root ::= ", {""}, {"a"}},
        {"root ::= | \"a\"", {"", "a"}, {"aa"}},
        {"# c\n\nroot ::= x y # d\r\nx ::= \"1\"\n  y ::=\n \"2\"* |\n \"3\"\n", {"1", "122", "13"}, {"132", "", "2"}},
        {"root ::= (x\n | \"b\"\n)+\nx ::= \"a\"", {"a", "abba"}, {"", "ac"}},
        {"root ::= \"ab\"* \"c\"", {"c", "ababc"}, {"abac", "abbc"}},
        {"root ::= \"a\" {2,3} x{0} \"b\"{2,}\nx ::= \"x\"", {"aabb", "aaabbbb"}, {"abb", "aaaabb", "aaxbb", "aab"}},
        {"root ::= x{2}\nx ::= [0-9]{1,2}", {"12", "1234", "123"}, {"1", "12345"}},
        {"root ::= [a-c\\]^-] [^x\\n]", {"]a", "^\xC3\xA9", "-\xF0\x9F\x98\x80"}, {"dx", "ax", "a\n", "a\xC3"}},
        {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"", {"A\xC3\xA9\xF0\x9F\x98\x80\t\"\\"}, {"A"}},
        {"root ::= .", {"\n", "\xE2\x82\xAC"}, {"", "ab"}},
        {"root ::= root \"a\" | \"b\"", {"b", "baaa"}, {"", "a", "ab"}},
        {"root ::= \"(\" root \")\" | root root |", {"", "()", "(())()"}, {"(", "())"}},
        {"root ::= a-b_1? \"x\"\na-b_1 ::= b | \"y\"\nb ::= a-b_1 a-b_1", {"x", "yx", "yyyx"}, {"y", "xy"}},
        {"root ::= \"a\" (x | \"b\" | \"c\" \"d\")? \"e\"\nx ::= \"x\" x?",
         {"ae", "abe", "acde", "axxe"},
         {"ace", "abxe"}},
        {"root ::= (((\"a\")))+?", {"", "aa"}, {"b"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        text_rig_says(grammar_gbnf, rows[i].text, rows[i].yes, ARRAY_LEN(rows[i].yes), true);
        text_rig_says(grammar_gbnf, rows[i].text, rows[i].no, ARRAY_LEN(rows[i].no), false);
    }
}
END_TEST

START_TEST(what_is_wrong_is_named_with_its_line)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no rule root"},
        {"a ::= \"b\"", "no rule root"},
        {"root ::= missing", "does not have: missing"},
        {"root ::= root", "no text at all"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2 of the grammar, byte 13: a duplicate rule"},
        {"root = \"a\"", "::="},
        {"root ::= \"a", "quotation mark"},
        {"root ::= \"a\n\"", "quotation mark"},
        {"root ::= [a", "without its ]"},
        {"root ::= [z-a]", "range"},
        {"root ::= (\"a\"", "without its )"},
        {"root ::= \"a\")", "without its ("},
        {"root ::= *", "repeat of nothing"},
        {"root ::= \"a\" | +", "repeat of nothing"},
        {"root ::= \"a\"{3,2}", "exceeds its maximum"},
        {"root ::= \"a\"{x}", "expected {n}"},
        {"root ::= \"\\q\"", "escape"},
        {"root ::= \"\\ud800\"", "no character"},
        {"root ::= \"\\U00110000\"", "no character"},
        {"root ::= \"\\", "escape"},
        {"root ::= \"a\"\n| \"b\"", "line 2"},
        {"root ::= <think>", "expected a name"},
        {"root ::= \"\xC3\"", "UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        text_rig_refuses(grammar_gbnf, rows[i].text, rows[i].says);
    }
}
END_TEST

START_TEST(hostile_grammars_end_soon)
{
    static const char *const units[] = {"(",      "[",        "\"",         "a ", "a|", "|",
                                        "\"a\"?", "(\"a\"|b", "[^a]|\"b\"", ".",  "\n", "#"};
    static char text[TEXT_RIG_BIG];
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t n_unit = strlen(units[i]), n = (size_t)snprintf(text, sizeof text, "a ::= \"a\"\nb ::= a\nroot ::= ");
        for (size_t k = 0; k < 60000; k++) {
            text[n++] = units[i][k % n_unit];
        }
        enum err err = text_rig_hostile(grammar_gbnf, text, n);
        ck_assert_msg(err == ERR_OK || err == ERR_GRAMMAR_LIMIT || err == ERR_INVALID_GRAMMAR, "%s: %s", units[i],
                      err_code(err));
    }
    size_t n = (size_t)snprintf(text, sizeof text, "root ::= r0\n");
    for (int i = 0; i < 3000; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "r%d ::= r%d\n", i, i + 1);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "r3000 ::= \"a\"\n");
    ck_assert_int_eq(text_rig_hostile(grammar_gbnf, text, n), ERR_OK);
    ck_assert_int_eq(text_rig_hostile(grammar_gbnf, text, TEXT_RIG_BIG), ERR_GRAMMAR_LIMIT);
    static const char many[] = "root ::= x{1000000} \"a\"{1000000}\nx ::= \"a\" | x x";
    ck_assert_int_eq(text_rig_hostile(grammar_gbnf, many, sizeof many - 1), ERR_OK);
}
END_TEST

/* Alternatives that are no single expression, as each names its own rule: at the start, and after a first byte. */
START_TEST(wide_choices)
{
    static const int widths[] = {24, 126, 127, 128, 253, 254, 255, 256, 300, 513, 1025, 1600};
    static char text[TEXT_RIG_BIG];
    for (size_t k = 0; k < 2 * ARRAY_LEN(widths); k++) {
        int width = widths[k / 2];
        const char *prefix = k % 2 == 0 ? "" : "k";
        size_t n = (size_t)snprintf(text, sizeof text, "root ::= \"%s\" (r0", prefix);
        for (int i = 1; i < width; i++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "|r%d", i);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, ")\n");
        for (int i = 0; i < width; i++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "r%d ::= \"x%d(\" r%d \")\" | \"y\"\n", i, i, i);
        }
        ck_assert_uint_lt(n, sizeof text - 1);
        char first[32], last[32], beyond[32];
        snprintf(first, sizeof first, "%sx0(x0(y))", prefix);
        snprintf(last, sizeof last, "%sx%d(y)", prefix, width - 1);
        snprintf(beyond, sizeof beyond, "%sx%d(y)", prefix, width);
        text_rig_says(grammar_gbnf, text, (const char *[]){first, last}, 2, true);
        text_rig_says(grammar_gbnf, text, (const char *[]){beyond, "x"}, 2, false);
    }
}
END_TEST

START_TEST(a_client_that_leaves_ends_it)
{
    static char text[TEXT_RIG_BIG];
    size_t n = (size_t)snprintf(text, sizeof text, "root ::= \"");
    memset(text + n, 'a', 40000);
    text[n + 40000] = '"';
    text_rig_stops(grammar_gbnf, text);
}
END_TEST

START_TEST(it_stands_without_memory)
{
    text_rig_without_memory(grammar_gbnf, "root ::= (x | \"b\"+ [^c-e])* \"d\"\nx ::= x \"a\"{2,3} |");
}
END_TEST

Suite *grammar_gbnf_suite(void)
{
    Suite *s = suite_create("grammar_gbnf");
    TCase *c = tcase_create("grammar_gbnf");
    tcase_add_checked_fixture(c, text_rig_set_up, text_rig_tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, grammars_say_what_they_should);
    tcase_add_test(c, what_is_wrong_is_named_with_its_line);
    tcase_add_test(c, hostile_grammars_end_soon);
    tcase_add_test(c, wide_choices);
    tcase_add_test(c, a_client_that_leaves_ends_it);
    tcase_add_test(c, it_stands_without_memory);
    suite_add_tcase(s, c);
    return s;
}
