/* The table. What a template has of marks tells its format. */
#include "engine/chat/chat_format.h"

#include "engine/base/compiler.h"

#include <string.h>

static const struct chat_format formats[] = {
    {.name = "hermes",
     .body = CHAT_BODY_JSON,
     .begin = "",
     .call = "<tool_call>\n",
     .call_end = "\n</tool_call>",
     .between = "\n",
     .end = "",
     .arguments = "arguments",
     .think = "<think>",
     .think_end = "</think>"},
    {.name = "generic",
     .body = CHAT_BODY_JSON,
     .begin = "",
     .call = "<tool_call>\n",
     .call_end = "\n</tool_call>",
     .between = "\n",
     .end = "",
     .arguments = "arguments",
     .think = "<think>",
     .think_end = "</think>",
     .is_told = true},
};

const struct chat_format *chat_format_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(formats) ? &formats[i] : NULL; }

const char *chat_format_name_at(int i)
{
    const struct chat_format *row = chat_format_at(i);
    return row != NULL ? row->name : NULL;
}

const struct chat_format *chat_format_of(const char *source, size_t n)
{
    static const char word[] = "tools"; /* what every template that shows them calls them */
    return &formats[source != NULL && memmem(source, n, word, sizeof word - 1) != NULL ? 0 : 1];
}
