/* A user's message can hold tool results next to text. The results become messages of their own before it. An
 * assistant's blocks become one message with content, reasoning_content and tool_calls. */
#include "fcgi/api/anthropic/anthropic_input.h"

#include "fcgi/api/turn.h"

#include <stdio.h>
#include <string.h>

static enum err add_text(const json_t *block, const char *at, json_t *parts, struct err_info *info)
{
    json_t *text;
    TRY(turn_string(block, at, "text", &text, info));
    return turn_append(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
}

/* Returns the error for a block that is not allowed in this position. */
static enum err refuse_block(const json_t *block, const char *at, const char *expected, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *type = json_object_get(block, "type");
    TRY(turn_expect(block, JSON_OBJECT, at, "an object with a type", info));
    return turn_refuse(type, JSON_STRING, turn_member(where, at, "type"), expected, info);
}

/* Adds a string, or an array of text blocks, as a string or as parts. */
static enum err add_texts(const json_t *content, const char *at, json_t *message, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    if (content == NULL || json_is_string(content)) {
        return turn_put(message, "content", content == NULL ? json_string("") : json_incref((json_t *)content));
    }
    TRY(turn_expect(content, JSON_ARRAY, at, "a string or an array of text blocks", info));
    json_t *parts = json_array();
    enum err err = turn_put(message, "content", parts);
    for (size_t i = 0; err == ERR_OK && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        turn_element(where, at, i);
        err = json_read_is(json_object_get(block, "type"), "text")
                  ? add_text(block, where, parts, info)
                  : refuse_block(block, where, "\"text\", as this model reads text only", info);
    }
    return err;
}

/* --- messages --------------------------------------------------------------------------------------------------- */

/* State while one message is translated. */
struct turned {
    json_t *messages;     /* of the whole conversation; tool results are appended immediately */
    json_t *parts;        /* owned: texts */
    json_t *calls;        /* owned */
    struct buf reasoning; /* of all blocks, one line per block */
    bool is_user, is_after_assistant, has_reasoning;
    size_t n_results;
};

static enum err add_result(struct turned *t, const json_t *block, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    json_t *id;
    if (!t->is_after_assistant) {
        return json_in_refuse(ERR_INVALID_VALUE, at, "tool_result only after a message of the assistant",
                              json_object_get(block, "type"), info);
    }
    TRY(turn_string(block, at, "tool_use_id", &id, info));
    json_t *message = json_pack("{s:s, s:O}", "role", "tool", "tool_call_id", id);
    TRY(turn_append(t->messages, message));
    t->n_results++;
    return add_texts(json_read_get(block, "content"), turn_member(where, at, "content"), message, info);
}

static enum err add_call(struct turned *t, const json_t *block, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    json_t *id, *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    TRY(turn_string(block, at, "id", &id, info));
    TRY(tools_check_name(name, at, info));
    TRY(turn_expect(input, JSON_OBJECT, turn_member(where, at, "input"), "an object", info));
    return turn_append(t->calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name",
                                           name, "arguments", input));
}

static enum err add_thinking(struct turned *t, const json_t *block, const char *at, struct err_info *info)
{
    json_t *text;
    TRY(turn_string(block, at, "thinking", &text, info));
    buf_puts(&t->reasoning, t->has_reasoning ? "\n" : "");
    buf_append(&t->reasoning, json_string_value(text), json_string_length(text));
    t->has_reasoning = true;
    return buf_ok(&t->reasoning);
}

static enum err add_block(struct turned *t, const json_t *block, const char *at, struct err_info *info)
{
    const json_t *type = json_object_get(block, "type");
    if (json_read_is(type, "text")) {
        return add_text(block, at, t->parts, info);
    }
    if (t->is_user) {
        return json_read_is(type, "tool_result")
                   ? add_result(t, block, at, info)
                   : refuse_block(block, at, "\"text\" or \"tool_result\", as this model reads text only", info);
    }
    if (json_read_is(type, "tool_use")) {
        return add_call(t, block, at, info);
    }
    if (json_read_is(type, "thinking")) {
        return add_thinking(t, block, at, info);
    }
    return json_read_is(type, "redacted_thinking") /* from another model; infcgi cannot read it */
               ? ERR_OK
               : refuse_block(block, at, "\"text\", \"tool_use\" or \"thinking\"", info);
}

/* Appends the message for the blocks of add_block; none if all blocks were tool results. */
static enum err close_message(struct turned *t)
{
    if (t->n_results > 0 && json_array_size(t->parts) == 0) {
        return ERR_OK;
    }
    json_t *message = json_pack("{s:s, s:O}", "role", t->is_user ? "user" : "assistant", "content", t->parts);
    TRY(turn_append(t->messages, message));
    if (json_array_size(t->calls) > 0) {
        TRY(turn_put(message, "tool_calls", json_incref(t->calls)));
    }
    return t->has_reasoning ? turn_put(message, "reasoning_content", turn_text(&t->reasoning)) : ERR_OK;
}

static enum err add_blocks(struct turned *t, const json_t *content, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    buf_init(&t->reasoning, 0, MEM_REQUEST);
    t->parts = json_array();
    t->calls = json_array();
    enum err err = t->parts != NULL && t->calls != NULL ? ERR_OK : ERR_NOMEM;
    for (size_t i = 0; err == ERR_OK && i < json_array_size(content); i++) {
        err = add_block(t, json_array_get(content, i), turn_element(where, at, i), info);
    }
    err = err != ERR_OK ? err : close_message(t);
    json_decref(t->parts);
    json_decref(t->calls);
    buf_fini(&t->reasoning);
    return err;
}

/* Turns the content of `message` into an array of parts and returns it, borrowed. NULL: no memory. */
static json_t *open_parts(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_string(content)) {
        return content;
    }
    json_t *parts = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    return json_object_set_new(message, "content", parts) == 0 ? parts : NULL;
}

/* Joins the last message to the previous one, with an empty line between their texts. */
static enum err join_last(json_t *messages)
{
    size_t n = json_array_size(messages);
    json_t *parts = open_parts(json_array_get(messages, n - 2));
    TRY(turn_append(parts, json_pack("{s:s, s:s}", "type", "text", "text", "\n\n")));
    return json_array_extend(parts, open_parts(json_array_get(messages, n - 1))) == 0 &&
                   json_array_remove(messages, n - 1) == 0
               ? ERR_OK
               : ERR_NOMEM;
}

/* Adds a system message within a conversation. Few templates take that role there, so it becomes the user's text,
 * joined to the previous message if that is the user's. */
static enum err add_notice(const json_t *content, const char *at, json_t *messages, struct err_info *info)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1); /* NULL: none */
    bool joins = json_read_is(json_object_get(last, "role"), "user");
    json_t *message = json_pack("{s:s}", "role", "user");
    TRY(turn_append(messages, message));
    TRY(add_texts(content, at, message, info));
    return joins ? join_last(messages) : ERR_OK;
}

static enum err add_message(const json_t *in, size_t i, bool is_after_assistant, json_t *messages,
                            struct err_info *info)
{
    static const char roles[] = "\"user\" or \"assistant\"";
    char at[ERR_WHERE_BYTES], where[ERR_WHERE_BYTES];
    turn_element(at, "messages", i);
    TRY(turn_expect(in, JSON_OBJECT, at, "an object with role and content", info));
    json_t *role = json_object_get(in, "role"), *content = json_object_get(in, "content");
    bool is_user = json_read_is(role, "user");
    if (json_read_is(role, "system") && content != NULL) {
        return add_notice(content, turn_member(where, at, "content"), messages, info);
    }
    if (!is_user && !json_read_is(role, "assistant")) {
        return turn_refuse(role, JSON_STRING, turn_member(where, at, "role"), roles, info);
    }
    if (json_is_string(content)) {
        return turn_append(messages, json_pack("{s:O, s:O}", "role", role, "content", content));
    }
    TRY(turn_expect(content, JSON_ARRAY, turn_member(where, at, "content"), "a string or an array of blocks", info));
    struct turned t = {.messages = messages, .is_user = is_user, .is_after_assistant = is_after_assistant};
    return add_blocks(&t, content, where, info);
}

static enum err add_messages(const json_t *body, json_t *messages, struct err_info *info)
{
    const json_t *in = json_object_get(body, "messages");
    bool is_after_assistant = false, is_after_notice = false;
    TRY(turn_expect(in, JSON_ARRAY, "messages", "an array of messages", info));
    for (size_t i = 0; i < json_array_size(in); i++) {
        const json_t *message = json_array_get(in, i), *role = json_object_get(message, "role");
        size_t n = json_array_size(messages);
        TRY(add_message(message, i, is_after_assistant, messages, info));
        if (is_after_notice && json_read_is(role, "user") && json_array_size(messages) == n + 1) {
            TRY(join_last(messages)); /* templates in which roles alternate accept one message here */
        }
        is_after_assistant = json_read_is(role, "assistant");
        is_after_notice = json_read_is(role, "system");
    }
    return ERR_OK;
}

static bool is_billing_header(const json_t *part)
{
    static const char mark[] = "x-anthropic-billing-header:";
    const json_t *text = json_object_get(part, "text");
    return json_string_length(text) >= sizeof mark - 1 && memcmp(json_string_value(text), mark, sizeof mark - 1) == 0;
}

static enum err add_system(const json_t *body, json_t *messages, struct err_info *info)
{
    const json_t *system = json_read_get(body, "system");
    if (system == NULL) {
        return ERR_OK;
    }
    json_t *message = json_pack("{s:s}", "role", "system");
    TRY(turn_append(messages, message));
    TRY(add_texts(system, "system", message, info));
    const json_t *parts = json_object_get(message, "content");
    if (!json_is_array(parts)) {
        return ERR_OK;
    }
    json_t *kept = json_array();
    for (size_t i = 0; i < json_array_size(parts); i++) {
        json_t *part = json_array_get(parts, i);
        if (!is_billing_header(part) && json_array_append(kept, part) != 0) {
            json_decref(kept);
            return ERR_NOMEM;
        }
    }
    TRY(turn_put(message, "content", kept));
    return json_array_size(kept) == 0 && json_array_remove(messages, 0) != 0 ? ERR_NOMEM : ERR_OK;
}

/* --- tools ------------------------------------------------------------------------------------------------------ */

static enum err add_tool(const json_t *tool, const char *at, struct tools *tools, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    json_t *schema = json_object_get(tool, "input_schema"), *name = json_object_get(tool, "name");
    TRY(turn_expect(tool, JSON_OBJECT, at, "an object with name and input_schema", info));
    const json_t *type = json_read_get(tool, "type");
    if (type != NULL && !json_read_is(type, "custom")) {
        return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, turn_member(where, at, "type"),
                              "\"custom\", as this server runs no tools itself", type, info);
    }
    TRY(tools_check_name(name, at, info));
    TRY(turn_expect(schema, JSON_OBJECT, turn_member(where, at, "input_schema"), "a JSON Schema, an object", info));
    json_t *function = json_pack("{s:O, s:O}", "name", name, "parameters", schema);
    TRY(tools_add(tools, function, at, where));
    TRY(turn_copy(tool, "description", function, "description"));
    return turn_copy(tool, "strict", function, "strict");
}

static enum err add_tools(const json_t *body, struct tools *tools, struct err_info *info)
{
    char at[ERR_WHERE_BYTES];
    const json_t *in = json_read_get(body, "tools");
    TRY(in == NULL ? ERR_OK : turn_expect(in, JSON_ARRAY, "tools", "an array of tools", info));
    for (size_t i = 0; i < json_array_size(in); i++) {
        TRY(add_tool(json_array_get(in, i), turn_element(at, "tools", i), tools, info));
    }
    return ERR_OK;
}

static enum err read_choice(const json_t *body, struct tools *tools, struct err_info *info)
{
    static const char expected[] = "\"auto\", \"any\", \"tool\" or \"none\"";
    const json_t *choice = json_read_get(body, "tool_choice"), *type = json_object_get(choice, "type");
    const json_t *off = json_read_get(choice, "disable_parallel_tool_use");
    json_t *name;
    if (choice == NULL) {
        return ERR_OK;
    }
    TRY(turn_expect(choice, JSON_OBJECT, "tool_choice", "an object with a type", info));
    if (off != NULL && !json_is_boolean(off)) {
        return json_in_refuse(ERR_INVALID_TYPE, "tool_choice.disable_parallel_tool_use", "a boolean", off, info);
    }
    tools->is_separate = json_is_true(off);
    tools->is_named = json_read_is(type, "tool");
    if (tools->is_named || json_read_is(type, "any")) {
        tools->mode = TOOLS_REQUIRED;
    } else if (json_read_is(type, "none")) {
        tools->mode = TOOLS_NONE;
    } else if (!json_read_is(type, "auto")) {
        return turn_refuse(type, JSON_STRING, "tool_choice.type", expected, info);
    }
    if (!tools->is_named) {
        return ERR_OK;
    }
    TRY(turn_string(choice, "tool_choice", "name", &name, info));
    return tools_allow(tools, name, "tool_choice", info);
}

/* --- how to answer ---------------------------------------------------------------------------------------------- */

/* With adaptive thinking, or thinking between tool calls, the model decides how long it thinks. */
static enum err read_thinking(const json_t *body, struct params *p, struct err_info *info)
{
    static const char expected[] = "\"enabled\", \"adaptive\", \"between_tools\" or \"disabled\"";
    static const char *const on[] = {"enabled", "adaptive", "between_tools"};
    const json_t *thinking = json_read_get(body, "thinking"), *type = json_object_get(thinking, "type");
    const json_t *budget = json_read_get(thinking, "budget_tokens");
    bool is_on = false;
    if (thinking == NULL) {
        return ERR_OK;
    }
    TRY(turn_expect(thinking, JSON_OBJECT, "thinking", "an object with a type", info));
    TRY(turn_expect(type, JSON_STRING, "thinking.type", expected, info));
    for (size_t i = 0; i < ARRAY_LEN(on); i++) {
        is_on = is_on || json_read_is(type, on[i]);
    }
    if (!is_on && !json_read_is(type, "disabled")) {
        return json_in_refuse(ERR_INVALID_VALUE, "thinking.type", expected, type, info);
    }
    int64_t n;
    bool is_whole = json_in_integer(budget, &n);
    if (budget != NULL && (!is_whole || n < 1 || n > INT32_MAX)) {
        return json_in_refuse(json_in_integer_code(budget), "thinking.budget_tokens", "an integer, 1 to 2147483647",
                              budget, info);
    }
    if (budget != NULL || !is_on) { /* a template without the switch can begin the thinking anyway */
        p->think_budget = is_on ? n : 0;
    }
    p->kwargs = json_pack("{s:b}", "enable_thinking", is_on);
    return p->kwargs != NULL ? ERR_OK : ERR_NOMEM;
}

/* Reads the form of structured answers. at: its path, which differs in beta versions. */
static enum err read_format(const json_t *format, const char *at, struct params *p, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    const json_t *schema = json_object_get(format, "schema"), *type = json_object_get(format, "type");
    if (format == NULL) {
        return ERR_OK;
    }
    TRY(turn_expect(format, JSON_OBJECT, at, "an object with type and schema", info));
    if (!json_read_is(type, "json_schema")) {
        return turn_refuse(type, JSON_STRING, turn_member(where, at, "type"), "\"json_schema\"", info);
    }
    TRY(turn_expect(schema, JSON_OBJECT, turn_member(where, at, "schema"), "a JSON Schema, an object", info));
    p->constraint = (struct constraint){CONSTRAINT_SCHEMA, "output_config.format.schema", schema, true};
    return ERR_OK;
}

static enum err read_output_config(const json_t *body, struct params *p, struct err_info *info)
{
    static const char expected[] = "\"low\", \"medium\", \"high\", \"xhigh\" or \"max\"";
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
    const json_t *config = json_read_get(body, "output_config"), *effort = json_read_get(config, "effort");
    TRY(read_format(json_read_get(body, "output_format"), "output_format", p, info));
    if (config == NULL) {
        return ERR_OK;
    }
    TRY(turn_expect(config, JSON_OBJECT, "output_config", "an object", info));
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++) {
        p->effort = json_read_is(effort, efforts[i]) ? efforts[i] : p->effort;
    }
    if (effort != NULL && p->effort == NULL) {
        return turn_refuse(effort, JSON_STRING, "output_config.effort", expected, info);
    }
    return read_format(json_read_get(config, "format"), "output_config.format", p, info);
}

static enum err read_stops(struct call *c, struct params *p, struct err_info *info)
{
    char at[ERR_WHERE_BYTES], expected[64];
    const json_t *stops = json_read_get(c->json, "stop_sequences");
    snprintf(expected, sizeof expected, "at most %d strings of 1 to %d bytes", ENGINE_MAX_STOPS, ENGINE_MAX_STOP_BYTES);
    TRY(stops == NULL ? ERR_OK : turn_expect(stops, JSON_ARRAY, "stop_sequences", "an array of strings", info));
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const json_t *stop = json_array_get(stops, i);
        size_t n = json_string_length(stop);
        TRY(turn_expect(stop, JSON_STRING, turn_element(at, "stop_sequences", i), "a string", info));
        if (n == 0 || n > ENGINE_MAX_STOP_BYTES || i == ENGINE_MAX_STOPS) {
            return json_in_refuse(ERR_INVALID_VALUE, at, expected, stop, info);
        }
        TRY(params_add_stop(p, c, stop, info));
    }
    return ERR_OK;
}

/* Rejects fields that ask infcgi to call other servers or to keep the conversation. Clients know by the error's details
 * (anthropic_dialect.c) that they must send the whole conversation. */
static enum err refuse_services(const json_t *body, struct err_info *info)
{
    const json_t *servers = json_read_get(body, "mcp_servers"), *thread = json_read_get(body, "thread");
    if (thread != NULL) {
        return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "thread", "none, as conversations are not kept", thread, info);
    }
    return json_array_size(servers) == 0 ? ERR_OK
                                         : json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "mcp_servers",
                                                          "none, as this server calls no others", servers, info);
}

/* Rows after the sampling fields are those of the chat endpoint, with the same meanings. */
static const struct field fields[] = {
    {"model", FIELD_STRING, PARAMS_AT(model), 0, 4096},
    {"max_tokens", FIELD_INT32, PARAMS_AT(gen.max_tokens), -1, PARAMS_INT32_TOP},
    {"stream", FIELD_BOOL, PARAMS_AT(stream), 0, 0},
    PARAMS_SAMPLING,
    {"typical_p", FIELD_FLOAT, PARAMS_AT(gen.sampling.typical_p), 0, 1},
    {"repeat_last_n", FIELD_INT32, PARAMS_AT(gen.sampling.repeat_last_n), -1, PARAMS_INT32_TOP},
    {"min_tokens", FIELD_INT32, PARAMS_AT(gen.min_tokens), 0, PARAMS_INT32_TOP},
    {"ignore_eos", FIELD_BOOL, PARAMS_AT(gen.ignore_eos), 0, 0},
    {"cache_salt", FIELD_STRING, PARAMS_AT(gen.cache_salt), 0, APIKEY_CLIENT_SALT_BYTES},
    {"logit_bias", FIELD_CUSTOM, 0, 0, 0},
    {"stop_token_ids", FIELD_CUSTOM, 0, 0, 0},
};
static const struct field_table answer_fields = {NULL, fields, ARRAY_LEN(fields)};
static const struct field_table count_fields = {NULL, fields, 1};

static enum err check_max_tokens(const json_t *body, struct err_info *info)
{
    const json_t *most = json_object_get(body, "max_tokens");
    int64_t n;
    if (!json_in_integer(most, &n)) {
        TRY(turn_expect(most, JSON_INTEGER, "max_tokens", "an integer", info));
    }
    /* Chat accepts -1 for no limit, this API does not. */
    return n >= 0 ? ERR_OK : json_in_refuse(ERR_INVALID_VALUE, "max_tokens", "0 to 2147483647", most, info);
}

enum err anthropic_read(struct call *c, bool is_answered, struct params *p, struct err_info *info)
{
    const json_t *body = c->json;
    p->messages = json_array();
    TRY_MEM(p->messages != NULL);
    TRY(refuse_services(body, info));
    TRY(turn_expect(json_object_get(body, "model"), JSON_STRING, "model", "a string", info));
    TRY(add_system(body, p->messages, info));
    TRY(add_messages(body, p->messages, info));
    TRY(add_tools(body, &p->tools, info));
    TRY(read_choice(body, &p->tools, info));
    TRY(read_thinking(body, p, info));
    TRY(read_output_config(body, p, info));
    if (!is_answered) {
        return params_read(p, c, &count_fields, body, info);
    }
    TRY(check_max_tokens(body, info));
    TRY(read_stops(c, p, info));
    return params_read(p, c, &answer_fields, body, info);
}
