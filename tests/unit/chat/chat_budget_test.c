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

/* What comes of a model that says `says`, a token a byte, and goes on with it after what must come. */
static const char *guided(const char *format, int32_t n_tokens, bool has_begun, bool reads_calls, const char *end,
                          const char *says)
{
    static char out[MOST];
    int32_t ids[MOST];
    size_t n = 0, n_end = strlen(end);
    for (size_t i = 0; i < n_end; i++) {
        ids[i] = id_of[(unsigned char)end[i]];
    }
    struct chat_budget *b = mem_zalloc(chat_budget_bytes(n_end), MEM_GENERAL);
    chat_budget_init(b, &(struct chat_budget_config){chat_format_named(format), file.t, n_tokens, has_begun,
                                                     reads_calls, ids, n_end});
    while (*says != '\0' || chat_budget_next(b) != TOKENIZER_NO_TOKEN) {
        int32_t must = chat_budget_next(b), id = must != TOKENIZER_NO_TOKEN ? must : id_of[(unsigned char)*says++];
        for (int c = 0; c < 256; c++) {
            out[n] = id_of[c] == id ? (char)c : out[n];
        }
        chat_budget_take(b, id);
        ck_assert_int_lt(++n, MOST);
    }
    out[n] = '\0';
    chat_budget_fini(b);
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
        {"hermes", 4, true, E, "ab</xyz",
         "ab</"
         "x" E "yz"},
        {"hermes", 2, true, E,
         "a\xe2\x82\xac"
         "bc",
         "a\xe2\x82\xac" E "bc"},
        {"hermes", 1, true, E, "<<<<<<<<<<<<", "<<<<<<<<<" E "<<<"},               /* but not forever */
        {"hermes", 6, true, E, "ab<tool_call>cdefgh", "ab<too" E "l_call>cdefgh"}, /* calls are not read */
        {"mistral", 2, false, "[/THINK]", "[THINK]abc", "[THINK]ab[/THINK]c"},
        {"gemma4", 2, false, "<channel|>", "<|channel>thought\nabc", "<|channel>thought\nab<channel|>c"},
        {"gpt-oss", 2, false, M, A "abc", A "ab" M "c"},
        {"gpt-oss", 10, false, M, A "ab" M A "cde", A "ab" M A "c" M "de"}, /* what is left of it */
        {"gpt-oss", 2, false, M, "<|channel|>final<|message|>abc", "<|channel|>final<|message|>abc"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got =
            guided(cases[i].format, cases[i].n_tokens, cases[i].has_begun, false, cases[i].end, cases[i].says);
        ck_assert_msg(strcmp(got, cases[i].expected) == 0, "%zu: expected '%s', got '%s'", i, cases[i].expected, got);
    }
}
END_TEST

#define JSON_CALL "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"
#define KIMI_CALL "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
#define LONG      "0123456789012345678901234567890123456789012345678901234567890123456789"

/* A call ends the thinking where calls are read; what only looks like one counts as thinking. */
START_TEST(only_calls_end_the_thinking)
{
    static const struct {
        const char *format;
        int32_t n_tokens;
        const char *says, *expected;
    } cases[] = {
        {"hermes", 60, "ab" JSON_CALL LONG, "ab" JSON_CALL LONG},
        {"hermes", 6, "ab" JSON_CALL LONG, "ab" JSON_CALL LONG},                     /* spent within its mark */
        {"hermes", 20, "ab" JSON_CALL LONG, "ab" JSON_CALL LONG},                    /* spent before it is certain */
        {"hermes", 16, "ab<tool_call> (x) cdefgh", "ab<tool_call> (x) c" E "defgh"}, /* two words are no name */
        {"hermes", 13, "ab<tool_call>{} cdefgh", "ab<tool_call>{}" E " cdefgh"},
        {"hermes", 30, "<tool_call> or <tool_call>? <tool_call>! abc",
         "<tool_call> or <tool_call>? <tool_call>! a" E "bc"},
        {"hermes", 28, "<tool_call>! <tool_call>! abcdefgh", "<tool_call>! <tool_call>! ab" E "cdefgh"},
        {"hermes", 40, "<tool_call>! " E "abcdefghijklmnopqrstuvwxyz", "<tool_call>! " E "abcdefghijklmnopqrstuvwxyz"},
        {"hermes", 14, "<tool_call>! " E "abc", "<tool_call>! " E "abc"}, /* in time */
        {"hermes", 20, "<tool_call>! " JSON_CALL LONG, "<tool_call>! " JSON_CALL LONG},
        {"hermes", 11, "<tool_call>{\"name\": \"" LONG, /* a name without an end is waited for, but not forever */
         "<tool_call>{\"name\": \"012345678901234567890123456789012345678901234567890123" E "4567890123456789"},
        {"kimi-k2", 28, "ab" KIMI_CALL LONG, "ab" KIMI_CALL LONG}, /* within the mark around all calls */
        {"kimi-k2", 30, "ab" KIMI_CALL LONG, "ab" KIMI_CALL LONG}, /* between the two */
        {"kimi-k2", 30, "ab<|tool_calls_section_begin|> cdefgh", "ab<|tool_calls_section_begin|> c" E "defgh"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = guided(cases[i].format, cases[i].n_tokens, true, true, E, cases[i].says);
        ck_assert_msg(strcmp(got, cases[i].expected) == 0, "%zu: expected '%s', got '%s'", i, cases[i].expected, got);
    }
}
END_TEST

/* Without memory to read a call, its mark is thinking. */
START_TEST(without_memory_a_call_is_thinking)
{
    static const char says[] = JSON_CALL;
    size_t before = mem_live();
    bool fired = true;
    for (long k = 0; fired; k++) {
        struct chat_budget *b = mem_zalloc(chat_budget_bytes(1), MEM_GENERAL);
        chat_budget_init(b, &(struct chat_budget_config){chat_format_at(0), file.t, 100, true, true, &end_id, 1});
        mem_fail_at(k);
        for (size_t i = 0; i < sizeof says - 1; i++) {
            chat_budget_take(b, id_of[(unsigned char)says[i]]);
        }
        fired = mem_fault_fired();
        mem_fail_at(-1);
        chat_budget_fini(b);
        mem_free(b);
        ck_assert_uint_eq(mem_live(), before);
    }
}
END_TEST

/* A mark may be one token, whose text is the mark. */
START_TEST(marks_are_tokens)
{
    struct chat_budget *b = mem_zalloc(chat_budget_bytes(1), MEM_GENERAL);
    chat_budget_init(b,
                     &(struct chat_budget_config){chat_format_named("mistral"), file.t, 2, false, false, &end_id, 1});
    const int32_t says[] = {begin_id, id_of['a'], id_of['b']};
    for (size_t i = 0; i < ARRAY_LEN(says); i++) {
        ck_assert_int_eq(chat_budget_next(b), TOKENIZER_NO_TOKEN);
        chat_budget_take(b, says[i]);
    }
    ck_assert_int_eq(chat_budget_next(b), end_id);
    chat_budget_take(b, end_id);
    ck_assert_int_eq(chat_budget_next(b), TOKENIZER_NO_TOKEN);
    chat_budget_init(b, &(struct chat_budget_config){chat_format_named("mistral"), file.t, 1, true, false, &end_id, 1});
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
    chat_budget_init(b, &(struct chat_budget_config){chat_format_at(0), file.t, 0, true, false, end, 2});
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
    tcase_add_test(t, only_calls_end_the_thinking);
    tcase_add_test(t, without_memory_a_call_is_thinking);
    tcase_add_test(t, marks_are_tokens);
    tcase_add_test(t, what_cannot_come_is_given_up);
    suite_add_tcase(s, t);
    return s;
}
