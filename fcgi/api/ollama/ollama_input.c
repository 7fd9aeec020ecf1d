#include "fcgi/api/ollama/ollama_input.h"

#include "engine/base/buf.h"
#include "engine/base/json_write.h"
#include "fcgi/api/turn.h"

#include <stdio.h>
#include <string.h>

#define COMMON                                                                                                         \
    {"model", FIELD_STRING, PARAMS_AT(model), 0, 4096}, {"stream", FIELD_BOOL, PARAMS_AT(stream), 0, 0},               \
        {"format", FIELD_CUSTOM, 0, 0, 0}, {"options", FIELD_CUSTOM, 0, 0, 0}, {"think", FIELD_CUSTOM, 0, 0, 0},       \
        {"keep_alive", FIELD_IGNORED, 0, 0, 0}, {"truncate", FIELD_IGNORED, 0, 0, 0},                                  \
    {                                                                                                                  \
        "shift", FIELD_IGNORED, 0, 0, 0                                                                                \
    }

static const struct field chat_fields[] = {
    COMMON,
    {"messages", FIELD_CUSTOM, 0, 0, 0},
    {"tools", FIELD_CUSTOM, 0, 0, 0},
    {"logprobs", FIELD_REFUSED, 0, 0, 0},
};
const struct field_table fields_of_ollama_chat = {"ollama_chat", chat_fields, ARRAY_LEN(chat_fields)};

static const struct field generate_fields[] = {
    COMMON,
    {"prompt", FIELD_CUSTOM, 0, 0, 0},
    {"system", FIELD_CUSTOM, 0, 0, 0},
    {"images", FIELD_REFUSED, 0, 0, 0},
    {"suffix", FIELD_CUSTOM, 0, 0, 0},
    {"raw", FIELD_REFUSED, 0, 0, 0},
    {"template", FIELD_CUSTOM, 0, 0, 0},
    {"context", FIELD_REFUSED, 0, 0, 0},
    {"logprobs", FIELD_REFUSED, 0, 0, 0},
};
const struct field_table fields_of_ollama_generate = {"ollama_generate", generate_fields, ARRAY_LEN(generate_fields)};

/* --- options, format, thinking ------------------------------------------------------------------------------------ */

/* The other options control how a model is run and have no effect. */
static const struct field option_fields[] = {
    PARAMS_SAMPLING,
    {"repeat_last_n", FIELD_INT32, PARAMS_AT(gen.sampling.repeat_last_n), -1, PARAMS_INT32_TOP},
    {"stop", FIELD_CUSTOM, 0, 0, 0},
};
static const struct field_table fields_of_options = {NULL, option_fields, ARRAY_LEN(option_fields)};

static enum err read_options(struct call *c, struct params *p, struct err_info *info)
{
    static const struct field most_field = {"max_tokens", FIELD_INT32, PARAMS_AT(gen.max_tokens), -1, PARAMS_INT32_TOP};
    const json_t *options = json_read_get(c->json, "options"), *most = json_read_get(options, "num_predict");
    int64_t n;
    if (options == NULL) {
        return ERR_OK;
    }
    if (!json_is_object(options)) {
        return turn_refuse(options, JSON_OBJECT, "options", "an object", info);
    }
    if (p->messages == NULL) {
        return ERR_OK;
    }
    TRY(params_read(p, c, &fields_of_options, options, info));
    bool is_endless = most == NULL || (json_in_integer(most, &n) && n < 0);
    return is_endless ? ERR_OK : json_in_field(&most_field, most, p, info);
}

/* Reads "json", or a schema. */
static enum err read_format(const json_t *body, struct constraint *out, struct err_info *info)
{
    const json_t *format = json_read_get(body, "format");
    bool is_any = json_read_is(format, "json");
    if (format == NULL || json_read_is(format, "")) {
        return ERR_OK;
    }
    if (!is_any && !json_is_object(format)) {
        return turn_refuse(format, JSON_STRING, "format", "\"json\" or a JSON schema", info);
    }
    *out = (struct constraint){is_any ? CONSTRAINT_OBJECT : CONSTRAINT_SCHEMA, "format", format, true};
    return ERR_OK;
}

static enum err read_think(const json_t *body, struct params *p, struct err_info *info)
{
    static const char *const efforts[] = {"low", "medium", "high"};
    const json_t *think = json_read_get(body, "think");
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++) {
        p->effort = json_read_is(think, efforts[i]) ? efforts[i] : p->effort;
    }
    if (think == NULL || p->effort != NULL) {
        return ERR_OK;
    }
    if (!json_is_boolean(think)) {
        return turn_refuse(think, JSON_STRING, "think", "a boolean, or one of low, medium, high", info);
    }
    if (json_is_false(think)) {
        p->effort = "none";
        return ERR_OK;
    }
    p->kwargs = json_pack("{s:b}", "enable_thinking", 1);
    return p->kwargs != NULL ? ERR_OK : ERR_NOMEM;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* The conversation so far. Ollama's calls have no ids, so they get numbers; results come in the order of the calls. */
struct talk {
    json_t *out;
    size_t n_calls, n_results;
};

static json_t *id_of(size_t number)
{
    char id[32];
    snprintf(id, sizeof id, "call_%zu", number);
    return json_string(id);
}

/* Arguments are objects in Ollama's API and text in a chat. */
static enum err add_call(struct talk *t, const char *where, const json_t *call, json_t *out, struct err_info *info)
{
    const json_t *function = json_object_get(call, "function");
    json_t *name = json_object_get(function, "name"), *arguments = (json_t *)json_read_get(function, "arguments");
    if (!json_is_string(name) || (arguments != NULL && !json_is_object(arguments))) {
        return turn_refuse(call, JSON_OBJECT, where,
                           "an object with function.name, a string, and function.arguments, an object", info);
    }
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    buf_puts(&text, arguments == NULL ? "{}" : "");
    if (arguments != NULL) {
        json_write_value(&text, arguments, false);
    }
    enum err err = buf_ok(&text);
    if (err == ERR_OK) {
        err = turn_append(out, json_pack("{s:o,s:s,s:{s:O,s:s}}", "id", id_of(t->n_calls++), "type", "function",
                                         "function", "name", name, "arguments", text.data));
    }
    buf_fini(&text);
    return err;
}

static enum err add_calls(struct talk *t, size_t at, const json_t *from, json_t *to, struct err_info *info)
{
    const json_t *calls = json_read_get(from, "tool_calls");
    if (calls == NULL || (json_is_array(calls) && json_array_size(calls) == 0)) {
        return ERR_OK;
    }
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "messages[%zu].tool_calls", at);
    if (!json_is_array(calls)) {
        return turn_refuse(calls, JSON_ARRAY, where, "an array", info);
    }
    json_t *out = json_array();
    TRY(turn_put(to, "tool_calls", out));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", at, i);
        TRY(add_call(t, where, json_array_get(calls, i), out, info));
    }
    return ERR_OK;
}

static enum err add_result_id(struct talk *t, const json_t *from, json_t *to)
{
    if (!json_read_is(json_object_get(from, "role"), "tool")) {
        return ERR_OK;
    }
    json_t *name = json_object_get(from, "tool_name");
    TRY(turn_put(to, "tool_call_id", id_of(t->n_results++)));
    return json_is_string(name) ? turn_put(to, "name", json_incref(name)) : ERR_OK;
}

static enum err fill_message(struct talk *t, size_t at, const json_t *from, json_t *to, struct err_info *info)
{
    static const char *const rows[][2] = {{"role", "role"}, {"content", "content"}, {"thinking", "reasoning_content"}};
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "messages[%zu].images", at);
    const json_t *images = json_read_get(from, "images");
    if (images != NULL && !(json_is_array(images) && json_array_size(images) == 0)) {
        return err_set(info, ERR_UNSUPPORTED_PARAMETER, where, "%s: images are not supported", where);
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        TRY(turn_copy(from, rows[i][0], to, rows[i][1]));
    }
    TRY(add_calls(t, at, from, to, info));
    return add_result_id(t, from, to);
}

static enum err add_messages(const json_t *messages, json_t *out, struct err_info *info)
{
    struct talk t = {.out = out};
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *from = json_array_get(messages, i);
        char where[ERR_WHERE_BYTES];
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!json_is_object(from)) {
            return turn_refuse(from, JSON_OBJECT, where, "an object", info);
        }
        json_t *to = json_object();
        TRY(turn_append(out, to));
        TRY(fill_message(&t, i, from, to, info));
    }
    return ERR_OK;
}

/* Adds the prompt of /api/generate; removes the messages if it is empty. */
static enum err add_prompt(const json_t *body, struct params *p, struct err_info *info)
{
    static const char *const refused[] = {"suffix", "template"};
    json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const json_t *v = json_read_get(body, refused[i]);
        if (v != NULL && !json_read_is(v, "")) { /* some clients send empty ones */
            return err_set(info, ERR_UNSUPPORTED_PARAMETER, refused[i], "%s: not supported", refused[i]);
        }
    }
    if (prompt != NULL && !json_is_null(prompt) && !json_is_string(prompt)) {
        return turn_refuse(prompt, JSON_STRING, "prompt", "a string", info);
    }
    if (system != NULL && !json_is_null(system) && !json_is_string(system)) {
        return turn_refuse(system, JSON_STRING, "system", "a string", info);
    }
    if (json_string_length(prompt) == 0) {
        return ERR_OK;
    }
    p->messages = json_array();
    if (json_string_length(system) > 0) {
        TRY(turn_append(p->messages, json_pack("{s:s,s:O}", "role", "system", "content", system)));
    }
    return turn_append(p->messages, json_pack("{s:s,s:O}", "role", "user", "content", prompt));
}

static enum err read_chat(const json_t *body, struct params *p, struct err_info *info)
{
    const json_t *messages = json_read_get(body, "messages"), *tools = json_read_get(body, "tools");
    if (messages != NULL && !json_is_array(messages)) {
        return turn_refuse(messages, JSON_ARRAY, "messages", "an array of messages", info);
    }
    if (tools != NULL && !json_is_array(tools)) { /* they are not checked later if there is no message */
        return turn_refuse(tools, JSON_ARRAY, "tools", "an array", info);
    }
    if (json_array_size(messages) == 0) {
        return ERR_OK;
    }
    p->tools.is_openai = true;
    p->tools.list = tools != NULL ? json_incref((json_t *)tools) : NULL;
    p->messages = json_array();
    return add_messages(messages, p->messages, info);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

size_t ollama_model_len(const char *model)
{
    static const char latest[] = ":latest";
    size_t n = strlen(model), n_latest = sizeof latest - 1;
    return n > n_latest && memcmp(model + n - n_latest, latest, n_latest) == 0 ? n - n_latest : n;
}

enum err ollama_read(struct call *c, bool is_generate, struct params *p, struct err_info *info)
{
    p->stream = true;
    TRY(fields_read(c, is_generate ? &fields_of_ollama_generate : &fields_of_ollama_chat, c->json, p, info));
    if (p->model != NULL) {
        p->model = arena_dup(&c->arena, p->model, ollama_model_len(p->model));
        TRY_MEM(p->model != NULL);
    }
    TRY(read_format(c->json, &p->constraint, info));
    TRY(read_think(c->json, p, info));
    TRY((is_generate ? add_prompt : read_chat)(c->json, p, info));
    return read_options(c, p, info);
}
