/* Checks the messages of a chat request and converts them to the form that templates read. */
#include "fcgi/api/messages.h"

#include "engine/base/buf.h"
#include "fcgi/api/thoughts.h"
#include "fcgi/api/tools.h"

#include <stdio.h>

enum { MAX_MESSAGES = 4096 };

/* field: of message i, "" for the message itself. */
static enum err bad_message(size_t i, const char *field, enum err code, const char *expected, const json_t *found,
                            struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "messages[%zu]%s%s", i, field[0] != '\0' ? "." : "", field);
    return json_in_refuse(code, where, expected, found, info);
}

/* Returns the string of part k, or NULL with the error set. */
static const json_t *text_of_part(const json_t *part, size_t i, size_t k, struct err_info *info)
{
    char field[64];
    const json_t *type = json_object_get(part, "type");
    const char *name = json_read_is(type, "refusal") ? "refusal" : "text";
    const json_t *text = json_object_get(part, name);
    if (!json_is_object(part)) {
        snprintf(field, sizeof field, "content[%zu]", k);
        bad_message(i, field, ERR_INVALID_VALUE, "an object with a type and a text", part, info);
    } else if (!json_read_is(type, name)) {
        snprintf(field, sizeof field, "content[%zu].type", k);
        bad_message(i, field, ERR_INVALID_VALUE, "\"text\", as this model reads text only", type, info);
    } else if (!json_is_string(text)) {
        snprintf(field, sizeof field, "content[%zu].%s", k, name);
        bad_message(i, field, ERR_INVALID_VALUE, "a string", text, info);
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

/* Appends the text of part k, of type thinking: a string, or an array of text parts as in Mistral's API. */
static enum err append_thought(const json_t *part, size_t i, size_t k, struct buf *text, struct err_info *info)
{
    const json_t *v = json_object_get(part, "thinking");
    bool ok = json_is_string(v) || json_is_array(v);
    buf_append(text, json_string_value(v), json_string_length(v));
    for (size_t m = 0; m < json_array_size(v) && ok; m++) {
        const json_t *one = json_object_get(json_array_get(v, m), "text");
        ok = json_is_string(one);
        buf_append(text, json_string_value(one), json_string_length(one));
    }
    char field[64];
    snprintf(field, sizeof field, "content[%zu].thinking", k);
    return ok ? buf_ok(text) : bad_message(i, field, ERR_INVALID_VALUE, "a string or an array of text parts", v, info);
}

static json_t *string_of(const struct buf *b) { return json_stringn_nocheck(b->data != NULL ? b->data : "", b->len); }

/* The pieces of content with thinking in it. */
struct split_content {
    json_t *parts;             /* as THOUGHTS_PARTS */
    struct buf text, thoughts; /* of all parts */
    bool is_answer;            /* false: thinking is also part of the text */
};

static enum err split_part(const json_t *part, size_t i, size_t k, struct split_content *to, struct err_info *info)
{
    struct buf one;
    buf_init(&one, 0, MEM_REQUEST);
    bool is_thinking = is_thought(part);
    const json_t *text = is_thinking ? NULL : text_of_part(part, i, k, info);
    enum err err = is_thinking ? append_thought(part, i, k, &one, info) : text == NULL ? info->code : ERR_OK;
    buf_append(&one, json_string_value(text), json_string_length(text));
    buf_add(is_thinking && to->is_answer ? &to->thoughts : &to->text, &one);
    if (err == ERR_OK) {
        const char *name = is_thinking ? "thinking" : "text";
        json_t *made = buf_ok(&one) == ERR_OK ? json_pack("{s:s,s:o}", "type", name, name, string_of(&one)) : NULL;
        err = made != NULL && json_array_append_new(to->parts, made) == 0 ? ERR_OK : ERR_NOMEM;
    }
    buf_fini(&one);
    return err;
}

/* Moves thinking in an answer's content to reasoning_content, if the message has none. Keeps the parts for templates
 * that read them. */
static enum err split_content(json_t *message, const json_t *parts, size_t i, struct err_info *info)
{
    struct split_content to = {.parts = json_array(),
                               .is_answer = json_read_is(json_object_get(message, "role"), "assistant")};
    buf_init(&to.text, 0, MEM_REQUEST);
    buf_init(&to.thoughts, 0, MEM_REQUEST);
    enum err err = to.parts != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t k = 0; k < json_array_size(parts) && err == ERR_OK; k++) {
        err = split_part(json_array_get(parts, k), i, k, &to, info);
    }
    err = err != ERR_OK ? err : buf_ok(&to.text) != ERR_OK ? buf_ok(&to.text) : buf_ok(&to.thoughts);
    bool ok = true;
    if (err == ERR_OK) {
        ok = json_object_set(message, THOUGHTS_PARTS, to.parts) == 0;
        ok = ok && (to.thoughts.len == 0 || json_string_length(json_object_get(message, "reasoning_content")) > 0 ||
                    json_object_set_new(message, "reasoning_content", string_of(&to.thoughts)) == 0);
        ok = ok && json_object_set_new(message, "content", string_of(&to.text)) == 0; /* frees `parts` */
    }
    buf_fini(&to.text);
    buf_fini(&to.thoughts);
    json_decref(to.parts);
    return err != ERR_OK ? err : ok ? ERR_OK : ERR_NOMEM;
}

/* Joins the text parts of a content array; rejects other kinds of parts. Returns NULL with the error set. */
static json_t *join_parts(const json_t *parts, size_t i, struct err_info *info)
{
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    bool ok = true;
    for (size_t k = 0; ok && k < json_array_size(parts); k++) {
        const json_t *part = text_of_part(json_array_get(parts, k), i, k, info);
        ok = part != NULL;
        if (ok) {
            buf_append(&text, json_string_value(part), json_string_length(part));
        }
    }
    json_t *joined = NULL;
    if (ok && buf_ok(&text) == ERR_OK) {
        joined = json_stringn_nocheck(text.data != NULL ? text.data : "", text.len);
    }
    buf_fini(&text);
    return joined;
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
    char room[80];
    snprintf(room, sizeof room, "%s only after a message of the assistant or of another tool", json_string_value(role));
    return bad_message(i, "role", ERR_INVALID_VALUE, room, before, info);
}

static enum err check_role(json_t *message, size_t i, struct err_info *info)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const json_t *role = json_read_get(message, "role");
    bool known = false;
    for (size_t k = 0; k < ARRAY_LEN(roles); k++) {
        known = known || json_read_is(role, roles[k]);
    }
    if (!known) {
        return bad_message(i, "role",
                           role == NULL            ? ERR_MISSING_PARAMETER
                           : !json_is_string(role) ? ERR_INVALID_TYPE
                                                   : ERR_INVALID_VALUE,
                           "one of system, developer, user, assistant, tool", role, info);
    }
    return json_read_is(role, "developer") && json_object_set_new(message, "role", json_string("system")) != 0
               ? ERR_NOMEM
               : ERR_OK;
}

static enum err check_content(json_t *message, size_t i, struct err_info *info)
{
    const json_t *content = json_read_get(message, "content"), *role = json_object_get(message, "role");
    (void)json_object_del(message, THOUGHTS_PARTS);
    if (has_thoughts(content) && (json_read_is(role, "assistant") || json_read_is(role, "system"))) {
        return split_content(message, content, i, info);
    }
    if (json_is_array(content)) {
        json_t *joined = join_parts(content, i, info);
        if (joined == NULL) {
            return info->code != ERR_OK ? info->code : ERR_NOMEM;
        }
        return json_object_set_new(message, "content", joined) == 0 ? ERR_OK : ERR_NOMEM;
    }
    bool may_lack = json_read_is(json_object_get(message, "role"), "assistant"); /* tool calls only */
    if (content == NULL && may_lack) {
        return json_object_set_new(message, "content", json_null()) == 0 ? ERR_OK : ERR_NOMEM;
    }
    if (!json_is_string(content)) {
        return bad_message(i, "content", content == NULL ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE,
                           "a string or an array of text parts", content, info);
    }
    return ERR_OK;
}

/* Templates read an earlier answer's thinking by one of three names. */
static enum err check_reasoning(json_t *message, size_t i, struct err_info *info)
{
    static const char *const names[] = {"reasoning_content", "reasoning"};
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        const json_t *v = json_read_get(message, names[k]);
        if (v != NULL && !json_is_string(v)) {
            return bad_message(i, names[k], ERR_INVALID_TYPE, "a string", v, info);
        }
    }
    return thoughts_fill(message);
}

/* An earlier answer's audio is only an id, and infcgi keeps no audio. */
static enum err check_audio(const json_t *message, size_t i, struct err_info *info)
{
    const json_t *audio = json_read_get(message, "audio");
    return audio == NULL
               ? ERR_OK
               : bad_message(i, "audio", ERR_UNSUPPORTED_PARAMETER, "none, as this model reads text only", audio, info);
}

static enum err check_message(json_t *message, size_t i, struct err_info *info)
{
    char where[32];
    if (!json_is_object(message)) {
        return bad_message(i, "", ERR_INVALID_TYPE, "an object", message, info);
    }
    TRY(check_role(message, i, info));
    TRY(check_content(message, i, info));
    TRY(check_reasoning(message, i, info));
    TRY(check_audio(message, i, info));
    snprintf(where, sizeof where, "messages[%zu]", i);
    return tools_check_message(message, where, info);
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
