/* GBNF: texts that grammars say and do not say, what is refused, and hostile grammars. */
#include "engine/grammar/grammar_gbnf.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *grammar_gbnf_suite(void);

static struct vocab file;
static struct grammar_vocab *vocab;

static void set_up(void)
{
    struct err_info info = {0};
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
}

static void tear_down(void)
{
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static enum err compile(const char *text, size_t n, struct grammar **g, struct err_info *info)
{
    struct grammar_builder *b;
    symbol_id root;
    *g = NULL;
    TRY(grammar_builder_new(&b));
    enum err err = grammar_gbnf(b, text, n, &root, info);
    if (err == ERR_OK) {
        return grammar_finish(&b, root, g, info);
    }
    grammar_builder_free(&b);
    return err;
}

/* Tokens 0 to 255 are the bytes (vocab_bpe). */
static bool says(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (size_t i = 0; text[i] != '\0' && taken; i++) {
        ck_assert_int_eq(grammar_matcher_accept(m, (unsigned char)text[i], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

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
        struct grammar *g;
        struct err_info info = {0};
        enum err err = compile(rows[i].text, strlen(rows[i].text), &g, &info);
        ck_assert_msg(err == ERR_OK, "%s: %s", rows[i].text, info.text);
        for (size_t k = 0; k < ARRAY_LEN(rows[i].yes) && rows[i].yes[k] != NULL; k++) {
            ck_assert_msg(says(g, rows[i].yes[k]), "%s: %s", rows[i].text, rows[i].yes[k]);
        }
        for (size_t k = 0; k < ARRAY_LEN(rows[i].no) && rows[i].no[k] != NULL; k++) {
            ck_assert_msg(!says(g, rows[i].no[k]), "%s: %s", rows[i].text, rows[i].no[k]);
        }
        grammar_unref(&g);
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
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2 of the grammar, byte 13: a rule that stands twice"},
        {"root = \"a\"", "::="},
        {"root ::= \"a", "quotation mark"},
        {"root ::= \"a\n\"", "quotation mark"},
        {"root ::= [a", "without its ]"},
        {"root ::= [z-a]", "range"},
        {"root ::= (\"a\"", "without its )"},
        {"root ::= \"a\")", "without its ("},
        {"root ::= *", "repeat of nothing"},
        {"root ::= \"a\" | +", "repeat of nothing"},
        {"root ::= \"a\"{3,2}", "least"},
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
        struct grammar *g;
        struct err_info info = {0};
        enum err err = compile(rows[i].text, strlen(rows[i].text), &g, &info);
        ck_assert_msg(err == ERR_INVALID_GRAMMAR, "%s: %s", rows[i].text, err_code(err));
        ck_assert_msg(strstr(info.text, rows[i].says) != NULL, "%s: %s", rows[i].text, info.text);
    }
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
enum { MOST_MS = 2500 };
#else
enum { MOST_MS = 250 }; /* 100 are wanted; a busy machine has less cache */
#endif
enum { BIG = 1 << 17 };

/* Ends soon, and what it says is told. */
static enum err hostile(const char *text, size_t n)
{
    struct grammar *g;
    struct err_info info = {0};
    uint64_t begin = clock_thread_ns();
    enum err err = compile(text, n, &g, &info);
    ck_assert_msg(err == ERR_OK || info.text[0] != '\0', "%.30s", text);
    if (err == ERR_OK) {
        struct grammar_matcher *m = NULL;
        bool taken;
        err = grammar_matcher_new(g, vocab, &m);
        err = err == ERR_OK ? grammar_matcher_accept(m, 'a', &taken) : err;
        grammar_matcher_free(&m);
    }
    uint64_t ms = (clock_thread_ns() - begin) / 1000000;
    ck_assert_msg(ms < MOST_MS, "%.60s: %u ms", text + 28, (unsigned)ms);
    grammar_unref(&g);
    return err;
}

START_TEST(hostile_grammars_end_soon)
{
    static const char *const units[] = {"(",      "[",        "\"",         "a ", "a|", "|",
                                        "\"a\"?", "(\"a\"|b", "[^a]|\"b\"", ".",  "\n", "#"};
    static char text[BIG];
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t n_unit = strlen(units[i]), n = (size_t)snprintf(text, sizeof text, "a ::= \"a\"\nb ::= a\nroot ::= ");
        for (size_t k = 0; k < 60000; k++) {
            text[n++] = units[i][k % n_unit];
        }
        enum err err = hostile(text, n);
        ck_assert_msg(err == ERR_OK || err == ERR_GRAMMAR_LIMIT || err == ERR_INVALID_GRAMMAR, "%s: %s", units[i],
                      err_code(err));
    }
    size_t n = (size_t)snprintf(text, sizeof text, "root ::= r0\n");
    for (int i = 0; i < 3000; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "r%d ::= r%d\n", i, i + 1);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "r3000 ::= \"a\"\n");
    ck_assert_int_eq(hostile(text, n), ERR_OK);
    ck_assert_int_eq(hostile(text, BIG), ERR_GRAMMAR_LIMIT);
    static const char many[] = "root ::= x{1000000} \"a\"{1000000}\nx ::= \"a\" | x x";
    ck_assert_int_eq(hostile(many, sizeof many - 1), ERR_OK);
}
END_TEST

START_TEST(it_stands_without_memory)
{
    static const char text[] = "root ::= (x | \"b\"+ [^c-e])* \"d\"\nx ::= x \"a\"{2,3} |";
    size_t before = mem_live();
    bool is_through = false;
    for (long at = 0; !is_through; at++) {
        struct grammar *g;
        mem_fail_at(at);
        enum err err = compile(text, sizeof text - 1, &g, NULL);
        is_through = !mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_int_eq(err, is_through ? ERR_OK : ERR_NOMEM);
        grammar_unref(&g);
        ck_assert_uint_eq(mem_live(), before);
    }
}
END_TEST

Suite *grammar_gbnf_suite(void)
{
    Suite *s = suite_create("grammar_gbnf");
    TCase *c = tcase_create("grammar_gbnf");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, grammars_say_what_they_should);
    tcase_add_test(c, what_is_wrong_is_named_with_its_line);
    tcase_add_test(c, hostile_grammars_end_soon);
    tcase_add_test(c, it_stands_without_memory);
    suite_add_tcase(s, c);
    return s;
}
