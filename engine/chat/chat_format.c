/* The table of formats. The marks in a template determine its format. */
#include "engine/chat/chat_format.h"

#include "engine/base/compiler.h"

#include <string.h>

#define THINK .think = "<think>", .think_end = "</think>"

/* How a forced call is written; readers of TAGGED bodies know this form. */
#define WRITES_TAGGED                                                                                                  \
    .begin = "", .call = "<tool_call>\n{\"name\": \"",                                                                 \
    .name_end = "\", \"arguments\": ", .call_end = "}\n</tool_call>", .between = "\n", .end = ""

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
     .is_told = true},
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
     .signs = {"\xef\xbd\x9c"
               "DSML"
               "\xef\xbd\x9c"},
     .body = CHAT_BODY_INVOKE,
     .open = "<\xef\xbd\x9c"
             "DSML"
             "\xef\xbd\x9cinvoke ",
     .close = "</\xef\xbd\x9c"
              "DSML"
              "\xef\xbd\x9cinvoke>",
     .separator = "",
     .around = {"<\xef\xbd\x9c"
                "DSML"
                "\xef\xbd\x9c"
                "function_calls>",
                "</\xef\xbd\x9c"
                "DSML"
                "\xef\xbd\x9c"
                "function_calls>",
                "<\xef\xbd\x9c"
                "DSML"
                "\xef\xbd\x9c"
                "tool_calls>",
                "</\xef\xbd\x9c"
                "DSML"
                "\xef\xbd\x9c"
                "tool_calls>"},
     .has_tokens = true,
     .begin = "",
     .call = "<"
             "\xef\xbd\x9c"
             "DSML"
             "\xef\xbd\x9c"
             "invoke "
             "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}"
                 "</"
                 "\xef\xbd\x9c"
                 "DSML"
                 "\xef\xbd\x9c"
                 "invoke>",
     .between = "\n",
     .end = "",
     THINK},
    {.name = "deepseek",
     .signs = {"<\xef\xbd\x9ctool\xe2\x96\x81"
               "calls\xe2\x96\x81"
               "begin\xef\xbd\x9c>"},
     .body = CHAT_BODY_NAMED,
     .open = "<\xef\xbd\x9ctool\xe2\x96\x81"
             "call\xe2\x96\x81"
             "begin\xef\xbd\x9c>",
     .close = "<\xef\xbd\x9ctool\xe2\x96\x81"
              "call\xe2\x96\x81"
              "end\xef\xbd\x9c>",
     .separator = "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>",
     .around = {"<\xef\xbd\x9ctool\xe2\x96\x81"
                "calls\xe2\x96\x81"
                "begin\xef\xbd\x9c>",
                "<\xef\xbd\x9ctool\xe2\x96\x81"
                "calls\xe2\x96\x81"
                "end\xef\xbd\x9c>"},
     .has_tokens = true,
     .begin = "<\xef\xbd\x9ctool\xe2\x96\x81"
              "calls\xe2\x96\x81"
              "begin\xef\xbd\x9c>",
     .call = "<\xef\xbd\x9ctool\xe2\x96\x81"
             "call\xe2\x96\x81"
             "begin\xef\xbd\x9c>",
     .name_end = "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>",
     .call_end = "<\xef\xbd\x9ctool\xe2\x96\x81"
                 "call\xe2\x96\x81"
                 "end\xef\xbd\x9c>",
     .between = "",
     .end = "<\xef\xbd\x9ctool\xe2\x96\x81"
            "calls\xe2\x96\x81"
            "end\xef\xbd\x9c>",
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
     .begin = "",
     .call = "<minimax:tool_call>"
             "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}"
                 "</minimax:tool_call>",
     .between = "\n",
     .end = "",
     THINK},
    {.name = "mistral",
     .signs = {"[TOOL_CALLS]"},
     .body = CHAT_BODY_NAMED,
     .open = "[TOOL_CALLS]",
     .close = "",
     .separator = "[ARGS]",
     .has_tokens = true,
     .begin = "[TOOL_CALLS][",
     .call = "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}",
     .between = ", ",
     .end = "]",
     .think = "[THINK]",
     .think_end = "[/THINK]"},
    {.name = "gemma4",
     .signs = {"<|tool_call>"},
     .body = CHAT_BODY_QUOTED,
     .open = "<|tool_call>",
     .close = "<tool_call|>",
     .separator = "",
     .has_tokens = true,
     .begin = "",
     .call = "<|tool_call>"
             "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}"
                 "<tool_call|>",
     .between = "\n",
     .end = "",
     .think = "<|channel>thought\n",
     .think_end = "<channel|>"},
    {.name = "lfm2",
     .signs = {"<|tool_call_start|>", "<|tool_list_start|>"},
     .body = CHAT_BODY_PYTHON,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .separator = "",
     .has_tokens = true,
     .begin = "<|tool_call_start|>[",
     .call = "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}",
     .between = ", ",
     .end = "]<|tool_call_end|>",
     THINK},
    {.name = "granite3",
     .signs = {"<|tool_call|>"},
     .body = CHAT_BODY_NAMED,
     .open = "<|tool_call|>",
     .close = "",
     .separator = "",
     .has_tokens = true,
     .begin = "<|tool_call|>[",
     .call = "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}",
     .between = ", ",
     .end = "]",
     THINK},
    {.name = "llama4",
     .signs = {"<|header_start|>"},
     .body = CHAT_BODY_PYTHON,
     .open = "<|python_start|>",
     .close = "<|python_end|>",
     .separator = "",
     .bare = '[',
     .begin = "[",
     .call = "{\"name\": \"",
     .name_end = "\", \"parameters\": ",
     .call_end = "}",
     .between = ", ",
     .end = "]",
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
