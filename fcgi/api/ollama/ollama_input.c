/* Translates fields with another name or form. Chat completions check the rest. */
#include "fcgi/api/ollama/ollama_input.h"

#include "engine/base/buf.h"
#include "engine/base/json_write.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/turn.h"

#include <stdio.h>
#include <string.h>

struct ask {
    const char *model;
    bool stream;
};

#define COMMON                                                                                                         \
    {"model", FIELD_STRING, offsetof(struct ask, model), 0, 4096},                                                     \
        {"stream", FIELD_BOOL, offsetof(struct ask, stream), 0, 0}, {"format", FIELD_CUSTOM, 0, 0, 0},                 \
        {"options", FIELD_CUSTOM, 0, 0, 0}, {"think", FIELD_CUSTOM, 0, 0, 0}, {"keep_alive", FIELD_IGNORED, 0, 0, 0},  \
        {"truncate", FIELD_IGNORED, 0, 0, 0},                                                                          \
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

static enum err refuse(const char *where, json_type type, const char *expected, const json_t *v, struct err_info *info)
{
    bool is_other = v == NULL || json_typeof(v) != type;
    return json_in_refuse(is_other ? ERR_INVALID_TYPE : ERR_INVALID_VALUE, where, expected, v, info);
}

/* --- options, format, thinking ------------------------------------------------------------------------------------ */

/* The other options control how a model is run and have no effect. */
static enum err add_options(const json_t *body, json_t *chat, struct err_info *info)
{
    static const char *const same[] = {
        "temperature",       "top_k",          "top_p",        "min_p", "seed", "stop", "presence_penalty",
        "frequency_penalty", "repeat_penalty", "repeat_last_n"};
    const json_t *options = json_read_get(body, "options");
    if (options == NULL) {
        return ERR_OK;
    }
    if (!json_is_object(options)) {
        return refuse("options", JSON_OBJECT, "an object", options, info);
    }
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        json_t *v = json_object_get(options, same[i]);
        if (v != NULL && !json_is_null(v)) {
            TRY(turn_put(chat, same[i], json_incref(v)));
        }
    }
    json_t *most = json_object_get(options, "num_predict");
    int64_t n;
    bool is_endless = most == NULL || json_is_null(most) || (json_in_integer(most, &n) && n < 0);
    return is_endless ? ERR_OK : turn_put(chat, "max_tokens", json_incref(most));
}

/* Adds "json", or a schema. */
static enum err add_format(const json_t *body, json_t *chat, struct err_info *info)
{
    json_t *format = json_object_get(body, "format");
    if (format == NULL || json_is_null(format) || json_read_is(format, "")) {
        return ERR_OK;
    }
    if (json_read_is(format, "json")) {
        return turn_put(chat, "response_format", json_pack("{s:s}", "type", "json_object"));
    }
    if (!json_is_object(format)) {
        return refuse("format", JSON_STRING, "\"json\" or a JSON schema", format, info);
    }
    return turn_put(
        chat, "response_format",
        json_pack("{s:s,s:{s:s,s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema", format));
}

static enum err add_think(const json_t *body, json_t *chat, struct err_info *info)
{
    json_t *think = json_object_get(body, "think");
    if (think == NULL || json_is_null(think)) {
        return ERR_OK;
    }
    if (json_read_is(think, "low") || json_read_is(think, "medium") || json_read_is(think, "high")) {
        return turn_put(chat, "reasoning_effort", json_incref(think));
    }
    if (!json_is_boolean(think)) {
        return refuse("think", JSON_STRING, "a boolean, or one of low, medium, high", think, info);
    }
    return json_is_true(think) ? turn_put(chat, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", 1))
                               : turn_put(chat, "reasoning_effort", json_string("none"));
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
        return refuse(where, JSON_OBJECT, "an object with function.name, a string, and function.arguments, an object",
                      call, info);
    }
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    buf_puts(&text, arguments == NULL ? "{}" : "");
    if (arguments != NULL) {
        json_write_value(&text, arguments, false);
    }
    enum err err = buf_ok(&text);
    json_t *made = err == ERR_OK ? json_pack("{s:o,s:s,s:{s:O,s:s}}", "id", id_of(t->n_calls), "type", "function",
                                             "function", "name", name, "arguments", text.data)
                                 : NULL;
    buf_fini(&text);
    TRY(err);
    t->n_calls++;
    return made != NULL && json_array_append_new(out, made) == 0 ? ERR_OK : ERR_NOMEM;
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
        return refuse(where, JSON_ARRAY, "an array", calls, info);
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
        json_t *v = json_object_get(from, rows[i][0]);
        if (v != NULL && !json_is_null(v)) {
            TRY(turn_put(to, rows[i][1], json_incref(v)));
        }
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
            return refuse(where, JSON_OBJECT, "an object", from, info);
        }
        json_t *to = json_object();
        if (to == NULL || json_array_append_new(out, to) != 0) {
            return ERR_NOMEM;
        }
        TRY(fill_message(&t, i, from, to, info));
    }
    return ERR_OK;
}

static enum err add_turn(json_t *out, const char *role, json_t *text)
{
    json_t *turn = json_pack("{s:s,s:O}", "role", role, "content", text);
    return turn != NULL && json_array_append_new(out, turn) == 0 ? ERR_OK : ERR_NOMEM;
}

/* Adds the prompt of /api/generate. *is_empty: there is no prompt. */
static enum err add_prompt(const json_t *body, json_t *out, bool *is_empty, struct err_info *info)
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
        return refuse("prompt", JSON_STRING, "a string", prompt, info);
    }
    if (system != NULL && !json_is_null(system) && !json_is_string(system)) {
        return refuse("system", JSON_STRING, "a string", system, info);
    }
    *is_empty = json_string_length(prompt) == 0;
    if (json_string_length(system) > 0) {
        TRY(add_turn(out, "system", system));
    }
    return *is_empty ? ERR_OK : add_turn(out, "user", prompt);
}

static enum err add_talk(const json_t *body, bool is_generate, json_t *chat, bool *is_empty, struct err_info *info)
{
    json_t *out = json_array();
    TRY(turn_put(chat, "messages", out));
    if (is_generate) {
        return add_prompt(body, out, is_empty, info);
    }
    const json_t *messages = json_read_get(body, "messages");
    if (messages != NULL && !json_is_array(messages)) {
        return refuse("messages", JSON_ARRAY, "an array of messages", messages, info);
    }
    *is_empty = json_array_size(messages) == 0;
    json_t *tools = json_object_get(body, "tools");
    if (tools != NULL && !json_is_null(tools)) {
        if (!json_is_array(tools)) { /* chat completions do not check tools if there is no message */
            return refuse("tools", JSON_ARRAY, "an array", tools, info);
        }
        TRY(turn_put(chat, "tools", json_incref(tools)));
    }
    return add_messages(messages, out, info);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

size_t ollama_model_len(const char *model)
{
    static const char latest[] = ":latest";
    size_t n = strlen(model), n_latest = sizeof latest - 1;
    return n > n_latest && memcmp(model + n - n_latest, latest, n_latest) == 0 ? n - n_latest : n;
}

static enum err fill(const json_t *body, bool is_generate, const struct ask *ask, json_t *chat, bool *is_empty,
                     struct err_info *info)
{
    TRY(turn_put(chat, "stream", json_boolean(ask->stream)));
    if (ask->model != NULL) {
        TRY(turn_put(chat, "model", json_stringn(ask->model, ollama_model_len(ask->model))));
    }
    TRY(add_options(body, chat, info));
    TRY(add_format(body, chat, info));
    TRY(add_think(body, chat, info));
    return add_talk(body, is_generate, chat, is_empty, info);
}

enum err ollama_to_chat(const json_t *body, bool is_generate, bool strict, json_t **chat, struct err_info *info)
{
    struct ask ask = {.stream = true};
    bool is_empty = false;
    *chat = NULL;
    TRY(json_in_fields(body, is_generate ? generate_fields : chat_fields,
                       is_generate ? ARRAY_LEN(generate_fields) : ARRAY_LEN(chat_fields), strict, &ask, info));
    json_t *made = json_object();
    enum err err = made != NULL ? fill(body, is_generate, &ask, made, &is_empty, info) : ERR_NOMEM;
    if (err != ERR_OK || is_empty) {
        json_decref(made);
        return err;
    }
    *chat = made;
    return ERR_OK;
}
