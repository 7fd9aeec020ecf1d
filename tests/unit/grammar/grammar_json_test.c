/* Free JSON against a parser: texts that are and that are not, byte by byte. */
#include "engine/grammar/grammar_json.h"

#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

Suite *grammar_json_suite(void);

static struct vocab file;
static struct grammar_vocab *vocab;
static struct grammar *g;
static struct err_info info;

static void set_up(void)
{
    struct grammar_builder *b;
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    ck_assert_msg(grammar_finish(&b, grammar_json_value(b), &g, &info) == ERR_OK, "%s", info.text);
}

static void tear_down(void)
{
    grammar_unref(&g);
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

/* Tokens 0 to 255 are the bytes in the order of GPT-2's alphabet; this is their order (vocab_bpe). */
static bool says(const char *text, size_t n)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (size_t i = 0; i < n && taken; i++) {
        ck_assert_int_eq(grammar_matcher_accept(m, (unsigned char)text[i], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

START_TEST(as_a_parser)
{
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "{ }",
                                        "[ ]",
                                        "0",
                                        "-0",
                                        "01",
                                        "1.",
                                        "1.5",
                                        ".5",
                                        "-",
                                        "1e5",
                                        "1E+05",
                                        "1e",
                                        "-12.50e-3",
                                        "+1",
                                        "true",
                                        "tru",
                                        "nullx",
                                        "\"\"",
                                        "\"a",
                                        "\"\\u00e9\"",
                                        "\"\\uD83D\\uDE00\"",
                                        "\"\\uD83D\"",
                                        "\"\\uDE00\"",
                                        "\"\\uD83Dx\"",
                                        "\"\\u12g4\"",
                                        "\"\\x\"",
                                        "\"\t\"",
                                        "\"\\t\\b\\f\\n\\r\\/\\\\\\\"\"",
                                        "\"\x7f\"",
                                        "\"\xc3\xa9\"",
                                        "\"\xc3\"",
                                        "\"\xed\xa0\x80\"",
                                        "{\"a\":1}",
                                        "{\"a\" : 1 , \"b\":[1,2]}",
                                        "{\"a\":1,}",
                                        "{,}",
                                        "[1,]",
                                        "[,1]",
                                        "[1 2]",
                                        "{\"a\"}",
                                        "{a:1}",
                                        "{\"a\":{\"b\":{\"c\":[[],{},[{}]]}}}",
                                        "[\n  1,\n  2\n]",
                                        "[1]]",
                                        "{\"a\":1}}",
                                        "",
                                        "[\"\\\"\"]",
                                        "[tru,1]",
                                        "{\"\":\"\"}",
                                        "[1,\t\r\n 2]"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_t *value = json_loadb(texts[i], strlen(texts[i]), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        ck_assert_msg(says(texts[i], strlen(texts[i])) == (value != NULL), "'%s'", texts[i]);
        json_decref(value);
    }
    ck_assert(!says(" 1", 2) && !says("1 ", 2)); /* nothing around it */
    char spaces[GRAMMAR_JSON_SPACES + 4] = "[";
    memset(spaces + 1, ' ', GRAMMAR_JSON_SPACES + 2);
    spaces[GRAMMAR_JSON_SPACES + 1] = ']';
    ck_assert(says(spaces, GRAMMAR_JSON_SPACES + 2));
    spaces[GRAMMAR_JSON_SPACES + 1] = ' ';
    spaces[GRAMMAR_JSON_SPACES + 2] = ']';
    ck_assert(!says(spaces, GRAMMAR_JSON_SPACES + 3));
}
END_TEST

Suite *grammar_json_suite(void)
{
    Suite *s = suite_create("grammar_json");
    TCase *t = tcase_create("grammar_json");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, as_a_parser);
    suite_add_tcase(s, t);
    return s;
}
