/* Checks the messages of a chat request and converts them to the form that templates read. */
#include "fcgi/api/messages.h"

#include "engine/base/buf.h"
#include "fcgi/api/thoughts.h"
#include "fcgi/api/tools.h"
#include "fcgi/api/turn.h"

#include <stdio.h>

enum { MAX_MESSAGES = 4096 };

/* Returns the string of a part, or NULL with the error set. */
static const json_t *text_of_part(const json_t *part, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *type = json_object_get(part, "type");
    const char *name = json_read_is(type, "refusal") ? "refusal" : "text";
    const json_t *text = json_object_get(part, name);
    if (!json_is_object(part)) {
        json_in_refuse(ERR_INVALID_VALUE, at, "an object with a type and a text", part, info);
    } else if (!json_read_is(type, name)) {
        json_in_refuse(ERR_INVALID_VALUE, turn_member(where, at, "type"), "\"text\", as this model reads text only",
                       type, info);
    } else if (!json_is_string(text)) {
        json_in_refuse(ERR_INVALID_VALUE, turn_member(where, at, name), "a string", text, info);
    } else {
        return text;
    }
    return NULL;
}

static bool is_thought(const json_t *part) { return json_read_is(json_object_get(part, "type"), "thinking"); }

static bool has_thoughts(const json_t *parts)
{
    bool has = false;
    for (size_t k = 0; k < json_array_size(parts) && !has; k++) {
        has = is_thought(json_array_get(parts, k));
    }
    return has;
}

/* Appends the text of a part of type thinking: a string, or an array of text parts as in Mistral's API. */
static enum err append_thought(const json_t *part, const char *at, struct buf *text, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *v = json_object_get(part, "thinking");
    bool ok = json_is_string(v) || json_is_array(v);
    buf_append(text, json_string_value(v), json_string_length(v));
    for (size_t m = 0; m < json_array_size(v) && ok; m++) {
        const json_t *one = json_object_get(json_array_get(v, m), "text");
        ok = json_is_string(one);
        buf_append(text, json_string_value(one), json_string_length(one));
    }
    return ok ? buf_ok(text)
              : json_in_refuse(ERR_INVALID_VALUE, turn_member(where, at, "thinking"),
                               "a string or an array of text parts", v, info);
}

/* The pieces of content with thinking in it. */
struct split_content {
    json_t *parts;             /* as THOUGHTS_PARTS */
    struct buf text, thoughts; /* of all parts */
    bool is_answer;            /* false: thinking is also part of the text */
};

static enum err split_part(const json_t *part, const char *at, struct split_content *to, struct err_info *info)
{
    struct buf one;
    enum err err = ERR_OK;
    bool is_thinking = is_thought(part);
    const char *name = is_thinking ? "thinking" : "text";
    buf_init(&one, 0, MEM_REQUEST);
    if (is_thinking) {
        err = append_thought(part, at, &one, info);
    } else {
        const json_t *text = text_of_part(part, at, info);
        err = text != NULL ? ERR_OK : info->code;
        buf_append(&one, json_string_value(text), json_string_length(text));
    }
    buf_add(is_thinking && to->is_answer ? &to->thoughts : &to->text, &one);
    err = err != ERR_OK ? err : turn_append(to->parts, json_pack("{s:s,s:o}", "type", name, name, turn_text(&one)));
    buf_fini(&one);
    return err;
}

/* Moves thinking in an answer's content to reasoning_content, if the message has none. Keeps the parts for templates
 * that read them. */
static enum err split_content(json_t *message, const json_t *parts, const char *at, struct err_info *info)
{
    struct split_content to = {.parts = json_array(),
                               .is_answer = json_read_is(json_object_get(message, "role"), "assistant")};
    char where[ERR_WHERE_BYTES];
    buf_init(&to.text, 0, MEM_REQUEST);
    buf_init(&to.thoughts, 0, MEM_REQUEST);
    enum err err = to.parts != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t k = 0; k < json_array_size(parts) && err == ERR_OK; k++) {
        err = split_part(json_array_get(parts, k), turn_element(where, at, k), &to, info);
    }
    err = err != ERR_OK ? err : turn_put(message, THOUGHTS_PARTS, json_incref(to.parts));
    if (to.thoughts.len > 0 && json_string_length(json_object_get(message, "reasoning_content")) == 0) {
        err = err != ERR_OK ? err : turn_put(message, "reasoning_content", turn_text(&to.thoughts));
    }
    err = err != ERR_OK ? err : turn_put(message, "content", turn_text(&to.text)); /* frees `parts` */
    buf_fini(&to.text);
    buf_fini(&to.thoughts);
    json_decref(to.parts);
    return err;
}

/* Joins the text parts of a content array; rejects other kinds of parts. */
static enum err join_parts(json_t *message, const json_t *parts, const char *at, struct err_info *info)
{
    struct buf text;
    char where[ERR_WHERE_BYTES];
    enum err err = ERR_OK;
    buf_init(&text, 0, MEM_REQUEST);
    for (size_t k = 0; err == ERR_OK && k < json_array_size(parts); k++) {
        const json_t *part = text_of_part(json_array_get(parts, k), turn_element(where, at, k), info);
        err = part != NULL ? ERR_OK : info->code;
        buf_append(&text, json_string_value(part), json_string_length(part));
    }
    err = err != ERR_OK ? err : turn_put(message, "content", turn_text(&text));
    buf_fini(&text);
    return err;
}

static bool is_tool(const json_t *role) { return json_read_is(role, "tool") || json_read_is(role, "function"); }

/* A tool's result must follow an assistant's message or another result. tool_calls of that message are not checked,
 * because clients can read calls from its text. */
static enum err check_order(const json_t *messages, size_t i, struct err_info *info)
{
    const json_t *before = i == 0 ? NULL : json_object_get(json_array_get(messages, i - 1), "role");
    const json_t *role = json_object_get(json_array_get(messages, i), "role");
    if (!is_tool(role) || is_tool(before) || json_read_is(before, "assistant")) {
        return ERR_OK;
    }
    char where[ERR_WHERE_BYTES], expected[80];
    snprintf(where, sizeof where, "messages[%zu].role", i);
    snprintf(expected, sizeof expected, "%s only after a message of the assistant or of another tool",
             json_string_value(role));
    return json_in_refuse(ERR_INVALID_VALUE, where, expected, before, info);
}

static enum err check_role(json_t *message, const char *at, struct err_info *info)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const json_t *role = json_read_get(message, "role");
    char where[ERR_WHERE_BYTES];
    bool known = false;
    for (size_t k = 0; k < ARRAY_LEN(roles); k++) {
        known = known || json_read_is(role, roles[k]);
    }
    if (!known) {
        return turn_refuse(role, JSON_STRING, turn_member(where, at, "role"),
                           "one of system, developer, user, assistant, tool", info);
    }
    return json_read_is(role, "developer") ? turn_put(message, "role", json_string("system")) : ERR_OK;
}

static enum err check_content(json_t *message, const char *at, struct err_info *info)
{
    const json_t *content = json_read_get(message, "content"), *role = json_object_get(message, "role");
    char where[ERR_WHERE_BYTES];
    turn_member(where, at, "content");
    (void)json_object_del(message, THOUGHTS_PARTS);
    if (has_thoughts(content) && (json_read_is(role, "assistant") || json_read_is(role, "system"))) {
        return split_content(message, content, where, info);
    }
    if (json_is_array(content)) {
        return join_parts(message, content, where, info);
    }
    if (content == NULL && json_read_is(role, "assistant")) { /* tool calls only */
        return turn_put(message, "content", json_null());
    }
    return turn_expect(content, JSON_STRING, where, "a string or an array of text parts", info);
}

/* Templates read an earlier answer's thinking by one of three names. */
static enum err check_reasoning(json_t *message, const char *at, struct err_info *info)
{
    static const char *const names[] = {"reasoning_content", "reasoning"};
    char where[ERR_WHERE_BYTES];
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        const json_t *v = json_read_get(message, names[k]);
        TRY(v == NULL ? ERR_OK : turn_expect(v, JSON_STRING, turn_member(where, at, names[k]), "a string", info));
    }
    return thoughts_fill(message);
}

/* An earlier answer's audio is only an id, and infcgi keeps no audio. */
static enum err check_audio(const json_t *message, const char *at, struct err_info *info)
{
    const json_t *audio = json_read_get(message, "audio");
    char where[ERR_WHERE_BYTES];
    return audio == NULL ? ERR_OK
                         : json_in_refuse(ERR_UNSUPPORTED_PARAMETER, turn_member(where, at, "audio"),
                                          "none, as this model reads text only", audio, info);
}

static enum err check_message(json_t *message, size_t i, struct err_info *info)
{
    char at[ERR_WHERE_BYTES];
    turn_element(at, "messages", i);
    if (!json_is_object(message)) {
        return json_in_refuse(ERR_INVALID_TYPE, at, "an object", message, info);
    }
    TRY(check_role(message, at, info));
    TRY(check_content(message, at, info));
    TRY(check_reasoning(message, at, info));
    TRY(check_audio(message, at, info));
    return tools_check_message(message, at, info);
}

enum err messages_check(json_t *messages, struct err_info *info)
{
    if (messages == NULL || json_is_null(messages)) {
        return err_set(info, ERR_MISSING_PARAMETER, "messages", "messages: expected an array of messages, found none");
    }
    if (!json_is_array(messages)) {
        return err_set(info, ERR_INVALID_TYPE, "messages", "messages: expected an array, found %s",
                       json_read_type_name(messages));
    }
    if (json_array_size(messages) == 0 || json_array_size(messages) > MAX_MESSAGES) {
        return err_set(info, ERR_INVALID_VALUE, "messages", "messages: expected 1 to %d messages, found %zu",
                       MAX_MESSAGES, json_array_size(messages));
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        TRY(check_message(json_array_get(messages, i), i, info));
        TRY(check_order(messages, i, info));
    }
    return ERR_OK;
}
