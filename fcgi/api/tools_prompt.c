/* Uses the call format that most models with tools were trained on. */
#include "fcgi/api/tools_prompt.h"

#include "engine/base/buf.h"
#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "fcgi/api/turn.h"

#include <string.h>

static void put_text(struct buf *b, const json_t *text)
{
    if (json_is_string(text)) {
        buf_append(b, json_string_value(text), json_string_length(text));
    }
}

static void put_json(struct buf *b, const json_t *v) { json_write_value(b, v, true); }

static void put_tools(struct buf *b, const json_t *tools)
{
    buf_puts(b, "These functions can be called. Each line describes one:\n<tools>\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        put_json(b, json_object_get(json_array_get(tools, i), "function"));
        buf_putc(b, '\n');
    }
    buf_puts(b, "</tools>\nTo call a function, answer with its name and its arguments as JSON:\n<tool_call>\n"
                "{\"name\": \"the name\", \"arguments\": {\"an argument\": \"its value\"}}\n</tool_call>\n"
                "What it gives comes back between <tool_response> and </tool_response>.");
}

/* Writes an assistant's content and its calls. */
static void put_calls(struct buf *b, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    put_text(b, json_object_get(message, "content"));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(f, "arguments");
        buf_puts(b, b->len > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        put_json(b, json_object_get(f, "name"));
        buf_puts(b, ", \"arguments\": ");
        if (json_is_string(arguments)) {
            put_text(b, arguments);
        } else {
            put_json(b, arguments);
        }
        buf_puts(b, "}\n</tool_call>");
    }
}

static bool is_result(const json_t *message)
{
    const json_t *role = json_object_get(message, "role");
    return json_read_is(role, "tool") || json_read_is(role, "function");
}

/* Writes consecutive results. */
static void put_results(const json_t *messages, size_t *i, struct buf *b)
{
    for (; is_result(json_array_get(messages, *i)); ++*i) {
        buf_puts(b, b->len > 0 ? "\n<tool_response>\n" : "<tool_response>\n");
        put_text(b, json_object_get(json_array_get(messages, *i), "content"));
        buf_puts(b, "\n</tool_response>");
    }
}

/* Writes the tools, together with the content of the message at *i if its role is the one that describes them. */
static void put_listed(const json_t *messages, size_t *i, const json_t *tools, bool no_system, struct buf *b)
{
    const json_t *message = json_array_get(messages, *i), *content = json_object_get(message, "content");
    bool is_system = json_read_is(json_object_get(message, "role"), "system");
    if (!no_system && is_system) {
        put_text(b, content);
        buf_puts(b, "\n\n");
    }
    put_tools(b, tools);
    if (no_system) {
        buf_puts(b, "\n\n");
        put_text(b, content);
    }
    *i += no_system || is_system;
}

/* Appends one message for the next messages from *i. */
static enum err add_next(const json_t *messages, size_t *i, const json_t **tools, unsigned flags, json_t *to)
{
    json_t *message = json_array_get(messages, *i);
    bool no_system = (flags & TOOLS_PROMPT_NO_SYSTEM) != 0, keeps_calls = (flags & TOOLS_PROMPT_KEEPS_CALLS) != 0;
    const char *role = NULL; /* of a new message with the text b; NULL: the message stays */
    struct buf b;
    buf_init(&b, 0, MEM_REQUEST);
    /* tools are described before this message */
    bool is_first = no_system ? json_read_is(json_object_get(message, "role"), "user") : *i == 0;
    if (*tools != NULL && is_first) {
        put_listed(messages, i, *tools, no_system, &b);
        *tools = NULL;
        role = no_system ? "user" : "system";
    } else if (!keeps_calls && is_result(message)) {
        put_results(messages, i, &b);
        role = "user";
    } else if (!keeps_calls && json_array_size(json_object_get(message, "tool_calls")) > 0) {
        put_calls(&b, message);
        role = "assistant";
        ++*i;
    } else {
        ++*i;
    }
    enum err err = turn_append(to, role != NULL ? json_pack("{s:s, s:o}", "role", role, "content", turn_text(&b))
                                                : json_incref(message));
    buf_fini(&b);
    return err;
}

enum err tools_prompt(const json_t *messages, const json_t *tools, unsigned flags, json_t **out)
{
    enum err err = ERR_OK;
    *out = json_array();
    for (size_t i = 0; *out != NULL && err == ERR_OK && i < json_array_size(messages);) {
        err = add_next(messages, &i, &tools, flags, *out);
    }
    err = *out == NULL ? ERR_NOMEM : err;
    if (err != ERR_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return err;
}
