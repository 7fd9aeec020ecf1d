/* Budgets of thinking: where they begin to count, when they are spent, what must come then, and what they leave alone. */
#include "engine/chat/chat_budget.h"

#include "engine/base/mem.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *chat_budget_suite(void);

enum { MOST = 256 };

static struct vocab file;
static struct err_info info;
static int32_t id_of[256], begin_id, end_id;

static void set_up(void)
{
    vocab_bpe(&file, "gpt-2");
    begin_id = vocab_add(&file, "[THINK]", 7, TOKEN_CONTROL, 0);
    end_id = vocab_add(&file, "[/THINK]", 8, TOKEN_CONTROL, 0);
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    vocab_byte_ids(&file, id_of);
}

static void tear_down(void) { vocab_fini(&file); }

/* What comes of a model that says `says`, a token a byte, and goes on with it behind what must come. */
static const char *guided(const char *format, int32_t n_tokens, bool has_begun, const char *end, const char *says)
{
    static char out[MOST];
    int32_t ids[MOST];
    size_t n = 0, n_end = strlen(end);
    for (size_t i = 0; i < n_end; i++) {
        ids[i] = id_of[(unsigned char)end[i]];
    }
    struct chat_budget *b = mem_zalloc(chat_budget_bytes(n_end), MEM_GENERAL);
    chat_budget_init(b, chat_format_named(format), file.t, n_tokens, has_begun, ids, n_end);
    while (*says != '\0' || chat_budget_next(b) != TOKENIZER_NO_TOKEN) {
        int32_t must = chat_budget_next(b), id = must != TOKENIZER_NO_TOKEN ? must : id_of[(unsigned char)*says++];
        for (int c = 0; c < 256; c++) {
            out[n] = id_of[c] == id ? (char)c : out[n];
        }
        chat_budget_take(b, id);
        ck_assert_int_lt(++n, MOST);
    }
    out[n] = '\0';
    mem_free(b);
    return out;
}

#define E "</think>"
#define A "<|channel|>analysis<|message|>"
#define M "<|end|><|start|>assistant"

START_TEST(thinking_ends_when_it_is_spent)
{
    static const struct {
        const char *format;
        int32_t n_tokens;
        bool has_begun;
        const char *end, *says, *expected;
    } cases[] = {
        {"hermes", 3, true, E, "abcdef", "abc" E "def"},
        {"hermes", 0, true, E, "abc", E "abc"},
        {"hermes", 0, false, E, " \n<think>abc", " \n<think>" E "abc"},
        {"hermes", 3, false, E, "<think>abcdef<think>ghijkl", "<think>abc" E "def<think>ghijkl"}, /* once */
        {"hermes", 3, true, " Enough." E, "abcdef", "abc Enough." E "def"},
        {"hermes", 0, false, E, "abc<think>def", "abc<think>def"}, /* no answer that thinks */
        {"hermes", 0, false, E, "<thin abc", "<thin abc"},
        {"hermes", 99, true, E, "ab" E "cdef", "ab" E "cdef"}, /* in time */
        {"hermes", 3, true, E, "ab" E "cdef", "ab" E "cdef"},  /* what has begun is not cut in two */
        {"hermes", 4, true, E, "ab</xyz", "ab</" "x" E "yz"},
        {"hermes", 2, true, E, "a\xe2\x82\xac" "bc", "a\xe2\x82\xac" E "bc"},
        {"hermes", 1, true, E, "<<<<<<<<<<<<", "<<<<<<<<<" E "<<<"}, /* but not forever */
        {"hermes", 6, true, E, "ab<tool_call>cdefgh", "ab<tool_call>cdefgh"}, /* a call ends the thinking */
        {"mistral", 2, false, "[/THINK]", "[THINK]abc", "[THINK]ab[/THINK]c"},
        {"gemma4", 2, false, "<channel|>", "<|channel>thought\nabc", "<|channel>thought\nab<channel|>c"},
        {"gpt-oss", 2, false, M, A "abc", A "ab" M "c"},
        {"gpt-oss", 10, false, M, A "ab" M A "cde", A "ab" M A "c" M "de"}, /* what is left of it */
        {"gpt-oss", 2, false, M, "<|channel|>final<|message|>abc", "<|channel|>final<|message|>abc"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got =
            guided(cases[i].format, cases[i].n_tokens, cases[i].has_begun, cases[i].end, cases[i].says);
        ck_assert_msg(strcmp(got, cases[i].expected) == 0, "%zu: expected '%s', got '%s'", i, cases[i].expected, got);
    }
}
END_TEST

/* A mark may be one token, whose text is the mark. */
START_TEST(marks_are_tokens)
{
    struct chat_budget *b = mem_zalloc(chat_budget_bytes(1), MEM_GENERAL);
    chat_budget_init(b, chat_format_named("mistral"), file.t, 2, false, &end_id, 1);
    const int32_t says[] = {begin_id, id_of['a'], id_of['b']};
    for (size_t i = 0; i < ARRAY_LEN(says); i++) {
        ck_assert_int_eq(chat_budget_next(b), TOKENIZER_NO_TOKEN);
        chat_budget_take(b, says[i]);
    }
    ck_assert_int_eq(chat_budget_next(b), end_id);
    chat_budget_take(b, end_id);
    ck_assert_int_eq(chat_budget_next(b), TOKENIZER_NO_TOKEN);
    chat_budget_init(b, chat_format_named("mistral"), file.t, 1, true, &end_id, 1);
    chat_budget_take(b, end_id); /* the model's own */
    chat_budget_take(b, id_of['a']);
    ck_assert_int_eq(chat_budget_next(b), TOKENIZER_NO_TOKEN);
    mem_free(b);
}
END_TEST

/* Something that keeps the end from coming, as a grammar may, goes before it. */
START_TEST(what_cannot_come_is_given_up)
{
    const int32_t end[] = {id_of['x'], id_of['y']};
    struct chat_budget *b = mem_zalloc(chat_budget_bytes(2), MEM_GENERAL);
    chat_budget_init(b, chat_format_at(0), file.t, 0, true, end, 2);
    ck_assert_int_eq(chat_budget_next(b), end[0]);
    chat_budget_take(b, end[0]);
    ck_assert_int_eq(chat_budget_next(b), end[1]);
    chat_budget_take(b, end[0]);
    ck_assert_int_eq(chat_budget_next(b), TOKENIZER_NO_TOKEN);
    mem_free(b);
}
END_TEST

Suite *chat_budget_suite(void)
{
    Suite *s = suite_create("chat_budget");
    TCase *t = tcase_create("chat_budget");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, thinking_ends_when_it_is_spent);
    tcase_add_test(t, marks_are_tokens);
    tcase_add_test(t, what_cannot_come_is_given_up);
    suite_add_tcase(s, t);
    return s;
}
