/* Answers taken apart: each form of a call and of thinking, whole and cut at every byte. */
#include "engine/chat/chat_parts.h"

#include "engine/base/json_scan.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *chat_parts_suite(void);

/* The vertical bar and the low line of DeepSeek's marks. */
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"

/* What came out, as "T:text|R:thinking|C:name|A:arguments|E|", a call that breaks off with X: parts of one kind in a row are joined. */
struct seen {
    struct buf out;
    int last;
    struct json_scan scan; /* of the arguments */
};

/* Arguments are JSON as far as they have come, and whole where the call ends. */
static void check_arguments(struct seen *s, const struct chat_part *part)
{
    if (part->kind == CHAT_CALL_BEGIN) {
        s->scan = (struct json_scan){.depth = 0};
    } else if (part->kind == CHAT_CALL_ARGUMENTS) {
        ck_assert_uint_eq(json_scan_feed(&s->scan, part->text, part->len), part->len);
    } else if (part->kind == CHAT_CALL_END || part->kind == CHAT_CALL_CUT) {
        ck_assert_int_eq(s->scan.state == JSON_SCAN_WHOLE, part->kind == CHAT_CALL_END);
    }
}

static void see(void *arg, const struct chat_part *part)
{
    struct seen *s = arg;
    check_arguments(s, part);
    bool joins = (int)part->kind == s->last && part->kind != CHAT_CALL_BEGIN;
    if (!joins) {
        buf_puts(&s->out, s->last >= 0 ? "|" : "");
        buf_printf(&s->out, "%c:", "TRCAEX"[part->kind]);
    }
    buf_append(&s->out, part->text, part->len);
    s->last = (int)part->kind;
}

static json_t *tools;

static const struct chat_split_config all = {.splits_reasoning = true, .reads_calls = true};

/* step: bytes of a piece, after a first piece of `first` bytes. */
static void split(const struct chat_split_config *config, const char *text, size_t n, size_t first, size_t step,
                  struct seen *s)
{
    struct chat_split_config with_tools = *config;
    struct chat_split it;
    with_tools.tools = tools;
    *s = (struct seen){.last = -1};
    buf_init(&s->out, 0, MEM_GENERAL);
    chat_split_init(&it, &with_tools);
    for (size_t i = 0, len = first; i < n; i += len, len = step) {
        len = MIN_OF(len, n - i);
        chat_split_feed(&it, text + i, len, see, s);
    }
    chat_split_finish(&it, see, s);
    ck_assert_int_eq(chat_split_ok(&it), ERR_OK);
    chat_split_fini(&it);
}

/* Whole, in two pieces at every place, and byte by byte. */
static void expect(const struct chat_split_config *config, const char *text, const char *expected)
{
    struct seen s;
    size_t n = strlen(text);
    for (size_t first = 1; first <= n; first++) {
        split(config, text, n, first, n, &s);
        ck_assert_msg(strcmp(s.out.data != NULL ? s.out.data : "", expected) == 0,
                      "cut at %zu of '%s': expected '%s', found '%s'", first, text, expected, s.out.data);
        buf_fini(&s.out);
    }
    split(config, text, n, 1, 1, &s);
    ck_assert_str_eq(s.out.data != NULL ? s.out.data : "", expected);
    buf_fini(&s.out);
}

static void set_up(void)
{
    json_error_t e;
    tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":"
                       "{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
                       "\"o\":{\"type\":[\"string\",\"null\"]}}}}}]",
                       0, &e);
    ck_assert_ptr_nonnull(tools);
}

static void tear_down(void)
{
    json_decref(tools);
    tools = NULL;
}

START_TEST(text_alone_passes)
{
    expect(&all, "Hello,\n world <tool> </think> \n", "T:Hello,\n world <tool> </think> \n");
    expect(&all, " <thin", "T: <thin");
    expect(&(struct chat_split_config){0}, "<think>a</think><tool_call>{}</tool_call>",
           "T:<think>a</think><tool_call>{}</tool_call>");
}
END_TEST

START_TEST(thinking_is_split_off)
{
    const struct chat_split_config begun = {.splits_reasoning = true, .starts_in_reasoning = true};
    expect(&all, "<think>\nHm.\n So\n</think>\n\nYes.\n", "R:Hm.\n So|T:Yes.\n");
    expect(&all, "\n<think>\n\n</think>\n\nYes", "T:Yes");
    expect(&all, "<think>never ends</thin", "R:never ends</thin");
    expect(&all, "No <think>x</think>", "T:No <think>x</think>");
    expect(&begun, "\nHm</think>Yes <think>", "R:Hm|T:Yes <think>");
    expect(&begun, "Hm", "R:Hm");
}
END_TEST

START_TEST(json_calls_are_read)
{
    expect(&all, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1.50, \"a\": [{}]}}\n</tool_call>",
           "C:f|A:{\"n\": 1.50, \"a\": [{}]}|E:");
    expect(&all, "<tool_call>{\"parameters\":{\"x\":\"</tool_call> \\\" {\"},\"name\":\"g\"}</tool_call>",
           "C:g|A:{\"x\":\"</tool_call> \\\" {\"}|E:");
    expect(&all, "<tool_call>{\"name\":\"g\"}</tool_call>\n<tool_call>{\"name\":\"h\",\"arguments\":\"{\\\"a\\\":1}\"}",
           "C:g|A:{}|E:|C:h|A:{\"a\":1}|E:");
    expect(&all, "<think>a</think>\nI call.\n\n<tool_call>{\"name\":\"g\"}</tool_call>\n", "R:a|T:I call.|C:g|A:{}|E:");
    expect(&all, "<tool_call>{\"name\":\"g\"}</tool_call>\nDone.", "C:g|A:{}|E:|T:Done.");
}
END_TEST

START_TEST(keyed_calls_are_read)
{
    expect(&all,
           "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n"
           "<parameter=o>\nnull\n</parameter>\n<parameter=q>\na \"b\"\n\n</parameter>\n</function>\n</tool_call>",
           "C:f|A:{\"s\":\"12\",\"n\":12,\"o\":null,\"q\":\"a \\\"b\\\"\\n\"}|E:");
    expect(&all, "<tool_call><function=g></function></tool_call>", "C:g|A:{}|E:");
    expect(&all,
           "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>true</arg_value>\n<arg_key>x</arg_key>\n"
           "<arg_value>[1, 2]</arg_value>\n</tool_call>",
           "C:f|A:{\"s\":\"true\",\"x\":[1, 2]}|E:");
    expect(&all, "<tool_call>f<arg_key>n</arg_key><arg_value>1,\"b\":2</arg_value></tool_call>",
           "C:f|A:{\"n\":\"1,\\\"b\\\":2\"}|E:");
}
END_TEST

/* Values without quotes are what the schema says. */
static const struct {
    const char *format, *text, *arguments;
} typed_rows[] = {
    {"hermes", "<tool_call><function=f><parameter=K>5</parameter></function></tool_call>",
     "en:'5' r:'5' os:'5' c:'5' un:'5' sn:'5' any:5 i:5 ei:5 re:'5' lo:'5'"},
    {"hermes", "<tool_call><function=f><parameter=K>\nnull\n</parameter></function></tool_call>",
     "en:'null' r:'null' os:null un:null sn:'null' any:null i:null"},
    {"hermes", "<tool_call><function=f><parameter=K>[1]</parameter></function></tool_call>", "os:'[1]' sl:[1] any:[1]"},
    {"hermes", "<tool_call><function=f><parameter=K>True</parameter></function></tool_call>",
     "r:'True' i:true any:'True'"},
    {"hermes", "<tool_call><function=f><parameter=K>18446744073709551616</parameter></function></tool_call>",
     "r:'18446744073709551616' any:18446744073709551616 i:18446744073709551616"},
    {"hermes", "<tool_call>f<arg_key>K</arg_key><arg_value>5</arg_value></tool_call>", "en:'5' r:'5' un:'5' any:5 i:5"},
    {"minimax-m2",
     "<minimax:tool_call><invoke name=\"f\"><parameter name=\"K\">5</parameter></invoke></minimax:tool_call>",
     "en:'5' r:'5' un:'5' any:5 i:5"},
    {"gemma4", "<|tool_call>call:f{K:5}<tool_call|>", "en:'5' r:'5' os:'5' c:'5' un:'5' sn:5 any:5 i:5"},
    {"gemma4", "<|tool_call>call:f{K:null}<tool_call|>", "r:'null' os:null un:null any:null i:null"},
    {"gemma4", "<|tool_call>call:f{K:true}<tool_call|>", "r:'true' i:true any:true"},
    {"gemma4", "<|tool_call>call:f{K:word}<tool_call|>", "r:'word' en:'word' os:'word'"},
    {"gemma4", "<|tool_call>call:f{K:<|\"|>5<|\"|>}<tool_call|>", "r:'5' i:'5'"},
    {"gemma4", "<|tool_call>call:f{K:[5,[5],{c:5}]}<tool_call|>", "l:['5',[5],{'c':5}] i:[5,[5],{'c':5}]"},
    {"gemma4", "<|tool_call>call:f{K:{c:5,i:5,deep:{c:5,i:[5]},z:5,l:[5,5]}}<tool_call|>",
     "ob:{'c':'5','i':5,'deep':{'c':'5','i':[5]},'z':5,'l':['5','5']} i:{'c':5,'i':5,'deep':{'c':5,'i':[5]},'z':5,'l':[5,5]}"},
    {"lfm2", "<|tool_call_start|>[f(K=5)]<|tool_call_end|>", "en:'5' r:'5' sn:5 any:5 i:5"},
    {"lfm2", "<|tool_call_start|>[f(K=[5])]<|tool_call_end|>", "l:['5'] i:[5]"},
};

static const char typed_tools[] =
    "[{'type':'function','function':{'name':'f','parameters':{'type':'object','$defs':{'S':{'type':'string'},"
    "'C':{'$ref':'#/$defs/S'},'R':{'anyOf':[{'$ref':'#/$defs/R'},{'type':'string'}]},"
    "'O':{'type':'object','properties':{'c':{'type':'string'},'i':{'type':'integer'},'deep':{'$ref':'#/$defs/O'},"
    "'l':{'items':{'type':'string'}}}}},'properties':{'en':{'enum':['1','2']},'r':{'$ref':'#/$defs/S'},"
    "'os':{'type':['string','null']},'c':{'const':'5'},'un':{'anyOf':[{'$ref':'#/$defs/C'},{'type':'null'}]},"
    "'sn':{'oneOf':[{'type':'string'},{'type':'integer'}]},'any':{},'i':{'type':'integer'},'ei':{'enum':[1,5]},"
    "'re':{'allOf':[{'$ref':'#/$defs/C'}],'description':'x'},'lo':{'$ref':'#/$defs/R'},"
    "'sl':{'type':['string','array']},'l':{'type':'array','items':{'$ref':'#/$defs/C'}},"
    "'ob':{'allOf':[{'$ref':'#/$defs/O'}]}}}}}]";

START_TEST(values_have_the_types_of_the_schema)
{
    char source[2048], text[1024], expected[1024], cases[512];
    snprintf(source, sizeof source, "%s", typed_tools);
    for (char *p = source; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    json_decref(tools);
    tools = json_loads(source, 0, NULL);
    ck_assert_ptr_nonnull(tools);
    struct chat_split_config config = all;
    config.format = chat_format_named(typed_rows[_i].format);
    snprintf(cases, sizeof cases, "%s", typed_rows[_i].arguments);
    for (char *next, *one = cases; one != NULL; one = next) {
        next = strchr(one, ' ');
        if (next != NULL) {
            *next++ = '\0';
        }
        char *value = strchr(one, ':');
        *value++ = '\0';
        const char *key_at = strchr(typed_rows[_i].text, 'K');
        snprintf(text, sizeof text, "%.*s%s%s", (int)(key_at - typed_rows[_i].text), typed_rows[_i].text, one,
                 key_at + 1);
        snprintf(expected, sizeof expected, "C:f|A:{'%s':%s}|E:", one, value);
        for (char *p = expected; *p != '\0'; p++) {
            *p = *p == '\'' ? '"' : *p;
        }
        expect(&config, text, expected);
    }
}
END_TEST

START_TEST(what_does_not_parse_is_text)
{
    static const char *const cases[] = {
        "<tool_call></tool_call>",
        "<tool_call>{\"name\":\"f",
        "<tool_call>{\"name\":\"f\",\"arguments\":",
        "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":",
        "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":\"</tool_call>",
        "<tool_call>[{\"name\":\"g\"},{\"name\":\"h\"}</tool_call>",
        "<tool_call>{\"arguments\":{}}</tool_call> and on",
        "<tool_call>{\"name\":\"\"}</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":\"[1]\"}</tool_call>",
        "<tool_call>{\"name\":\"g\"} and</tool_call>",
        "<tool_call><function=f></tool_call>",
        "<tool_call><function=g><parameter=a>1</function></tool_call>",
        "<tool_call>no call at all</tool_call>",
        "<tool_call>g<arg_key>a</arg_key>1</tool_call>",
        " <tool_cal",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char expected[256] = "T:";
        strcat(expected, cases[i]);
        expect(&all, cases[i], expected);
    }
}
END_TEST

/* A call that has come out is not taken back: it breaks off, and the rest is text. */
START_TEST(calls_that_break_off_are_cut)
{
    static const char *const cases[][2] = {
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "C:f|A:{\"a\":|X:"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"b</tool_call>", "C:f|A:{\"a\":\"b</tool_call>|X:"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1</tool_call> Yes", "C:f|A:{\"a\":1|X:|T:Yes"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":x}}</tool_call>", "C:f|A:{\"a\":|X:|T:x}}</tool_call>"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}", "C:f|A:{\"a\":1}|E:"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{}}}]</tool_call>", "C:f|A:{}|E:"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{},\"id\":1}</tool_c", "C:f|A:{}|E:"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{}} what</tool_call>", "C:f|A:{}|E:|T:what</tool_call>"},
        {"<tool_call>[{\"name\":\"f\"},{\"name\":\"g\",\"arguments\":{\"a\":",
         "C:f|A:{}|E:|T:{\"name\":\"g\",\"arguments\":{\"a\":"},
        {"<tool_call>[{\"name\":\"g\"},{\"name\":\"f\",\"arguments\":{\"a\":", "C:g|A:{}|E:|C:f|A:{\"a\":|X:"},
        {"<tool_call><function=f><parameter=a>1</function></tool_call>", "C:f|A:{|X:"},
        {"<tool_call><function=f><parameter=s>\none\ntwo\n</para", "C:f|A:{\"s\":\"one\\ntwo|X:"},
        {"<tool_call>f<arg_key>n</arg_key>1</tool_call>", "C:f|A:{|X:|T:1</tool_call>"},
        {"<tool_call><function=f><parameter=n>1</parameter>\nand</tool_call>", "C:f|A:{\"n\":1|X:|T:and</tool_call>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        expect(&all, cases[i][0], cases[i][1]);
    }
}
END_TEST

/* Where calls are forced, what was cut before one has come out is neither a call nor text. */
START_TEST(forced_calls_that_are_cut_leave_nothing)
{
    static const char *const cases[][3] = {
        {"hermes", "<tool_c", ""},
        {"hermes", "<tool_call>\n{\"na", ""},
        {"hermes", "<tool_call>{\"name\":\"f\",\"argu", ""},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "C:f|A:{\"a\":|X:"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":", "C:f|A:{}|E:"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool", "C:f|A:{}|E:"},
        {"hermes", "<think>so</think><tool_call>", "R:so"},
        {"hermes", "<think>so </thi", "R:so </thi"},
        {"mistral", "[TOOL_CALLS]f[AR", ""},
        {"llama3", "{\"name\": \"f\", \"para", ""},
        {"llama4", "[f", ""},
        {"gemma4", "<|tool_call>call:", ""},
        {"minimax-m2", "<minimax:tool_call>\n<invoke name=\"", ""},
        {"gpt-oss", "<|channel|>commentary to=functions.f<|message|>", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_split_config config = all;
        config.format = chat_format_named(cases[i][0]);
        config.is_forced = true;
        expect(&config, cases[i][1], cases[i][2]);
    }
}
END_TEST

/* What has come out where ^ stands, byte by byte. */
START_TEST(arguments_come_as_they_are_written)
{
    static const char *const cases[][3] = {
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{^\"s\":\"ab^c\",\"n\":12^}}",
         "C:f|A:{\"s\":\"abc\",\"n\":12}"},
        {"hermes", "<tool_call>{\"arguments\":{\"s\":1},\"name\":\"f\"}^", "C:f|A:{\"s\":1}|E:"},
        {"hermes", "<tool_call><function=f><parameter=s>\na \"^b\nc^", "C:f|A:{\"s\":\"a \\\"b\\nc"},
        {"hermes", "<tool_call><function=f><parameter=n>1</parameter>^", "C:f|A:{\"n\":1"},
        {"hermes", "<tool_call>f<arg_key>s</arg_key><arg_value>ab^c^</arg_value>", "C:f|A:{\"s\":\"abc"},
        {"minimax-m2", "<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">ab^c^</parameter>",
         "C:f|A:{\"s\":\"abc"},
        {"mistral", "[TOOL_CALLS]f[ARGS]{^\"s\": \"ab^c", "C:f|A:{\"s\": \"ab"},
        {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"ab^c", "C:f|A:{\"s\": \"ab"},
        {"gemma4", "<|tool_call>call:f{s:<|\"|>ab^c^<|\"|>", "C:f|A:{\"s\":\"abc"},
        {"lfm2", "<|tool_call_start|>[f(s=\"ab^c^\"", "C:f|A:{\"s\":\"abc"},
        {"llama3", "{\"name\": \"f\", \"parameters\": {\"s\": \"ab^", "C:f|A:{\"s\": \"ab"},
        {"llama4", "[f(s='ab^c^'", "C:f|A:{\"s\":\"abc"},
        {"gpt-oss", "<|channel|>commentary to=functions.f<|message|>{\"s\": \"ab^", "C:f|A:{\"s\": \"ab"},
        {"seed-oss", "<seed:tool_call>\n<function=f>\n<parameter=s>ab^c^", "C:f|A:{\"s\":\"abc"},
        {"apertus", "<|tools_prefix|>[{\"f\": {\"s\": \"ab^c", "C:f|A:{\"s\": \"ab"},
        {"command-r7b", "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"s\": \"ab^c", "C:f|A:{\"s\": \"ab"},
        {"nemotron-v2", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": \"ab^c", "C:f|A:{\"s\": \"ab"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_split_config config = all;
        struct chat_split it;
        struct seen s = {.last = -1};
        config.tools = tools;
        config.format = chat_format_named(cases[i][0]);
        size_t shown = 0;
        buf_init(&s.out, 0, MEM_GENERAL);
        chat_split_init(&it, &config);
        for (const char *p = cases[i][1]; *p != '\0'; p++) {
            if (*p == '^') { /* more came out than where the last ^ stood, and nothing is kept back */
                ck_assert_msg(s.out.len > shown && strncmp(s.out.data, cases[i][2], s.out.len) == 0,
                              "%s: '%s' gave '%s'", cases[i][0], cases[i][1], s.out.data);
                shown = s.out.len;
            } else {
                chat_split_feed(&it, p, 1, see, &s);
            }
        }
        ck_assert_msg(shown == strlen(cases[i][2]) || cases[i][1][strlen(cases[i][1]) - 1] != '^', "%s: '%s' gave '%s'",
                      cases[i][0], cases[i][1], s.out.data);
        chat_split_fini(&it);
        buf_fini(&s.out);
    }
}
END_TEST

/* White space beyond the limit belongs to the text, wherever it is cut. */
START_TEST(space_is_held_up_to_a_limit)
{
    char text[256], expected[256];
    memset(text, ' ', sizeof text);
    text[0] = 'a';
    strcpy(text + 101, "<tool_call>{\"name\":\"g\"}</tool_call>");
    memset(expected, ' ', sizeof expected);
    memcpy(expected, "T:a", 3);
    strcpy(expected + 3 + 100 - CHAT_SPLIT_SPACE, "|C:g|A:{}|E:");
    expect(&all, text, expected);
}
END_TEST

static size_t next(uint64_t *position) { return (size_t)(rng_uniform(17, 0, (*position)++) * 1000000); }

/* Marks and their pieces in any order: cut anywhere it is the same, and no byte makes it fail. */
START_TEST(any_text_is_the_same_however_cut)
{
    static const char *const words[] = {"<think>",
                                        "</think>",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "{\"name\":\"f\"",
                                        "}",
                                        ",",
                                        "\"",
                                        "\\",
                                        "<",
                                        "\n",
                                        "  ",
                                        "<function=f>",
                                        "</function>",
                                        "<parameter=s>",
                                        "</parameter>",
                                        "<arg_key>",
                                        "</arg_key>",
                                        "\"arguments\":{",
                                        "\xc3\xa9"};
    uint64_t position = 0;
    for (int i = 0; i < 3000; i++) {
        char text[512] = "";
        for (size_t k = 0, n = 1 + next(&position) % 24; k < n; k++) {
            strcat(text, words[next(&position) % ARRAY_LEN(words)]);
        }
        struct seen whole, cut;
        size_t n = strlen(text);
        struct chat_split_config config = all;
        config.starts_in_reasoning = i % 2 == 1;
        split(&config, text, n, n, n, &whole);
        split(&config, text, n, 1 + next(&position) % 7, 1 + next(&position) % 5, &cut);
        ck_assert_msg(whole.out.len == cut.out.len &&
                          (whole.out.len == 0 || memcmp(whole.out.data, cut.out.data, whole.out.len) == 0),
                      "'%s': whole '%s', cut '%s'", text, whole.out.data, cut.out.data);
        buf_fini(&whole.out);
        buf_fini(&cut.out);
    }
}
END_TEST

/* Each format's calls, thinking and text, and what only looks like a call. */
static const struct {
    const char *format, *text, *parts;
} format_rows[] = {
    {"hermes",
     "<tool_call>[{\"name\":\"a\",\"arguments\":{}},{\"name\":\"b\",\"arguments\":{\"x\":\"]}\"}}]</tool_call>",
     "C:a|A:{}|E:|C:b|A:{\"x\":\"]}\"}|E:"},
    {"mistral",
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc\"}, {\"name\": \"g\", \"arguments\": "
     "{}}]",
     "C:f|A:{\"a\": 1}|E:|C:g|A:{}|E:"},
    {"mistral", "I look.\n[TOOL_CALLS]f[ARGS]{\"a\": \"[TOOL_CALLS]\"}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
     "T:I look.|C:f|A:{\"a\": \"[TOOL_CALLS]\"}|E:|C:g|A:{}|E:"},
    {"mistral", "[TOOL_CALLS]g[ARGS]{\"a\": ", "T:[TOOL_CALLS]g[ARGS]{\"a\": "},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": 1} So.", "C:f|A:{\"a\": 1}|E:|T:So."},
    {"mistral", "[THINK]so[/THINK]Yes", "R:so|T:Yes"},
    {"deepseek",
     "<think>\nhm</think>\n\nI do.\n\n<\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "begin\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "begin\xef\xbd\x9c>f<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>{\"a\": "
     "\"\xc3\xa9\"}<\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "end\xef\xbd\x9c>\n<\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "begin\xef\xbd\x9c>g<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>{}<\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "end\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     "R:hm|T:I do.|C:f|A:{\"a\": \"\xc3\xa9\"}|E:|C:g|A:{}|E:"},
    {"deepseek",
     "<\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "begin\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "begin\xef\xbd\x9c>function<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>f\n```json\n{\"a\": "
     "[1]}\n```<\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "end\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     "C:f|A:{\"a\": [1]}|E:"},
    {"kimi-k2",
     "Sure.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\":1}<|tool_"
     "call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_"
     "section_end|>",
     "T:Sure.|C:f|A:{\"a\":1}|E:|C:g|A:{}|E:"},
    {"minimax-m2",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">5</parameter>\n<parameter "
     "name=\"n\">5</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "C:f|A:{\"s\":\"5\",\"n\":5}|E:|C:g|A:{}|E:"},
    {"deepseek-v3.2",
     "Hi\n\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "function_calls>\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9cinvoke name=\"f\">\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9cparameter name=\"s\" string=\"true\">a\n\"b</\xef\xbd\x9c"
     "DSML\xef\xbd\x9cparameter>\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9cparameter name=\"n\" string=\"false\">[1]</\xef\xbd\x9c"
     "DSML\xef\xbd\x9cparameter>\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9cinvoke>\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9cinvoke name=\"g\">\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9cinvoke>\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "function_calls>",
     "T:Hi|C:f|A:{\"s\":\"a\\n\\\"b\",\"n\":[1]}|E:|C:g|A:{}|E:"},
    {"deepseek-v3.2",
     "<\xef\xbd\x9c"
     "DSML\xef\xbd\x9ctool_calls>\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9cinvoke name=\"g\">\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9cinvoke>\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9ctool_calls>",
     "C:g|A:{}|E:"},
    {"gemma4",
     "<|channel>thought\nso<channel|>Ok<|tool_call>call:f{a:<|\"|>x,\"y}<|\"|>,b:{c:[1,true]},d:null}<tool_call|><|"
     "tool_call>call:g{}<tool_call|>",
     "R:so|T:Ok|C:f|A:{\"a\":\"x,\\\"y}\",\"b\":{\"c\":[1,true]},\"d\":null}|E:|C:g|A:{}|E:"},
    {"lfm2", "<|tool_call_start|>[f(a=\"x, (\\\"\", b=[1, 'y'], c={\"k\": True}, d=None), g()]<|tool_call_end|>Done",
     "C:f|A:{\"a\":\"x, (\\\"\",\"b\":[1, \"y\"],\"c\":{\"k\": true},\"d\":null}|E:|C:g|A:{}|E:|T:Done"},
    {"lfm2", "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>",
     "C:f|A:{\"a\": 1}|E:"},
    {"lfm2", "<|tool_call_start|>[g(a=<|tool_call_end|>", "T:<|tool_call_start|>[g(a=<|tool_call_end|>"},
    {"lfm2", "<|tool_call_start|>[f(a=<|tool_call_end|>", "C:f|A:{\"a\":|X:"},
    {"granite3", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "C:f|A:{\"a\": 1}|E:"},
    {"llama4", "[f(a=1), g(s=\"t\")]", "C:f|A:{\"a\":1}|E:|C:g|A:{\"s\":\"t\"}|E:"},
    {"llama4", "[1, 2] are numbers", "T:[1, 2] are numbers"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "C:f|A:{\"a\": 1}|E:"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
     "C:f|A:{\"a\": 1}|E:|C:g|A:{}|E:"},
    {"llama3", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "C:f|A:{}|E:"},
    {"llama3", "{\"a\": 1} is JSON", "T:{\"a\": 1} is JSON"},
    {"llama3", "Text {\"name\": \"f\", \"parameters\": {}}", "T:Text {\"name\": \"f\", \"parameters\": {}}"},
    {"seed-oss",
     "<seed:think>so</seed:think>\nOk\n\n<seed:tool_call>\n<function=f>\n<parameter=s>5</parameter>\n<parameter=n>5</parameter>\n"
     "</function>\n</seed:tool_call>",
     "R:so|T:Ok|C:f|A:{\"s\":\"5\",\"n\":5}|E:"},
    {"seed-oss", "<seed:tool_call>\n<function=f</seed:tool_call>", "T:<seed:tool_call>\n<function=f</seed:tool_call>"},
    {"apertus",
     "<|inner_prefix|>so<|inner_suffix|>Ok<|tools_prefix|>[{\"f\": {\"name\": \"<|tools_suffix|>\"}}, {\"arguments\": {}}]"
     "<|tools_suffix|>",
     "R:so|T:Ok|C:f|A:{\"name\": \"<|tools_suffix|>\"}|E:|C:arguments|A:{}|E:"},
    {"apertus", "<|tools_prefix|>[{\"f\": {}, \"g\": {}}]<|tools_suffix|>", "C:f|A:{}|E:"},
    {"apertus", "<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>", "T:<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>"},
    {"apertus", "<|tools_prefix|>[{}]<|tools_suffix|>", "T:<|tools_prefix|>[{}]<|tools_suffix|>"},
    {"cohere2moe",
     "<|START_THINKING|>so<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
     "\"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
     "R:so|C:f|A:{\"a\": 1}|E:"},
    {"cohere2moe", "<|START_THINKING|>so<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>", "R:so|T:Yes."},
    {"command-r7b",
     "<|START_THINKING|>so<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
     "\"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]"
     "<|END_ACTION|>",
     "R:so|C:f|A:{\"a\": 1}|E:|C:g|A:{}|E:"},
    {"command-r7b", "<|START_THINKING|>so<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>", "R:so|T:Yes."},
    {"command-r7b", "<|START_ACTION|>[1]<|END_ACTION|>", "T:<|START_ACTION|>[1]<|END_ACTION|>"},
    {"nemotron-v2",
     "<think>\nso\n</think>\n\nOk\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
     "\"arguments\": {}}]</TOOLCALL>",
     "R:so|T:Ok|C:f|A:{\"a\": 1}|E:|C:g|A:{}|E:"},
    {"nemotron-v2", "<TOOLCALL>[1]</TOOLCALL>", "T:<TOOLCALL>[1]</TOOLCALL>"},
    {"gpt-oss",
     "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\": \"<b>\"}<|call|>",
     "R:I think.|C:f|A:{\"a\": \"<b>\"}|E:"},
    {"gpt-oss", "<|channel|>analysis<|message|>a b <|end|><|start|>assistant<|channel|>final<|message|>The answer.\n",
     "R:a b |T:The answer.\n"},
    {"gpt-oss", " to=functions.g<|channel|>commentary json<|message|>{}", "C:g|A:{}|E:"},
    {"gpt-oss", "<|channel|>commentary to=functions.f<|message|>not json<|call|>", "T:not json"},
    {"gpt-oss", "plain text <|x", "T:plain text <|x"},
    {"gpt-oss", "<|channel|>final", ""},
};

START_TEST(formats_are_read)
{
    for (size_t i = 0; i < ARRAY_LEN(format_rows); i++) {
        struct chat_split_config config = all;
        config.format = chat_format_named(format_rows[i].format);
        ck_assert_msg(config.format != NULL, "%s", format_rows[i].format);
        expect(&config, format_rows[i].text, format_rows[i].parts);
    }
}
END_TEST

/* Names of MCP tools have dots, and may hold the word that some formats put before a name. */
START_TEST(names_with_dots_stay_whole)
{
    static const struct {
        const char *format, *text, *name;
    } rows[] = {
        {"kimi-k2",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
         "<|tool_calls_section_end|>",
         "a.b"},
        {"kimi-k2",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
         "<|tool_calls_section_end|>",
         "my.functions.get"},
        {"gpt-oss", "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>{}<|call|>", "functions.get"},
        {"gpt-oss", "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>{}<|call|>", "my.functions.get"},
        {"mistral", "[TOOL_CALLS]%s[ARGS]{}", "my.functions.get"},
        {"mistral", "[TOOL_CALLS]%s[CALL_ID]1[ARGS]{}", "functions.get"},
        {"llama4", "[%s()]", "a.b-c"},
        {"hermes", "<tool_call>{\"name\": \"%s\", \"arguments\": {}}</tool_call>", "a.b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct chat_split_config config = all;
        char text[256], parts[64];
        json_t *named = json_pack("[{s:s,s:{s:s}}]", "type", "function", "function", "name", rows[i].name),
               *others = tools;
        snprintf(text, sizeof text, rows[i].text, rows[i].name);
        snprintf(parts, sizeof parts, "C:%s|A:{}|E:", rows[i].name);
        tools = named;
        config.format = chat_format_named(rows[i].format);
        expect(&config, text, parts);
        tools = others;
        json_decref(named);
    }
}
END_TEST

/* A call that is made before the thinking is closed ends it. What only looks like one remains thinking. */
static const struct {
    const char *format, *text, *parts;
} thought_rows[] = {
    {"hermes", "hm <tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 5}}\n</tool_call>",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"hermes", "hm <tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
     "R:hm|C:f|A:{\"n\":5}|E:"},
    {"hermes", "hm<tool_call>f<arg_key>n</arg_key><arg_value>5</arg_value></tool_call>", "R:hm|C:f|A:{\"n\":5}|E:"},
    {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</tool_call>",
     "C:f|A:{}|E:|C:g|A:{}|E:"},
    {"hermes", "hm<tool_call>{\"name\":\"f\"}</tool_call>\n</think>\n\nDone </think>",
     "R:hm|C:f|A:{}|E:|T:Done </think>"},
    {"hermes", "hm<tool_call>{\"name\":\"f\"}</tool_call>Done</think>more", "R:hm|C:f|A:{}|E:|T:Donemore"},
    {"hermes", "hm<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</think>\"}}</tool_call>",
     "R:hm|C:f|A:{\"s\":\"</think>\"}|E:"},
    {"hermes", "hm<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":x", "R:hm|C:f|A:{\"n\":|X:|T:x"},
    {"hermes", "a <tool_call> b </think>c", "R:a <tool_call> b|T:c"},
    {"hermes", "a <tool_call></think>c", "R:a <tool_call>|T:c"},
    {"hermes", "a <tool_call>{\"name\": ..}</tool_call> b</think>c", "R:a <tool_call>{\"name\": ..}</tool_call> b|T:c"},
    {"hermes", "`<tool_call>` or <tool_cal or <toolcall></think><tool_call>{\"name\":\"f\"}</tool_call>",
     "R:`<tool_call>` or <tool_cal or <toolcall>|C:f|A:{}|E:"},
    {"hermes", "a <tool_call> b <tool_call>{\"name\":\"f\"}</tool_call>", "R:a <tool_call> b|C:f|A:{}|E:"},
    {"hermes", "a <tool_call>{\"name\":\"f", "R:a <tool_call>{\"name\":\"f"},
    {"hermes", "a <tool_call><function=g></think>b", "R:a <tool_call><function=g>|T:b"},
    {"hermes", "a <tool_call><function=g><parameter=x></think>b", "R:a <tool_call><function=g><parameter=x>|T:b"},
    {"kimi-k2",
     "hm <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": 5}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"kimi-k2", "hm<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
     "R:hm|C:f|A:{}|E:"},
    {"kimi-k2", "a <|tool_calls_section_begin|> b</think>c", "R:a <|tool_calls_section_begin|> b|T:c"},
    {"kimi-k2", "a <|tool_calls_section_begin|>\n<|tool_call_begin|></think>c",
     "R:a <|tool_calls_section_begin|>\n<|tool_call_begin|>|T:c"},
    {"deepseek",
     "hm<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">f<" BAR "tool" LOW
     "sep" BAR ">{\"n\": 5}<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW "calls" LOW "end" BAR ">",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"deepseek-v3.2",
     "hm\n\n<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"f\">\n<" BAR "DSML" BAR
     "parameter name=\"n\" string=\"false\">5</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR "invoke>\n</" BAR
     "DSML" BAR "function_calls>",
     "R:hm|C:f|A:{\"n\":5}|E:"},
    {"minimax-m2",
     "hm\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">5</parameter>\n</invoke>\n</minimax:tool_call>",
     "R:hm|C:f|A:{\"n\":5}|E:"},
    {"gemma4", "hm<|tool_call>call:f{n:5}<tool_call|>", "R:hm|C:f|A:{\"n\":5}|E:"},
    {"gemma4", "hm<|tool_call>call:f{n:5}<tool_call|><channel|>Ok", "R:hm|C:f|A:{\"n\":5}|E:|T:Ok"},
    {"gemma4", "a <|tool_call> b<channel|>c", "R:a <|tool_call> b|T:c"},
    {"mistral", "hm[TOOL_CALLS]f[ARGS]{\"n\": 5}", "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"mistral", "hm[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 5}}]", "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"mistral", "hm[TOOL_CALLS]f[ARGS]{}[/THINK]Ok", "R:hm|C:f|A:{}|E:|T:Ok"},
    {"mistral", "a [TOOL_CALLS] b[/THINK]c", "R:a [TOOL_CALLS] b|T:c"},
    {"mistral", "a [TOOL_CALLS] b[/THINK]c[TOOL_CALLS]f[ARGS]{}", "R:a [TOOL_CALLS] b|T:c|C:f|A:{}|E:"},
    {"lfm2", "hm<|tool_call_start|>[f(n=5)]<|tool_call_end|>", "R:hm|C:f|A:{\"n\":5}|E:"},
    {"lfm2", "a <|tool_call_start|> b (c</think>d", "R:a <|tool_call_start|> b (c|T:d"},
    {"granite3", "hm<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 5}}]", "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"llama4", "hm<|python_start|>[f(n=5)]<|python_end|>", "R:hm|C:f|A:{\"n\":5}|E:"},
    {"seed-oss", "hm<seed:tool_call><function=f><parameter=n>5</parameter></function></seed:tool_call>",
     "R:hm|C:f|A:{\"n\":5}|E:"},
    {"apertus", "hm<|tools_prefix|>[{\"f\": {\"n\": 5}}]<|tools_suffix|>", "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"cohere2moe", "hm<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"n\": 5}}]<|END_ACTION|>",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"command-r7b", "hm<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"n\": 5}}]<|END_ACTION|>",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"nemotron-v2", "hm<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"n\": 5}}]</TOOLCALL>",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
    {"gpt-oss", "<|channel|>analysis<|message|>hm<|channel|>commentary to=functions.f<|message|>{\"n\": 5}<|call|>",
     "R:hm|C:f|A:{\"n\": 5}|E:"},
};

START_TEST(a_call_ends_the_thinking)
{
    struct chat_split_config config = all;
    config.format = chat_format_named(thought_rows[_i].format);
    config.starts_in_reasoning = strcmp(thought_rows[_i].format, "gpt-oss") != 0;
    expect(&config, thought_rows[_i].text, thought_rows[_i].parts);
    if (config.starts_in_reasoning) { /* the same where the answer begins the thinking */
        char text[512];
        snprintf(text, sizeof text, "%s%s", config.format->think, thought_rows[_i].text);
        config.starts_in_reasoning = false;
        expect(&config, text, thought_rows[_i].parts);
    }
}
END_TEST

/* A request without tools has no calls, and so no marks that end the thinking. */
START_TEST(only_calls_that_are_read_end_the_thinking)
{
    const struct chat_split_config config = {.splits_reasoning = true, .starts_in_reasoning = true};
    expect(&config, "a <tool_call>{\"name\":\"f\"}</tool_call></think>b",
           "R:a <tool_call>{\"name\":\"f\"}</tool_call>|T:b");
}
END_TEST

/* After so many marks without a call, what follows a mark is no longer read: not even a call is one. */
START_TEST(marks_in_thinking_take_bounded_work)
{
    static const char mark[] = "<tool_call> -- ", call[] = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    static const char held[] =
        "<tool_call><function=g><parameter=x>"; /* g is no tool: a reader keeps it until its end */
    struct chat_split_config config = all;
    config.starts_in_reasoning = true;
    for (int n = CHAT_SPLIT_NO_CALLS - 1; n <= CHAT_SPLIT_NO_CALLS; n++) {
        struct buf text;
        struct seen s;
        buf_init(&text, 0, MEM_GENERAL);
        for (int i = 0; i < n; i++) {
            buf_puts(&text, mark);
        }
        size_t n_marks = text.len;
        buf_puts(&text, call);
        split(&config, text.data, text.len, text.len, text.len, &s);
        bool is_call = strstr(s.out.data, "|C:f|A:{}|E:") != NULL;
        ck_assert_msg(is_call == (n < CHAT_SPLIT_NO_CALLS), "%d marks: %s", n, s.out.data + s.out.len - sizeof call);
        ck_assert_uint_eq(s.out.len,
                          is_call ? strlen("R:") + n_marks - 1 + strlen("|C:f|A:{}|E:") : strlen("R:") + text.len);
        buf_fini(&s.out);

        struct chat_split it;
        config.tools = tools;
        chat_split_init(&it, &config);
        s = (struct seen){.last = -1};
        buf_init(&s.out, 0, MEM_GENERAL);
        chat_split_feed(&it, text.data, n_marks, see, &s);
        chat_split_feed(&it, held, sizeof held - 1, see, &s);
        bool is_given = strstr(s.out.data, "<function=g>") != NULL;
        ck_assert_msg(is_given == (n == CHAT_SPLIT_NO_CALLS), "%d marks: %s", n, is_given ? "given" : "held back");
        chat_split_fini(&it);
        buf_fini(&s.out);
        buf_fini(&text);
    }
}
END_TEST

/* Tokens of a byte each. What may be a call counts as thinking until it is one. */
START_TEST(tokens_of_thinking_are_counted)
{
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {
        {"ab</think>cd", 9},                 /* the byte that makes the mark whole ends the thinking */
        {"ab<tool_call> - cd</think>e", 25}, /* no call */
        {"ab<tool_call> wo</think>e", 23},   /* none, which the end of thinking tells */
        {"ab<tool_call>", 13},               /* nor this */
        {"ab<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", 12},
        {"ab<tool_call> - <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>c", 26},
    };
    struct chat_split_config config = all;
    config.starts_in_reasoning = true;
    config.tools = tools;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_split it;
        struct seen s = {.last = -1};
        buf_init(&s.out, 0, MEM_GENERAL);
        chat_split_init(&it, &config);
        for (const char *c = cases[i].text; *c != '\0'; c++) {
            chat_split_feed(&it, c, 1, see, &s);
            chat_split_count_token(&it);
        }
        chat_split_finish(&it, see, &s);
        ck_assert_msg(chat_split_reasoning_tokens(&it) == cases[i].n, "%s: expected %zu, found %zu", cases[i].text,
                      cases[i].n, chat_split_reasoning_tokens(&it));
        chat_split_fini(&it);
        buf_fini(&s.out);
    }
}
END_TEST

Suite *chat_parts_suite(void)
{
    Suite *s = suite_create("chat_parts");
    TCase *t = tcase_create("split");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, text_alone_passes);
    tcase_add_test(t, formats_are_read);
    tcase_add_test(t, names_with_dots_stay_whole);
    tcase_add_test(t, thinking_is_split_off);
    tcase_add_loop_test(t, a_call_ends_the_thinking, 0, ARRAY_LEN(thought_rows));
    tcase_add_test(t, only_calls_that_are_read_end_the_thinking);
    tcase_add_test(t, marks_in_thinking_take_bounded_work);
    tcase_add_test(t, tokens_of_thinking_are_counted);
    tcase_add_test(t, json_calls_are_read);
    tcase_add_test(t, keyed_calls_are_read);
    tcase_add_loop_test(t, values_have_the_types_of_the_schema, 0, ARRAY_LEN(typed_rows));
    tcase_add_test(t, what_does_not_parse_is_text);
    tcase_add_test(t, calls_that_break_off_are_cut);
    tcase_add_test(t, forced_calls_that_are_cut_leave_nothing);
    tcase_add_test(t, arguments_come_as_they_are_written);
    tcase_add_test(t, space_is_held_up_to_a_limit);
    tcase_add_test(t, any_text_is_the_same_however_cut);
    suite_add_tcase(s, t);
    return s;
}
