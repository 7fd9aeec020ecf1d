/* Lark's grammars: texts that they say and do not say, what is refused, and hostile ones. */
#include "engine/grammar/grammar_lark.h"

#include "engine/base/compiler.h"
#include "tests/unit/grammar/text_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *grammar_lark_suite(void);

static enum err plain(struct grammar_builder *b, const char *text, size_t n, symbol_id *root, struct err_info *info)
{
    return grammar_lark(b, text, n, false, root, info);
}

static enum err quoted(struct grammar_builder *b, const char *text, size_t n, symbol_id *root, struct err_info *info)
{
    return grammar_lark(b, text, n, true, root, info);
}

/* As custom tools of agents have it. */
#define PATCH                                                                                                          \
    "start: begin_patch hunk+ end_patch\n"                                                                             \
    "begin_patch: \"*** Begin Patch\" LF\n"                                                                            \
    "end_patch: \"*** End Patch\" LF?\n\n"                                                                             \
    "hunk: add_hunk | delete_hunk\n"                                                                                   \
    "add_hunk: \"*** Add File: \" filename LF add_line+\n"                                                             \
    "delete_hunk: \"*** Delete File: \" filename LF\n"                                                                 \
    "filename: /(.+)/\n"                                                                                               \
    "add_line: \"+\" /(.*)/ LF -> line\n\n"                                                                            \
    "%import common.LF\n"

START_TEST(grammars_say_what_they_should)
{
    static const struct {
        const char *text, *yes[4], *no[5];
    } rows[] = {
        {"start: \"a\" | \"bc\"", {"a", "bc"}, {"", "b", "abc"}},
        {"start:\n", {""}, {"a"}},
        {"start:\n  | \"a\" // x\n  # y\n\n  | \"b\"\n", {"", "a", "b"}, {"ab", "|"}},
        {"// c\n?start: x B -> named\n!x.2: \"1\"\nB.-1: \"2\"+\n", {"12", "1222"}, {"1", "2"}},
        {"start: (\"a\"\n | x)~2..3\nx: \"b\"", {"ab", "bab"}, {"a", "aaaa"}},
        {"start: \"a\"~2 \"b\"{1,2} \"c\"{,1} \"d\"{2,} \"e\" {3}",
         {"aabddeee", "aabbcdddeee"},
         {"abddeee", "aabdeee"}},
        {"start: [\"a\"] (\"b\")? X*\nX: [\"c\"] \"d\"", {"", "abcd", "dcd"}, {"c", "ba"}},
        {"start: \"yes\"i \"\\u00e9\\n\\\"\\\\\\x41\"", {"yEs\xC3\xA9\n\"\\A"}, {"yes", "yes\xC3\xA9\n\"\\a"}},
        {"start: \"a\"..\"c\" X\nX: \"\\u00e0\"..\"\\u00e9\" | \"x\"", {"b\xC3\xA1", "cx"}, {"dx", "b\xC3\xAA"}},
        {"start: /a.c/ /x\\/y[^\\n]/is", {"abcX/Yz", "a\rcx/y\xC3\xA9"}, {"a\ncx/yz", "abcx/y\n"}},
        {"start: /(?i)k[b-d]/ /e./s", {"KCe\n", "kde\xC3\xA9"}, {"kee\n", "KcE\n"}},
        {"start: start \"a\" | \"b\"", {"b", "baaa"}, {"", "a", "ab"}},
        {"start: A\nA: B C\nC: B | D\nD: \"d\"\nB: /b/", {"bb", "bd"}, {"b", "db", "bbd"}},
        {"start: x+\nx: NAME \"=\" NUMBER \";\"\n%import common.CNAME -> NAME\n%import common (NUMBER, WS)\n%ignore WS\n",
         {"a=1;", " a = 1.5e3 ;\n b_1=.5;", "a=1 ; "},
         {"a a=1;", "a=1", "a=.;", "1=a;"}},
        {"%ignore /#[^\\n]*\\n/\n%ignore \" \"\nstart: \"a\" \"b\"", {"ab", " #x\na #y\n b "}, {"a#x", "a\nb"}},
        {"%llguidance {}\nstart: a-b\na-b: \"x\"->named", {"x"}, {"a"}},
        {"start: ESCAPED_STRING C_COMMENT\n%import common (ESCAPED_STRING,\n  C_COMMENT)",
         {"\"a\\\"b\"/* * */", "\"\\\\\"/***/"},
         {"\"a\"b\"/**/", "\"a\"/* */ */", "\"\n\"/**/"}},
        {PATCH,
         {"*** Begin Patch\n*** Add File: a/b c\n+x\n+\n*** End Patch",
          "*** Begin Patch\n*** Delete File: a\n*** End Patch\n"},
         {"*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: a\n*** End Patch"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        text_rig_says(plain, rows[i].text, rows[i].yes, ARRAY_LEN(rows[i].yes), true);
        text_rig_says(plain, rows[i].text, rows[i].no, ARRAY_LEN(rows[i].no), false);
    }
}
END_TEST

/* What stands between the quotes of a JSON string. */
START_TEST(texts_within_strings)
{
    static const char *const yes[] = {"*** Begin Patch\\n*** Add File: a\\n+\\\"x\\\\\\n*** End Patch", NULL};
    static const char *const no[] = {"*** Begin Patch\n*** Delete File: a\n*** End Patch",
                                     "*** Begin Patch\\n*** Add File: a\\n+\"\\n*** End Patch",
                                     "*** Begin Patch\\n*** Add File: a\\n\\\"x\\n*** End Patch"};
    static const char *const spaced[] = {"\\na\\t\\na ", "aa", NULL}, *const bare[] = {"a\ta", "a\\\\ta"};
    text_rig_says(quoted, PATCH, yes, ARRAY_LEN(yes), true);
    text_rig_says(quoted, PATCH, no, ARRAY_LEN(no), false);
    text_rig_says(quoted, "start: A A\nA: \"a\"\n%ignore /\\s/", spaced, ARRAY_LEN(spaced), true);
    text_rig_says(quoted, "start: A A\nA: \"a\"\n%ignore /\\s/", bare, ARRAY_LEN(bare), false);
}
END_TEST

START_TEST(what_is_wrong_is_named_with_its_place)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no rule start"},
        {"a: \"b\"", "no rule start"},
        {"start: missing", "line 1, column 8 of the grammar: a name that the grammar does not say"},
        {"start: start", "no text at all"},
        {"start: \"a\"\nstart: \"b\"", "line 2, column 1 of the grammar: a duplicate rule or terminal"},
        {"start = \"a\"", "line 1, column 7 of the grammar: expected :"},
        {"start ::= \"a\"", "expected a name"},
        {"start: \"\xC3\xA9\" )", "line 1, column 12 of the grammar: a closing bracket"},
        {"start: \"a", "quotation mark"},
        {"start: \"\\q\"", "escape"},
        {"start: \"\\ud800\"", "escape"},
        {"start: /a", "without its /"},
        {"start: /a/x", "flags"},
        {"start: /(?x)a/", "flags"},
        {"start: /a(?=b)/", "lookahead, which is not supported here"},
        {"start: /a\\b/", "word boundaries, which are not supported here"},
        {"start: /^a/", "^ or $"},
        {"start: /\xC3\xA9/i", "ASCII"},
        {"start: \"\xC3\xA9\"i", "ASCII"},
        {"start: \"b\"..\"a\"", "range"},
        {"start: \"ab\"..\"c\"", "range"},
        {"start: (\"a\"", "without a closing one"},
        {"start: (\"a\"]", "closing bracket"},
        {"start: *", "repeat of nothing"},
        {"start: \"a\"~3..2", "exceeds its maximum"},
        {"start: \"a\"~x", "expected ~n"},
        {"start: a{\"b\"}\na: \"a\"", "templates"},
        {"start: a\na{x}: x", "template"},
        {"start: a\na[stop=\"x\"]: /a/", "attributes"},
        {"start: <|end|>", "token"},
        {"start: \"a\" -> x \"b\"", "one name after ->"},
        {"start: A\nA: b\nb: \"b\"", "line 2, column 1 of the grammar: a terminal that names a rule"},
        {"start: A\nA: B\nB: A?", "a terminal that names itself"},
        {"%import python.NAME\nstart: NAME", "another module"},
        {"%import common.NONE\nstart: NONE", "terminal of Lark's module"},
        {"%import common.WS WS\nstart: WS", "expected the end of the line"},
        {"%declare A\nstart: A", "directive"},
        {"%ignore x\nx: \"a\"\nstart: x", "names a rule"},
        {"start: %json {}", "expected a name"},
        {"start: \"\xC3\"", "UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        text_rig_refuses(plain, rows[i].text, rows[i].says);
    }
}
END_TEST

START_TEST(hostile_grammars_end_soon)
{
    static const char *const units[] = {"(",      "[",        "\"",           "a ",     "a|",    "|",
                                        "\"a\"?", "(\"a\"|b", "/[^a]/|\"b\"", "\"a\"i", "/.*/ ", "A ",
                                        "\n",     "#",        "a\n|",         "?a:\n",  "_"};
    static char text[TEXT_RIG_BIG];
    for (size_t i = 0; i < 2 * ARRAY_LEN(units); i++) {
        const char *unit = units[i / 2];
        size_t n_unit = strlen(unit),
               n = (size_t)snprintf(text, sizeof text, "a: \"a\"\nA: \"b\"\nb: a\n%%ignore \" \"\nstart: ");
        for (size_t k = 0; k < 60000; k++) {
            text[n++] = unit[k % n_unit];
        }
        enum err err = text_rig_hostile(i % 2 == 0 ? plain : quoted, text, n);
        ck_assert_msg(err == ERR_OK || err == ERR_GRAMMAR_LIMIT || err == ERR_INVALID_GRAMMAR, "%s: %s", unit,
                      err_code(err));
    }
    size_t n = (size_t)snprintf(text, sizeof text, "start: A0\n");
    for (int i = 0; i < 60; i++) { /* doubles */
        n += (size_t)snprintf(text + n, sizeof text - n, "A%d: A%d A%d \"b\"\n", i, i + 1, i + 1);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "A60: \"a\"\n");
    ck_assert_int_eq(text_rig_hostile(plain, text, n), ERR_GRAMMAR_LIMIT);
    n = (size_t)snprintf(text, sizeof text, "start: A0\n");
    for (int i = 0; i < 3000; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "A%d: A%d\n", i, i + 1);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "A3000: \"a\"\n");
    ck_assert_int_eq(text_rig_hostile(plain, text, n), ERR_OK);
    ck_assert_int_eq(text_rig_hostile(plain, text, TEXT_RIG_BIG), ERR_GRAMMAR_LIMIT);
    static const char many[] = "start: x~1000000 \"a\"{1000000}\nx: \"a\" | x x";
    ck_assert_int_eq(text_rig_hostile(plain, many, sizeof many - 1), ERR_OK);
}
END_TEST

START_TEST(a_client_that_leaves_ends_it)
{
    static char text[TEXT_RIG_BIG];
    size_t n = (size_t)snprintf(text, sizeof text, "start: \"");
    memset(text + n, 'a', 40000);
    text[n + 40000] = '"';
    text_rig_stops(plain, text);
}
END_TEST

/* Alternatives that are no single expression, as each names its own rule. */
START_TEST(wide_choices)
{
    static const int widths[] = {127, 128, 254, 255, 300, 1025, 1600};
    static char text[TEXT_RIG_BIG];
    for (size_t k = 0; k < 2 * ARRAY_LEN(widths); k++) {
        int width = widths[k / 2];
        const char *prefix = k % 2 == 0 ? "" : "k";
        size_t n = (size_t)snprintf(text, sizeof text, "start: %s(r0", k % 2 == 0 ? "" : "\"k\" ");
        for (int i = 1; i < width; i++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "|r%d", i);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, ")\n");
        for (int i = 0; i < width; i++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "r%d: \"x%d(\" r%d \")\" | \"y\"\n", i, i, i);
        }
        char first[32], last[32], beyond[32];
        snprintf(first, sizeof first, "%sx0(x0(y))", prefix);
        snprintf(last, sizeof last, "%sx%d(y)", prefix, width - 1);
        snprintf(beyond, sizeof beyond, "%sx%d(y)", prefix, width);
        text_rig_says(plain, text, (const char *[]){first, last}, 2, true);
        text_rig_says(plain, text, (const char *[]){beyond, "x"}, 2, false);
    }
}
END_TEST

START_TEST(it_stands_without_memory)
{
    static const char text[] = "start: (x | /b[c-e]/i+ X)* \"d\"i\n"
                               "x: x \"a\"~2..3 |\nX: Y \"y\"\nY: INT\n%import common.INT\n%ignore \" \"";
    text_rig_without_memory(plain, text);
    text_rig_without_memory(quoted, text);
}
END_TEST

START_TEST(which_language_it_is)
{
    static const char *const lark[] = {"start: \"a\"", "", "# ::=\nstart: x // ::=", "%llguidance {}\nstart: \"::=\""};
    static const char *const gbnf[] = {"root ::= \"a\"", "# x\nroot\n ::= a", "start: \"::=\""}; /* as vLLM tells */
    for (size_t i = 0; i < ARRAY_LEN(lark); i++) {
        ck_assert_msg(grammar_is_lark(lark[i], strlen(lark[i])), "%s", lark[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(gbnf); i++) {
        ck_assert_msg(!grammar_is_lark(gbnf[i], strlen(gbnf[i])), "%s", gbnf[i]);
    }
}
END_TEST

Suite *grammar_lark_suite(void)
{
    Suite *s = suite_create("grammar_lark");
    TCase *c = tcase_create("grammar_lark");
    tcase_add_checked_fixture(c, text_rig_set_up, text_rig_tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, grammars_say_what_they_should);
    tcase_add_test(c, texts_within_strings);
    tcase_add_test(c, what_is_wrong_is_named_with_its_place);
    tcase_add_test(c, hostile_grammars_end_soon);
    tcase_add_test(c, a_client_that_leaves_ends_it);
    tcase_add_test(c, wide_choices);
    tcase_add_test(c, it_stands_without_memory);
    tcase_add_test(c, which_language_it_is);
    suite_add_tcase(s, c);
    return s;
}
