/* The table of formats. The marks in a template determine its format. */
#include "engine/chat/chat_format.h"

#include "engine/base/compiler.h"

#include <string.h>

#define THINK .think = "<think>", .think_end = "</think>"

/* How forced calls are written: each between marks, or in a list. `arguments` is the key of the arguments. */
#define WRITES_EACH(first, last)                                                                                       \
    .begin = "", .call = first "{\"name\": \"", .name_end = "\", \"arguments\": ", .call_end = "}" last,               \
    .between = "\n", .end = ""
#define WRITES_LIST(first, arguments, last)                                                                            \
    .begin = first "[", .call = "{\"name\": \"", .name_end = "\", \"" arguments "\": ", .call_end = "}",               \
    .between = ", ", .end = "]" last
#define WRITES_TAGGED WRITES_EACH("<tool_call>\n", "\n</tool_call>") /* readers of TAGGED bodies know this form */

#define COHERE_WRITES(text)                                                                                            \
    .begin = "<|START_ACTION|>[\n    ", .call = "{\"tool_call_id\": \"0\", \"tool_name\": \"",                         \
    .name_end = "\", \"parameters\": ", .call_end = "}", .between = ",\n    ", .end = "\n]<|END_ACTION|>",             \
    .think = "<|START_THINKING|>", .think_end = "<|END_THINKING|>", .answer = text

static const struct chat_format formats[] = {
    /* Hermes, Qwen2.5, Qwen3, SmolLM3, Granite 4; Qwen3-Coder, Qwen3.5; GLM-4.5, GLM-4.7 */
    {.name = "hermes",
     .signs = {NULL},
     .body = CHAT_BODY_TAGGED,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .separator = "",
     WRITES_TAGGED,
     THINK},
    {.name = "generic",
     .signs = {NULL},
     .body = CHAT_BODY_TAGGED,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .separator = "",
     WRITES_TAGGED,
     THINK,
     .lists_tools = true},
    {.name = "gpt-oss",
     .signs = {"<|channel|>"},
     .body = CHAT_BODY_CHANNELS,
     .open = "",
     .close = "",
     .separator = "<|message|>",
     .has_tokens = true,
     .begin = "",
     .call = "<|channel|>commentary to=functions.",
     .name_end = " <|constrain|>json<|message|>",
     .call_end = "<|call|>",
     .between = "<|start|>assistant",
     .end = "",
     .think = "<|channel|>analysis<|message|>",
     .think_end = "<|end|><|start|>assistant",
     .answer = "<|channel|>final<|message|>"},
    {.name = "deepseek-v3.2",
     .signs = {"｜DSML｜"},
     .body = CHAT_BODY_INVOKE,
     .open = "<｜DSML｜invoke ",
     .close = "</｜DSML｜invoke>",
     .separator = "",
     .around = {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>",
                "</｜DSML｜tool_calls>"},
     .has_tokens = true,
     WRITES_EACH("<｜DSML｜invoke ", "</｜DSML｜invoke>"),
     THINK},
    {.name = "deepseek",
     .signs = {"<｜tool▁calls▁begin｜>"},
     .body = CHAT_BODY_NAMED,
     .open = "<｜tool▁call▁begin｜>",
     .close = "<｜tool▁call▁end｜>",
     .separator = "<｜tool▁sep｜>",
     .around = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
     .has_tokens = true,
     .begin = "<｜tool▁calls▁begin｜>",
     .call = "<｜tool▁call▁begin｜>",
     .name_end = "<｜tool▁sep｜>",
     .call_end = "<｜tool▁call▁end｜>",
     .between = "",
     .end = "<｜tool▁calls▁end｜>",
     THINK},
    {.name = "kimi-k2",
     .signs = {"<|tool_call_argument_begin|>"},
     .body = CHAT_BODY_NAMED,
     .open = "<|tool_call_begin|>",
     .close = "<|tool_call_end|>",
     .separator = "<|tool_call_argument_begin|>",
     .around = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
     .has_tokens = true,
     .begin = "<|tool_calls_section_begin|>",
     .call = "<|tool_call_begin|>functions.",
     .name_end = ":0<|tool_call_argument_begin|>",
     .call_end = "<|tool_call_end|>",
     .between = "",
     .end = "<|tool_calls_section_end|>",
     THINK},
    {.name = "minimax-m2",
     .signs = {"<minimax:tool_call>"},
     .body = CHAT_BODY_INVOKE,
     .open = "<minimax:tool_call>",
     .close = "</minimax:tool_call>",
     .separator = "",
     .has_tokens = true,
     WRITES_EACH("<minimax:tool_call>", "</minimax:tool_call>"),
     THINK},
    {.name = "mistral",
     .signs = {"[TOOL_CALLS]"},
     .body = CHAT_BODY_NAMED,
     .open = "[TOOL_CALLS]",
     .close = "",
     .separator = "[ARGS]",
     .has_tokens = true,
     WRITES_LIST("[TOOL_CALLS]", "arguments", ""),
     .think = "[THINK]",
     .think_end = "[/THINK]"},
    {.name = "gemma4",
     .signs = {"<|tool_call>"},
     .body = CHAT_BODY_QUOTED,
     .open = "<|tool_call>",
     .close = "<tool_call|>",
     .separator = "",
     .has_tokens = true,
     WRITES_EACH("<|tool_call>", "<tool_call|>"),
     .think = "<|channel>thought\n",
     .think_end = "<channel|>"},
    {.name = "lfm2",
     .signs = {"<|tool_call_start|>", "<|tool_list_start|>"},
     .body = CHAT_BODY_PYTHON,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .separator = "",
     .has_tokens = true,
     WRITES_LIST("<|tool_call_start|>", "arguments", "<|tool_call_end|>"),
     THINK},
    {.name = "granite3",
     .signs = {"<|tool_call|>"},
     .body = CHAT_BODY_NAMED,
     .open = "<|tool_call|>",
     .close = "",
     .separator = "",
     .has_tokens = true,
     WRITES_LIST("<|tool_call|>", "arguments", ""),
     THINK},
    {.name = "llama4",
     .signs = {"<|header_start|>"},
     .body = CHAT_BODY_PYTHON,
     .open = "<|python_start|>",
     .close = "<|python_end|>",
     .separator = "",
     .bare = '[',
     WRITES_LIST("", "parameters", ""),
     THINK},
    {.name = "llama3",
     .signs = {"\"parameters\": dictionary"},
     .body = CHAT_BODY_NAMED,
     .open = "<|python_tag|>",
     .close = "",
     .separator = "",
     .bare = '{',
     .has_tokens = true,
     .begin = "",
     .call = "{\"name\": \"",
     .name_end = "\", \"parameters\": ",
     .call_end = "}",
     .between = "; ",
     .end = "",
     THINK},
    {.name = "seed-oss",
     .signs = {"<seed:tool_call>"},
     .body = CHAT_BODY_TAGGED,
     .open = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .separator = "",
     .has_tokens = true,
     WRITES_EACH("<seed:tool_call>\n", "\n</seed:tool_call>"),
     .think = "<seed:think>",
     .think_end = "</seed:think>"},
    {.name = "apertus",
     .signs = {"<|tools_prefix|>"},
     .body = CHAT_BODY_KEYED,
     .open = "<|tools_prefix|>",
     .close = "<|tools_suffix|>",
     .separator = "",
     .has_tokens = true,
     .begin = "<|tools_prefix|>[",
     .call = "{\"",
     .name_end = "\": ",
     .call_end = "}",
     .between = ", ",
     .end = "]<|tools_suffix|>",
     .think = "<|inner_prefix|>",
     .think_end = "<|inner_suffix|>"},
    {.name = "cohere2moe", /* before command-r7b, whose sign it has too */
     .signs = {"<|START_TEXT|>"},
     .body = CHAT_BODY_NAMED,
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .separator = "",
     .around = {"<|START_TEXT|>", "<|END_TEXT|>"}, /* of text, without meaning too */
     .has_tokens = true,
     COHERE_WRITES("<|START_TEXT|>")},
    {.name = "command-r7b",
     .signs = {"<|START_ACTION|>"},
     .body = CHAT_BODY_NAMED,
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .separator = "",
     .around = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
     .has_tokens = true,
     COHERE_WRITES("<|START_RESPONSE|>")},
    {.name = "nemotron-v2",
     .signs = {"<TOOLCALL>"},
     .body = CHAT_BODY_NAMED,
     .open = "<TOOLCALL>",
     .close = "</TOOLCALL>",
     .separator = "",
     .has_tokens = true,
     WRITES_LIST("<TOOLCALL>", "arguments", "</TOOLCALL>"),
     THINK},
};

const struct chat_format *chat_format_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(formats) ? &formats[i] : NULL; }

const char *chat_format_name_at(int i)
{
    const struct chat_format *row = chat_format_at(i);
    return row != NULL ? row->name : NULL;
}

const struct chat_format *chat_format_named(const char *name)
{
    const struct chat_format *row = NULL;
    for (size_t i = 0; i < ARRAY_LEN(formats) && row == NULL; i++) {
        row = strcmp(formats[i].name, name) == 0 ? &formats[i] : NULL;
    }
    return row;
}

static bool holds(const char *source, size_t n, const char *word)
{
    return source != NULL && memmem(source, n, word, strlen(word)) != NULL;
}

const struct chat_format *chat_format_of(const char *source, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        for (size_t k = 0; k < ARRAY_LEN(formats[i].signs) && formats[i].signs[k] != NULL; k++) {
            if (holds(source, n, formats[i].signs[k])) {
                return &formats[i];
            }
        }
    }
    return &formats[holds(source, n, "tools") ? 0 : 1]; /* the name in every template that shows them */
}
