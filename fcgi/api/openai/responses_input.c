/* Items are read in order. `open` is the assistant's message that the next item can extend. Results are kept with the
 * message of their call until all items are read, so they follow it even if other messages came between. */
#include "fcgi/api/openai/responses_input.h"

#include "engine/base/buf.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/api/turn.h"

#include <string.h>

/* --- content ---------------------------------------------------------------------------------------------------- */

static enum err add_part(const json_t *part, const char *at, json_t *parts, struct err_info *info)
{
    static const char expected[] = "\"input_text\" or \"output_text\", as this model reads text only";
    char where[ERR_WHERE_BYTES];
    const json_t *type = json_object_get(part, "type");
    json_t *text;
    TRY(turn_expect(part, JSON_OBJECT, at, "an object with a type and a text", info));
    if (json_read_is(type, "refusal")) {
        TRY(turn_string(part, at, "refusal", &text, info));
    } else if (json_read_is(type, "input_text") || json_read_is(type, "output_text") || json_read_is(type, "text")) {
        TRY(turn_string(part, at, "text", &text, info));
    } else {
        return turn_refuse(type, JSON_STRING, turn_member(where, at, "type"), expected, info);
    }
    return turn_append(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
}

/* Appends a string, or an array of text parts, to the parts. */
static enum err add_content(const json_t *content, const char *at, json_t *parts, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    if (json_is_string(content)) {
        return turn_append(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    }
    TRY(turn_expect(content, JSON_ARRAY, at, "a string or an array of text parts", info));
    for (size_t i = 0; i < json_array_size(content); i++) {
        TRY(add_part(json_array_get(content, i), turn_element(where, at, i), parts, info));
    }
    return ERR_OK;
}

/* --- items ------------------------------------------------------------------------------------------------------ */

struct turns {
    json_t *messages;   /* owned, as are the next two */
    json_t *results;    /* per message: an array of messages with results of its calls, or null */
    json_t *calls;      /* call ids: the indexes of their messages */
    json_t *open;       /* borrowed from messages; NULL: the next item begins a new one */
    struct buf thought; /* of `open`, not added to it yet */
};

/* Appends `message` and takes ownership of it; NULL if memory was out. */
static enum err add_turn(struct turns *t, json_t *message)
{
    TRY(turn_append(t->messages, message));
    return turn_append(t->results, json_null());
}

/* Opens the assistant's message to extend; creates a new one unless may_go_on. */
static enum err open_message(struct turns *t, bool may_go_on)
{
    if (t->open != NULL && may_go_on) {
        return ERR_OK;
    }
    t->open = json_pack("{s:s, s:n}", "role", "assistant", "content");
    enum err err = add_turn(t, t->open);
    t->open = err == ERR_OK ? t->open : NULL;
    return err;
}

static bool has_said(const struct turns *t)
{
    return !json_is_null(json_object_get(t->open, "content")) || json_object_get(t->open, "tool_calls") != NULL;
}

static enum err add_instructions(struct turns *t, const json_t *content, const char *at, struct err_info *info)
{
    json_t *first = json_array_get(t->messages, 0);
    bool is_system = json_array_size(t->messages) == 1 && json_read_is(json_object_get(first, "role"), "system");
    json_t *parts = is_system ? json_object_get(first, "content") : NULL;
    if (parts != NULL) {
        TRY(turn_append(parts, json_pack("{s:s, s:s}", "type", "text", "text", "\n\n")));
        return add_content(content, at, parts, info);
    }
    parts = json_array();
    TRY(add_turn(t, json_pack("{s:s, s:o?}", "role", "system", "content", parts)));
    return parts != NULL ? add_content(content, at, parts, info) : ERR_NOMEM;
}

static enum err add_message(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    json_t *role = json_object_get(item, "role"), *content = json_object_get(item, "content"), *parts = json_array();
    turn_member(where, at, "content");
    if (json_read_is(role, "system") || json_read_is(role, "developer")) {
        t->open = NULL;
        json_decref(parts);
        return add_instructions(t, content, where, info);
    }
    bool is_assistant = json_read_is(role, "assistant");
    if (!is_assistant && !json_read_is(role, "user")) {
        json_decref(parts);
        return turn_refuse(role, JSON_STRING, turn_member(where, at, "role"),
                           "one of user, assistant, system, developer", info);
    }
    enum err err = parts != NULL ? add_content(content, where, parts, info) : ERR_NOMEM;
    if (is_assistant) {
        err = err != ERR_OK ? err : open_message(t, !has_said(t));
        err = err != ERR_OK ? err : turn_put(t->open, "content", json_incref(parts));
    } else {
        t->open = NULL;
        err = err != ERR_OK ? err : add_turn(t, json_pack("{s:s, s:O}", "role", "user", "content", parts));
    }
    json_decref(parts);
    return err;
}

/* Adds an infcgi thought that only encrypted_content holds. Other servers' are skipped, because infcgi cannot read
 * them. */
static void add_sealed(struct turns *t, const json_t *sealed)
{
    static const char mark[] = RESPONSES_PLAIN;
    size_t n = sizeof mark - 1, n_sealed = json_string_length(sealed);
    if (n_sealed > n && memcmp(json_string_value(sealed), mark, n) == 0) {
        buf_append(&t->thought, json_string_value(sealed) + n, n_sealed - n);
    }
}

static enum err add_thought(struct turns *t, const json_t *content, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    TRY(turn_expect(content, JSON_ARRAY, at, "an array of parts with a text", info));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        json_t *text;
        TRY(turn_expect(part, JSON_OBJECT, turn_element(where, at, i), "an object with a text", info));
        TRY(turn_string(part, where, "text", &text, info));
        buf_append(&t->thought, json_string_value(text), json_string_length(text));
    }
    return ERR_OK;
}

static bool has_parts(const json_t *parts)
{
    return parts != NULL && !(json_is_array(parts) && json_array_size(parts) == 0);
}

static enum err add_reasoning(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *content = json_read_get(item, "content"), *summary = json_read_get(item, "summary");
    const json_t *sealed = json_read_get(item, "encrypted_content");
    size_t before = t->thought.len;
    buf_puts(&t->thought, before > 0 ? "\n" : "");
    if (has_parts(content)) {
        TRY(add_thought(t, content, turn_member(where, at, "content"), info));
    } else if (sealed != NULL) {
        add_sealed(t, sealed);
    } else if (has_parts(summary)) {
        TRY(add_thought(t, summary, turn_member(where, at, "summary"), info));
    }
    TRY(buf_ok(&t->thought));
    return t->thought.len > before ? open_message(t, !has_said(t)) : ERR_OK;
}

/* Ends the thought. */
static enum err close_thought(struct turns *t)
{
    enum err err = buf_ok(&t->thought);
    if (err == ERR_OK && t->thought.len > 0 && t->open != NULL) {
        err = turn_put(t->open, "reasoning_content", turn_text(&t->thought));
    }
    buf_reset(&t->thought);
    return err;
}

/* Returns a function's name after that of its namespace, which can end with a separator; a new reference. */
static json_t *flat_name(const json_t *space, const json_t *name)
{
    const char *s = json_string_value(space);
    size_t n = json_string_length(space);
    bool is_apart = n == 0 || s[n - 1] == '_' || s[n - 1] == '-';
    return json_pack("s%++%", s != NULL ? s : "", n, is_apart ? "" : "__", json_string_value(name),
                     json_string_length(name));
}

/* Adds a call to the assistant's message. Takes ownership of arguments. */
static enum err put_call(struct turns *t, const json_t *item, const char *at, json_t *arguments, struct err_info *info)
{
    json_t *id, *name, *calls = NULL;
    enum err err = arguments != NULL ? turn_string(item, at, "call_id", &id, info) : ERR_NOMEM;
    err = err != ERR_OK ? err : turn_string(item, at, "name", &name, info);
    err = err != ERR_OK ? err : tools_check_name(name, at, info);
    err = err != ERR_OK ? err : open_message(t, true);
    if (err == ERR_OK) {
        calls = json_object_get(t->open, "tool_calls");
        if (calls == NULL) {
            calls = json_array();
            err = turn_put(t->open, "tool_calls", calls);
        }
    }
    err = err != ERR_OK
              ? err
              : turn_put(t->calls, json_string_value(id), json_integer((json_int_t)json_array_size(t->messages) - 1));
    if (err != ERR_OK) {
        json_decref(arguments);
        return err;
    }
    return turn_append(calls, json_pack("{s:O, s:s, s:{s:o, s:o}}", "id", id, "type", "function", "function", "name",
                                        flat_name(json_read_get(item, "namespace"), name), "arguments", arguments));
}

static enum err add_call(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    json_t *arguments;
    TRY(turn_string(item, at, "arguments", &arguments, info));
    return put_call(t, item, at, json_incref(arguments), info);
}

static enum err add_custom_call(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    json_t *input;
    TRY(turn_string(item, at, "input", &input, info));
    return put_call(t, item, at, json_pack("{s:O}", "input", input), info);
}

static enum err add_output(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    json_t *id, *parts = NULL;
    TRY(turn_string(item, at, "call_id", &id, info));
    const json_t *number = json_object_get(t->calls, json_string_value(id));
    if (number == NULL) {
        return json_in_refuse(ERR_INVALID_VALUE, turn_member(where, at, "call_id"), "the call_id of a call before it",
                              id, info);
    }
    size_t i = (size_t)json_integer_value(number);
    if (json_is_null(json_array_get(t->results, i)) && json_array_set_new(t->results, i, json_array()) != 0) {
        return ERR_NOMEM;
    }
    t->open = NULL;
    parts = json_array();
    TRY(turn_append(json_array_get(t->results, i),
                    json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", parts)));
    return add_content(json_object_get(item, "output"), turn_member(where, at, "output"), parts, info);
}

/* Rejects a reference; those to kept items have already been replaced. */
static enum err refuse_reference(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    json_t *id;
    (void)t;
    TRY(turn_string(item, at, "id", &id, info));
    return json_in_refuse(ERR_INVALID_VALUE, turn_member(where, at, "id"), "the id of an item that is kept", id, info);
}

static const struct {
    const char *type;
    enum err (*add)(struct turns *t, const json_t *item, const char *at, struct err_info *info);
} items[] = {
    {"message", add_message},
    {"reasoning", add_reasoning},
    {"function_call", add_call},
    {"function_call_output", add_output},
    {"custom_tool_call", add_custom_call},
    {"custom_tool_call_output", add_output},
    {"item_reference", refuse_reference},
};

static enum err add_item(struct turns *t, const json_t *item, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    TRY(turn_expect(item, JSON_OBJECT, at, "an item, an object with a type", info));
    const json_t *type = json_read_get(item, "type");
    TRY(json_read_is(type, "reasoning") ? ERR_OK : close_thought(t));
    for (size_t i = 0; type != NULL && i < ARRAY_LEN(items); i++) {
        if (json_read_is(type, items[i].type)) {
            return items[i].add(t, item, at, info);
        }
    }
    if (type == NULL) { /* messages and references can lack it */
        bool is_reference = json_object_get(item, "role") == NULL && json_object_get(item, "id") != NULL;
        return (is_reference ? refuse_reference : add_message)(t, item, at, info);
    }
    return turn_refuse(type, JSON_STRING, turn_member(where, at, "type"),
                       "message, reasoning, function_call, custom_tool_call, the output of one, or item_reference",
                       info);
}

/* at: the items' path; NULL for items that were checked before. */
static enum err add_items(struct turns *t, const json_t *in, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    for (size_t i = 0; i < json_array_size(in); i++) {
        TRY(add_item(t, json_array_get(in, i), turn_element(where, at, i), info));
    }
    return ERR_OK;
}

static enum err add_turns(struct turns *t, const json_t *body, const json_t *past, struct err_info *info)
{
    const json_t *input = json_read_get(body, "input"), *instructions = json_read_get(body, "instructions");
    if (instructions != NULL) {
        TRY(turn_expect(instructions, JSON_STRING, "instructions", "a string", info));
        TRY(add_instructions(t, instructions, "instructions", info));
    }
    TRY(add_items(t, past, "previous_response_id", info));
    if (json_is_string(input)) {
        TRY(close_thought(t));
        return add_turn(t, json_pack("{s:s, s:O}", "role", "user", "content", input));
    }
    TRY(turn_expect(input, JSON_ARRAY, "input", "a string or an array of items", info));
    size_t n = json_array_size(input) + json_array_size(past);
    if (n == 0 || n > RESPONSES_MAX_ITEMS) {
        return err_set(info, ERR_INVALID_VALUE, "input", "input: expected 1 to %d items, found %zu",
                       RESPONSES_MAX_ITEMS, n);
    }
    TRY(add_items(t, input, "input", info));
    return close_thought(t);
}

/* Appends the messages, each followed by the results of its calls. */
static enum err join_turns(const struct turns *t, json_t *messages)
{
    for (size_t i = 0; i < json_array_size(t->messages); i++) {
        TRY(json_array_append(messages, json_array_get(t->messages, i)) == 0 ? ERR_OK : ERR_NOMEM);
        json_t *results = json_array_get(t->results, i);
        TRY(!json_is_array(results) || json_array_extend(messages, results) == 0 ? ERR_OK : ERR_NOMEM);
    }
    return ERR_OK;
}

static enum err add_input(const json_t *body, const json_t *past, json_t *messages, struct err_info *info)
{
    struct turns t = {.messages = json_array(), .results = json_array(), .calls = json_object()};
    buf_init(&t.thought, 0, MEM_REQUEST);
    bool is_there = t.messages != NULL && t.results != NULL && t.calls != NULL;
    enum err err = is_there ? add_turns(&t, body, past, info) : ERR_NOMEM;
    err = err != ERR_OK ? err : join_turns(&t, messages);
    json_decref(t.messages);
    json_decref(t.results);
    json_decref(t.calls);
    buf_fini(&t.thought);
    return err;
}

json_t *responses_items(const json_t *input)
{
    if (json_is_string(input)) {
        return json_pack("[{s:s, s:s, s:[{s:s, s:O}]}]", "type", "message", "role", "user", "content", "type",
                         "input_text", "text", input);
    }
    return json_is_array(input) ? json_copy((json_t *)input) : NULL;
}

/* --- tools ------------------------------------------------------------------------------------------------------ */

/* Adds a function and its paths; takes ownership of it. */
static enum err keep_function(struct tools *t, json_t *function, const char *at, const char *parameters_at,
                              struct err_info *info)
{
    if (json_array_size(t->list) >= TOOLS_MAX) {
        json_decref(function);
        return err_set(info, ERR_INVALID_VALUE, "tools", "tools: expected at most %d functions, found more", TOOLS_MAX);
    }
    return tools_add(t, function, at, parameters_at);
}

static enum err add_function(struct tools *t, const json_t *tool, const json_t *space, const char *at,
                             struct err_info *info)
{
    static const char *const members[] = {"description", "parameters", "strict"};
    char where[ERR_WHERE_BYTES];
    json_t *name = json_object_get(tool, "name");
    TRY(tools_check_name(name, at, info));
    json_t *flat = flat_name(space, name), *function = json_pack("{s:O?}", "name", flat);
    enum err err = flat != NULL && function != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t i = 0; err == ERR_OK && i < ARRAY_LEN(members); i++) {
        err = turn_copy(tool, members[i], function, members[i]);
    }
    if (err == ERR_OK && space != NULL) {
        err = turn_put(t->names, json_string_value(flat), json_pack("{s:O, s:O}", "namespace", space, "name", name));
    }
    json_decref(flat);
    if (err != ERR_OK) {
        json_decref(function);
        return err;
    }
    return keep_function(t, function, at, turn_member(where, at, "parameters"), info);
}

/* The form of a custom tool's input. */
struct custom_format {
    const json_t *syntax; /* "lark" or "regex"; NULL: any text */
    json_t *definition;
};

static enum err read_format(const json_t *tool, const char *at, struct custom_format *f, struct err_info *info)
{
    char where[ERR_WHERE_BYTES], inner[ERR_WHERE_BYTES];
    const json_t *format = json_read_get(tool, "format"), *type = json_object_get(format, "type");
    const json_t *syntax = json_object_get(format, "syntax");
    *f = (struct custom_format){0};
    if (format == NULL || json_read_is(type, "text")) {
        return ERR_OK;
    }
    TRY(turn_expect(format, JSON_OBJECT, turn_member(where, at, "format"), "an object with a type", info));
    if (!json_read_is(type, "grammar")) {
        return turn_refuse(type, JSON_STRING, turn_member(inner, where, "type"), "\"text\" or \"grammar\"", info);
    }
    if (!json_read_is(syntax, "lark") && !json_read_is(syntax, "regex")) {
        return turn_refuse(syntax, JSON_STRING, turn_member(inner, where, "syntax"), "\"lark\" or \"regex\"", info);
    }
    f->syntax = syntax;
    return turn_string(format, where, "definition", &f->definition, info);
}

/* Returns the description of a custom tool for the model, including the input's grammar; a new reference. */
static json_t *describe_custom(const json_t *text, const struct custom_format *f)
{
    const char *about = text != NULL ? json_string_value(text) : "";
    size_t n = json_string_length(text);
    if (f->syntax == NULL) {
        return json_stringn(about, n);
    }
    return json_pack("s%++++%", about, n, "\n\nIt is given as the string `input`, which follows this grammar (",
                     json_string_value(f->syntax), "):\n", json_string_value(f->definition),
                     json_string_length(f->definition));
}

/* Returns the schema of the tool's one argument; a new reference. */
static json_t *custom_schema(const struct custom_format *f)
{
    json_t *input = json_pack("{s:s}", "type", "string");
    enum err err = ERR_OK;
    if (f->syntax != NULL && json_read_is(f->syntax, "regex")) {
        err = turn_put(
            input, "pattern",
            json_pack("s+%+", "^(?:", json_string_value(f->definition), json_string_length(f->definition), ")$"));
    } else if (f->syntax != NULL) {
        err = turn_put(input, "x-lark", json_incref(f->definition));
    }
    if (err != ERR_OK) {
        json_decref(input);
        return NULL;
    }
    return json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object", "properties", "input", input, "required", "input",
                     "additionalProperties", 0);
}

static enum err add_custom(struct tools *t, const json_t *tool, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    struct custom_format format;
    json_t *name = json_object_get(tool, "name");
    const json_t *text = json_read_get(tool, "description");
    TRY(tools_check_name(name, at, info));
    TRY(text == NULL ? ERR_OK
                     : turn_expect(text, JSON_STRING, turn_member(where, at, "description"), "a string", info));
    TRY(read_format(tool, at, &format, info));
    json_t *function = json_pack("{s:O, s:o, s:o, s:b}", "name", name, "description", describe_custom(text, &format),
                                 "parameters", custom_schema(&format), "strict", 1);
    /* The schema is built from the definition. */
    TRY(keep_function(t, function, at, turn_member(where, at, "format.definition"), info));
    return turn_put(t->names, json_string_value(name), json_pack("{s:b}", "custom", 1));
}

static enum err add_namespace(struct tools *t, const json_t *tool, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES], inner[ERR_WHERE_BYTES], place[ERR_WHERE_BYTES];
    const json_t *space = json_object_get(tool, "name"), *in = json_object_get(tool, "tools");
    TRY(tools_check_name(space, at, info));
    TRY(turn_expect(in, JSON_ARRAY, turn_member(where, at, "tools"), "an array of functions", info));
    for (size_t i = 0; i < json_array_size(in); i++) {
        const json_t *f = json_array_get(in, i), *type = json_object_get(f, "type");
        TRY(turn_expect(f, JSON_OBJECT, turn_element(inner, where, i), "an object with a type and a name", info));
        if (!json_read_is(type, "function")) {
            return turn_refuse(type, JSON_STRING, turn_member(place, inner, "type"), "\"function\"", info);
        }
        TRY(add_function(t, f, space, inner, info));
    }
    return ERR_OK;
}

/* Agents list these tools whether or not the server has them. */
static bool is_offer(const json_t *type)
{
    static const char search[] = "web_search";
    const char *text = json_is_string(type) ? json_string_value(type) : "";
    return strncmp(text, search, sizeof search - 1) == 0 || strcmp(text, "image_generation") == 0 ||
           strcmp(text, "tool_search") == 0;
}

static enum err add_tool(struct tools *t, const json_t *tool, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *type = json_object_get(tool, "type");
    TRY(turn_expect(tool, JSON_OBJECT, at, "an object with a type", info));
    if (json_read_is(type, "function")) {
        return add_function(t, tool, NULL, at, info);
    }
    if (json_read_is(type, "custom")) {
        return add_custom(t, tool, at, info);
    }
    if (json_read_is(type, "namespace")) {
        return add_namespace(t, tool, at, info);
    }
    if (is_offer(type)) {
        return ERR_OK;
    }
    TRY(turn_expect(type, JSON_STRING, turn_member(where, at, "type"), "a string", info));
    return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, where,
                          "function, custom or namespace, as this server runs no tools itself", type, info);
}

static enum err add_tools(const json_t *body, struct tools *t, struct err_info *info)
{
    char at[ERR_WHERE_BYTES];
    const json_t *in = json_read_get(body, "tools");
    TRY(in == NULL ? ERR_OK : turn_expect(in, JSON_ARRAY, "tools", "an array of tools", info));
    for (size_t i = 0; i < json_array_size(in); i++) {
        TRY(add_tool(t, json_array_get(in, i), turn_element(at, "tools", i), info));
    }
    return ERR_OK;
}

/* *flat, a new reference: the chat name of the tool that a choice names. */
static enum err chosen_name(const json_t *choice, const char *at, json_t **flat, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *type = json_object_get(choice, "type");
    json_t *name;
    TRY(turn_expect(choice, JSON_OBJECT, at, "an object with a type", info));
    if (!json_read_is(type, "function") && !json_read_is(type, "custom")) {
        TRY(turn_expect(type, JSON_STRING, turn_member(where, at, "type"), "\"function\" or \"custom\"", info));
        return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, where,
                              "\"function\" or \"custom\", as this server runs no tools itself", type, info);
    }
    TRY(turn_string(choice, at, "name", &name, info));
    *flat = flat_name(json_read_get(choice, "namespace"), name);
    return *flat != NULL ? ERR_OK : ERR_NOMEM;
}

/* Keeps only the named tools. */
static enum err keep_allowed(struct tools *t, const json_t *names)
{
    for (size_t i = json_array_size(t->list); i > 0; i--) {
        const json_t *f = json_object_get(json_array_get(t->list, i - 1), "function");
        if (!tools_among(names, json_object_get(f, "name")) &&
            (json_array_remove(t->list, i - 1) != 0 || json_array_remove(t->places, i - 1) != 0)) {
            return ERR_NOMEM;
        }
    }
    return ERR_OK;
}

static enum err read_allowed(const json_t *choice, struct tools *t, struct err_info *info)
{
    char at[ERR_WHERE_BYTES];
    json_t *mode = json_object_get(choice, "mode"), *in = json_object_get(choice, "tools"), *names, *name;
    if (!tools_read_mode(mode, t) || t->mode == TOOLS_NONE) {
        return turn_refuse(mode, JSON_STRING, "tool_choice.mode", "\"auto\" or \"required\"", info);
    }
    TRY(turn_expect(in, JSON_ARRAY, "tool_choice.tools", "an array of tools", info));
    if (json_array_size(in) > TOOLS_MAX) {
        return err_set(info, ERR_INVALID_VALUE, "tool_choice.tools",
                       "tool_choice.tools: expected at most %d, found %zu", TOOLS_MAX, json_array_size(in));
    }
    names = json_array();
    enum err err = names != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t i = 0; err == ERR_OK && i < json_array_size(in); i++) {
        err = chosen_name(json_array_get(in, i), turn_element(at, "tool_choice.tools", i), &name, info);
        err = err != ERR_OK ? err : turn_append(names, name);
    }
    err = err != ERR_OK ? err : keep_allowed(t, names);
    json_decref(names);
    return err;
}

static enum err read_choice(const json_t *body, struct tools *t, struct err_info *info)
{
    const json_t *choice = json_read_get(body, "tool_choice");
    json_t *name;
    if (choice == NULL || tools_read_mode(choice, t)) {
        return ERR_OK;
    }
    if (json_is_string(choice)) {
        return turn_refuse(choice, JSON_STRING, "tool_choice", "\"auto\", \"none\", \"required\" or an object", info);
    }
    if (json_read_is(json_object_get(choice, "type"), "allowed_tools")) {
        return read_allowed(choice, t, info);
    }
    t->mode = TOOLS_REQUIRED;
    t->is_named = true;
    TRY(chosen_name(choice, "tool_choice", &name, info));
    enum err err = tools_allow(t, name, "tool_choice", info);
    json_decref(name);
    return err;
}

/* --- the body --------------------------------------------------------------------------------------------------- */

static enum err read_response_format(const json_t *body, struct constraint *out, struct err_info *info)
{
    const json_t *text = json_read_get(body, "text"), *format = json_read_get(text, "format");
    const json_t *type = json_object_get(format, "type"), *schema = json_object_get(format, "schema");
    const json_t *name = json_read_get(format, "name");
    TRY(text == NULL ? ERR_OK : turn_expect(text, JSON_OBJECT, "text", "an object", info));
    if (format == NULL || json_read_is(type, "text")) {
        return ERR_OK;
    }
    TRY(turn_expect(format, JSON_OBJECT, "text.format", "an object with a type", info));
    if (json_read_is(type, "json_object")) {
        *out = (struct constraint){CONSTRAINT_OBJECT, "text.format", format, true};
        return ERR_OK;
    }
    if (!json_read_is(type, "json_schema")) {
        return turn_refuse(type, JSON_STRING, "text.format.type", "text, json_object or json_schema", info);
    }
    TRY(turn_expect(schema, JSON_OBJECT, "text.format.schema", "a JSON Schema, an object", info));
    TRY(name == NULL ? ERR_OK : turn_expect(name, JSON_STRING, "text.format.name", "a string", info));
    *out = (struct constraint){CONSTRAINT_SCHEMA, "text.format.schema", schema, true};
    return ERR_OK;
}

bool responses_includes(const json_t *body, const char *what)
{
    const json_t *include = json_object_get(body, "include");
    bool found = false;
    for (size_t i = 0; i < json_array_size(include); i++) {
        found = found || json_read_is(json_array_get(include, i), what);
    }
    return found;
}

enum err responses_read(const json_t *body, const json_t *past, struct params *p, struct err_info *info)
{
    const json_t *reasoning = json_read_get(body, "reasoning");
    p->messages = json_array();
    p->tools.names = json_object();
    TRY_MEM(p->messages != NULL && p->tools.names != NULL);
    TRY(add_input(body, past, p->messages, info));
    TRY(add_tools(body, &p->tools, info));
    TRY(read_choice(body, &p->tools, info));
    TRY(tools_read_parallel(body, &p->tools, info));
    TRY(read_response_format(body, &p->constraint, info));
    TRY(reasoning == NULL ? ERR_OK : turn_expect(reasoning, JSON_OBJECT, "reasoning", "an object", info));
    return reasoning_read_effort(json_read_get(reasoning, "effort"), "reasoning.effort", &p->effort, info);
}
