/* Answers that must be calls: what the grammar of a format takes, byte by byte, and what it does not. */
#include "engine/chat/chat_forced.h"

#include "engine/base/mem.h"
#include "engine/chat/chat_parts.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *chat_forced_suite(void);

static struct vocab file;
static struct grammar_vocab *vocab;
static struct err_info info;
static int32_t id_of[256];

static void set_up(void)
{
    vocab_bpe(&file, "gpt-2");
    int32_t begin = vocab_add(&file, "[THINK]", 7, TOKEN_CONTROL, 0),
            end = vocab_add(&file, "[/THINK]", 8, TOKEN_CONTROL, 0);
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    vocab_byte_ids(&file, id_of);
    id_of[1] = begin; /* two bytes that no text here has */
    id_of[2] = end;
}

static void tear_down(void)
{
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static enum err compile(const struct chat_forced *f, struct grammar **out, size_t *i_failed)
{
    struct grammar_builder *b;
    symbol_id start;
    info = (struct err_info){0};
    *out = NULL;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    enum err err = chat_forced_add(b, f, file.t, &start, i_failed, &info);
    if (err == ERR_OK) {
        return grammar_finish(&b, start, out, &info);
    }
    grammar_builder_free(&b);
    return err;
}

static bool says(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (; *text != '\0' && taken; text++) {
        ck_assert_int_eq(grammar_matcher_accept(m, id_of[(unsigned char)*text], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

enum { MOST = 10 };

static void check(struct chat_forced f, const char *const *right, const char *const *wrong)
{
    struct grammar *g;
    size_t i_failed;
    json_t *number = json_loads("{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
                                "\"additionalProperties\":false}",
                                0, NULL);
    const struct chat_forced_tool tools[] = {{"f", number, false}, {"g", NULL, false}, {"h", NULL, true}};
    f.format = f.format != NULL ? f.format : chat_format_at(0);
    f.tools = tools;
    f.n_tools = ARRAY_LEN(tools);
    ck_assert_msg(compile(&f, &g, &i_failed) == ERR_OK, "%s", info.text);
    for (; *right != NULL; right++) {
        ck_assert_msg(says(g, *right), "expected '%s' to be taken", *right);
    }
    for (; *wrong != NULL; wrong++) {
        ck_assert_msg(!says(g, *wrong), "expected '%s' to be refused", *wrong);
    }
    grammar_unref(&g);
    json_decref(number);
}

#define F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define G "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
#define H "<tool_call>\n{\"name\": \"h\", \"arguments\": {\"x\":[1]}}\n</tool_call>"

START_TEST(forced_calls)
{
    check((struct chat_forced){0}, (const char *const[]){F, G, H, F "\n" G "\n" F, NULL},
          (const char *const[]){"", "Hello", "Hello\n" F, F "\n", F G, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
                                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"1\"}}\n</tool_call>",
                                "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": 1}}\n</tool_call>",
                                "<tool_call>\n{\"name\": \"x\", \"arguments\": {}}\n</tool_call>", "<think>a</think>" F,
                                NULL});
    check((struct chat_forced){.is_single = true}, (const char *const[]){F, G, NULL},
          (const char *const[]){"", F "\n" G, NULL});
}
END_TEST

START_TEST(text_in_front)
{
    check((struct chat_forced){.may_speak = true},
          (const char *const[]){"", "Hello <tool_cal", F, "Hello\n" F "\n" G, NULL},
          (const char *const[]){"<tool_call>", "a <tool_call>\n{}", F "\nHello", NULL});
    check((struct chat_forced){.may_speak = true, .is_single = true}, (const char *const[]){"", "Hi", "Hi\n" F, NULL},
          (const char *const[]){F "\n" G, NULL});
}
END_TEST

START_TEST(thinking_in_front)
{
    check((struct chat_forced){.thinking = CHAT_IS_THINKING},
          (const char *const[]){"Hm <b></think>" F, "</think>\n\n" F, NULL},
          (const char *const[]){F, "<think>", "Hm</think>", "a</think></think>" F, NULL});
    check((struct chat_forced){.thinking = CHAT_MAY_THINK},
          (const char *const[]){F, "<think>\nHm\n</think>\n\n" F, "<think></think>" F, NULL},
          (const char *const[]){"Hm</think>" F, "<think>a</think>", NULL});
}
END_TEST

/* Any grammar, after what the model thinks. */
START_TEST(thinking_in_front_of_others)
{
    static const char *const harmony =
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>x";
    static const struct {
        const char *format;
        enum chat_thinking thinking;
        const char *right[4], *wrong[6];
    } cases[] = {
        {"hermes", CHAT_THINKS_NOT, {"x"}, {"", "<think></think>x"}},
        {"hermes",
         CHAT_MAY_THINK,
         {"x", "<think>\nHm x</think>\n\nx", "<think></think>x"},
         {"", "xx", "Hm</think>x", "<think>x", "<think>a</think>", "<think>a</think>y"}},
        {"hermes",
         CHAT_IS_THINKING,
         {"</think>x", "Hm <think> x\n</think>\n\nx"},
         {"x", "a</think>", "<think></think></think>x"}},
        {"mistral", /* whose marks are tokens here, and nothing else */
         CHAT_MAY_THINK,
         {"x", "\1Hm [/THINK] x\2\nx", "\1\2x"},
         {"[THINK]Hm[/THINK]x", "\1Hm[/THINK]x", "\1\1\2x", "\1Hm\2", "\2x"}},
        {"mistral", CHAT_IS_THINKING, {"\2x", "Hm\2x"}, {"x", "\1\2x"}},
        {"gpt-oss",
         CHAT_MAY_THINK,
         {"<|channel|>final<|message|>x", harmony},
         {"x", "<|channel|>analysis<|message|>x", "<|channel|>analysis<|message|>Hm<|end|><|start|>assistantx"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar_builder *b;
        struct grammar *g;
        ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
        symbol_id x = grammar_lexeme(b, regex_bytes(grammar_regexes(b), "x", 1));
        x = chat_forced_think(b, chat_format_named(cases[i].format), cases[i].thinking, file.t, x);
        ck_assert_int_eq(grammar_finish(&b, x, &g, &info), ERR_OK);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].right) && cases[i].right[k] != NULL; k++) {
            ck_assert_msg(says(g, cases[i].right[k]), "%zu: expected '%s' to be taken", i, cases[i].right[k]);
        }
        for (size_t k = 0; k < ARRAY_LEN(cases[i].wrong) && cases[i].wrong[k] != NULL; k++) {
            ck_assert_msg(!says(g, cases[i].wrong[k]), "%zu: expected '%s' to be refused", i, cases[i].wrong[k]);
        }
        grammar_unref(&g);
    }
}
END_TEST

/* Arguments are an object for certain, or the schema is refused, with the tool. */
START_TEST(schemas_of_objects)
{
    static const struct {
        const char *schema, *where;
    } cases[] = {
        {"{}", NULL},
        {"{\"type\":\"object\"}", NULL},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"object\"}}}", NULL},
        {"{\"anyOf\":[{\"type\":\"object\"},{\"$ref\":\"#/definitions/a\"}],\"definitions\":{\"a\":{\"type\":"
         "\"object\"}}}",
         NULL},
        {"{\"type\":\"string\"}", "/type"},
        {"{\"type\":[\"object\",\"null\"]}", "/type"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{}}}", "/type"},
        {"{\"$ref\":\"#\"}", "/type"},
        {"{\"$ref\":\"#/none\"}", "/type"},
        {"{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"array\"}]}", "/type"},
        {"{\"enum\":[1]}", "/type"},
        {"{\"properties\":{\"a\":{\"pattern\":\"(?<=a)b\"}}}", "/properties/a/pattern"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g;
        size_t i_failed = 0;
        json_t *schema = json_loads(cases[i].schema, 0, NULL), *kept = json_deep_copy(schema);
        const struct chat_forced_tool tools[] = {{"f", NULL, false}, {"g", schema, false}};
        const struct chat_forced f = {.format = chat_format_at(0), .tools = tools, .n_tools = 2};
        enum err err = compile(&f, &g, &i_failed);
        ck_assert_msg(err == (cases[i].where != NULL ? ERR_INVALID_SCHEMA : ERR_OK), "%s: %s", cases[i].schema,
                      err_code(err));
        if (cases[i].where != NULL) {
            ck_assert_str_eq(info.where, cases[i].where);
            ck_assert_uint_eq(i_failed, 1);
        } else {
            ck_assert(says(g, "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"));
            ck_assert(!says(g, "<tool_call>\n{\"name\": \"g\", \"arguments\": 1}\n</tool_call>"));
        }
        ck_assert(json_equal(schema, kept));
        grammar_unref(&g);
        json_decref(schema);
        json_decref(kept);
    }
}
END_TEST

/* What must come in a format is what its reader reads: names and arguments, however many. */
struct read {
    char text[256];
};

static void note(void *arg, const struct chat_part *part)
{
    struct read *r = arg;
    static const char *const kinds[] = {"T:", "R:", "C:", "A:", ""};
    strcat(r->text, kinds[part->kind]);
    strncat(r->text, part->text, part->len);
}

START_TEST(formats_are_written_as_they_are_read)
{
    const struct chat_forced_tool tools[] = {{.name = "first", .is_loose = true}, {.name = "second", .is_loose = true}};
    const struct chat_format *row;
    for (int i = 0; (row = chat_format_at(i)) != NULL; i++) {
        const struct chat_forced f = {.format = row, .tools = tools, .n_tools = 2};
        char text[1024];
        struct grammar *g;
        size_t i_failed;
        struct read r = {""};
        struct chat_split split;
        snprintf(text, sizeof text, "%s%sfirst%s{\"a\": \"x\"}%s%s%ssecond%s{}%s%s", row->begin, row->call,
                 row->name_end, row->call_end, row->between, row->call, row->name_end, row->call_end, row->end);
        ck_assert_msg(compile(&f, &g, &i_failed) == ERR_OK, "%s: %s", row->name, info.text);
        ck_assert_msg(says(g, text), "%s: %s", row->name, text);
        grammar_unref(&g);
        chat_split_init(&split,
                        &(struct chat_split_config){.splits_reasoning = true, .reads_calls = true, .format = row});
        chat_split_feed(&split, text, strlen(text), note, &r);
        chat_split_finish(&split, note, &r);
        chat_split_fini(&split);
        ck_assert_msg(strcmp(r.text, "C:firstA:{\"a\": \"x\"}C:secondA:{}") == 0, "%s: %s of %s", row->name, r.text,
                      text);
    }
}
END_TEST

Suite *chat_forced_suite(void)
{
    Suite *s = suite_create("chat_forced");
    TCase *t = tcase_create("forced");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, forced_calls);
    tcase_add_test(t, text_in_front);
    tcase_add_test(t, thinking_in_front);
    tcase_add_test(t, thinking_in_front_of_others);
    tcase_add_test(t, schemas_of_objects);
    tcase_add_test(t, formats_are_written_as_they_are_read);
    suite_add_tcase(s, t);
    return s;
}
