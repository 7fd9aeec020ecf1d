/* POST /v1/chat/completions: messages through the model's chat template, and OpenAI's chat shapes. */
#include "fcgi/api/generation.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_MESSAGES = 4096 };

/* --- messages --------------------------------------------------------------------------------------------------- */

/* field: of message i, "" for the message itself. */
static enum err bad_message(size_t i, const char *field, enum err code, const char *expected, const json_t *found,
                            struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    snprintf(where, sizeof where, "messages[%zu]%s%s", i, field[0] != '\0' ? "." : "", field);
    return json_in_refuse(code, where, expected, found, info);
}

/* The string of part k; NULL with the error set. */
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

/* Joins the text parts of a content array; other kinds of parts are refused. NULL with the error set. */
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

/* A tool's result answers a call: an assistant's message is in front of it, or another result. Whether that message has
 * tool_calls is not looked at, as clients may read calls out of its text. */
static enum err check_order(const json_t *messages, size_t i, struct err_info *info)
{
    const json_t *before = i == 0 ? NULL : json_object_get(json_array_get(messages, i - 1), "role");
    const json_t *role = json_object_get(json_array_get(messages, i), "role");
    if (!is_tool(role) || is_tool(before) || json_read_is(before, "assistant")) {
        return ERR_OK;
    }
    char room[80];
    snprintf(room, sizeof room, "%s only behind a message of the assistant, or of another tool",
             json_string_value(role));
    return bad_message(i, "role", ERR_INVALID_VALUE, room, before, info);
}

static enum err check_message(json_t *message, size_t i, struct err_info *info)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    if (!json_is_object(message)) {
        return bad_message(i, "", ERR_INVALID_TYPE, "an object", message, info);
    }
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
    bool may_lack = json_read_is(role, "assistant"); /* tool calls only */
    if (json_read_is(role, "developer") &&           /* templates know it as system */
        json_object_set_new(message, "role", json_string("system")) != 0) {
        return ERR_NOMEM;
    }
    json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) {
        json_t *joined = join_parts(content, i, info);
        if (joined == NULL) {
            return info->code != ERR_OK ? info->code : ERR_NOMEM;
        }
        return json_object_set_new(message, "content", joined) == 0 ? ERR_OK : ERR_NOMEM;
    }
    bool lacks = content == NULL || json_is_null(content);
    if (!json_is_string(content) && !(may_lack && lacks)) {
        return bad_message(i, "content", lacks ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE,
                           "a string or an array of text parts", content, info);
    }
    return ERR_OK;
}

static enum err check_messages(json_t *root, struct err_info *info)
{
    json_t *messages = json_object_get(root, "messages");
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

/* --- the prompt ------------------------------------------------------------------------------------------------- */

/* Adds scalars of chat_template_kwargs to the context; never the variables the server sets. */
static enum err add_kwargs(const json_t *root, json_t *context, struct err_info *info)
{
    const json_t *kwargs = json_read_get(root, "chat_template_kwargs");
    if (kwargs != NULL && !json_is_object(kwargs)) {
        return err_set(info, ERR_INVALID_TYPE, "chat_template_kwargs",
                       "chat_template_kwargs: expected an object, found %s", json_read_type_name(kwargs));
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)kwargs, name, value)
    {
        if (json_is_object(value) || json_is_array(value) || json_object_get(context, name) != NULL) {
            return err_set(info, ERR_UNSUPPORTED_PARAMETER, "chat_template_kwargs",
                           "chat_template_kwargs.%.64s: expected a string, number or boolean that the server does not "
                           "set, found %s",
                           name, json_read_type_name(value));
        }
        if (json_object_set(context, name, value) != 0) {
            return ERR_NOMEM;
        }
    }
    return ERR_OK;
}

static enum err add_tools(const json_t *root, json_t *context, struct err_info *info)
{
    const json_t *tools = json_read_get(root, "tools"), *choice = json_read_get(root, "tool_choice");
    if (tools != NULL && !json_is_array(tools)) {
        return err_set(info, ERR_INVALID_TYPE, "tools", "tools: expected an array, found %s",
                       json_read_type_name(tools));
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (!json_is_object(json_array_get(tools, i))) {
            return err_set(info, ERR_INVALID_TYPE, "tools", "tools[%zu]: expected an object, found %s", i,
                           json_read_type_name(json_array_get(tools, i)));
        }
    }
    bool is_off = json_read_is(choice, "none");
    if (choice != NULL && !is_off && !json_read_is(choice, "auto")) {
        return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "tool_choice", "\"none\" or \"auto\"", choice, info);
    }
    bool wanted = json_array_size(tools) > 0 && !is_off;
    return wanted && json_object_set(context, "tools", (json_t *)tools) != 0 ? ERR_NOMEM : ERR_OK;
}

static enum err make_context(const struct call *c, const struct params *p, json_t *context, struct err_info *info)
{
    const struct engine_model_info *m = engine_model(c->engine);
    bool ok = json_object_set(context, "messages", json_object_get(p->root, "messages")) == 0 &&
              json_object_set_new(context, "add_generation_prompt", json_boolean(p->add_generation_prompt)) == 0 &&
              json_object_set_new(context, "bos_token", json_string(m->bos_text)) == 0 &&
              json_object_set_new(context, "eos_token", json_string(m->eos_text)) == 0;
    if (!ok) {
        return ERR_NOMEM;
    }
    TRY(add_tools(p->root, context, info));
    return add_kwargs(p->root, context, info);
}

_Static_assert(sizeof(struct chat_span) == sizeof(struct engine_span), "spans pass through");

/* Renders and tokenises; what users wrote is never parsed for special tokens. */
static enum err make_prompt(const struct call *c, const struct params *p, int32_t **ids, size_t *n,
                            struct err_info *info)
{
    const struct engine_model_info *m = engine_model(c->engine);
    if (c->server->chat_template == NULL) {
        return err_set(info, c->server->template_err, NULL, "%s", c->server->template_text);
    }
    json_t *context = json_object();
    struct chat_output text = {0};
    enum err err = context == NULL ? ERR_NOMEM : make_context(c, p, context, info);
    if (err == ERR_OK) {
        err = chat_template_render(c->server->chat_template, context, clock_unix_seconds(), &text, info);
    }
    json_decref(context);
    if (err == ERR_OK) {
        size_t bos_len = strlen(m->bos_text);
        bool has_bos = bos_len > 0 && text.len >= bos_len && memcmp(text.text, m->bos_text, bos_len) == 0;
        err = engine_tokenize(c->engine, text.text, text.len, !has_bos, true,
                              (const struct engine_span *)(const void *)text.user, text.n_user, SIZE_MAX, ids, n);
    }
    chat_output_fini(&text);
    return err;
}

/* --- shapes ----------------------------------------------------------------------------------------------------- */

static void write_logprob(struct generation *g, int32_t id, float logprob, struct buf *out)
{
    buf_puts(out, "{\"token\":");
    generation_write_token(g, id, out);
    buf_puts(out, ",\"logprob\":");
    json_write_float(out, logprob);
    buf_puts(out, ",\"bytes\":");
    generation_write_bytes(g, id, out);
}

/* The entry of a token in logprobs.content. */
static void write_logprobs(struct generation *g, const struct engine_event *ev, struct buf *out)
{
    write_logprob(g, ev->id, ev->logprob, out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < ev->n_top; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        write_logprob(g, ev->top[i].id, ev->top[i].logprob, out);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

static void chunk(struct generation *g, struct choice *c, const char *delta, struct buf *out)
{
    generation_chunk_open(g, out);
    buf_printf(out, "{\"index\":%d,\"delta\":%s", c->index, delta);
}

static void chat_open(struct generation *g, struct choice *c, struct buf *out)
{
    chunk(g, c, "{\"role\":\"assistant\",\"content\":null},\"logprobs\":null,\"finish_reason\":null}", out);
    generation_chunk_close(g, out);
}

static void chat_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    bool has_logprobs = g->params->want_logprobs && ev->kind == ENGINE_TOKEN;
    if (ev->text_len == 0 && !has_logprobs && !g->params->return_token_ids) {
        return; /* part of a character: it comes with the next token */
    }
    chunk(g, c, ev->text_len > 0 ? "{\"content\":" : "{", out);
    if (ev->text_len > 0) {
        json_write_string(out, ev->text, ev->text_len);
    }
    buf_puts(out, "},\"logprobs\":");
    if (has_logprobs) {
        buf_puts(out, "{\"content\":[");
        write_logprobs(g, ev, out);
        buf_puts(out, "],\"refusal\":null}");
    } else {
        buf_puts(out, "null");
    }
    if (g->params->return_token_ids && ev->kind == ENGINE_TOKEN) {
        buf_printf(out, ",\"token_ids\":[%d]", ev->id);
    }
    buf_puts(out, ",\"finish_reason\":null}");
    generation_chunk_close(g, out);
}

static void chat_finish(struct generation *g, struct choice *c, struct buf *out)
{
    chunk(g, c, "{},\"logprobs\":null", out);
    buf_printf(out, ",\"finish_reason\":\"%s\"}", generation_finish_reason(c));
    generation_chunk_close(g, out);
}

static void chat_gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    buf_append(&c->text, ev->text, ev->text_len);
    if (g->params->want_logprobs && ev->kind == ENGINE_TOKEN) {
        buf_puts(&c->parts[0], c->parts[0].len == 0 ? "" : ",");
        write_logprobs(g, ev, &c->parts[0]);
    }
}

static void append_buf(struct buf *out, const struct buf *b)
{
    buf_append(out, b->data != NULL ? b->data : "", b->len);
}

static void chat_choice(struct generation *g, struct choice *c, struct buf *out)
{
    buf_printf(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    json_write_string(out, c->text.data != NULL ? c->text.data : "", c->text.len);
    buf_puts(out, ",\"refusal\":null},\"logprobs\":");
    if (g->params->want_logprobs) {
        buf_puts(out, "{\"content\":[");
        append_buf(out, &c->parts[0]);
        buf_puts(out, "],\"refusal\":null}");
    } else {
        buf_puts(out, "null");
    }
    if (g->params->return_token_ids) {
        buf_puts(out, ",\"token_ids\":[");
        append_buf(out, &c->ids);
        buf_putc(out, ']');
    }
    buf_printf(out, ",\"finish_reason\":\"%s\"}", generation_finish_reason(c));
}

static const struct shape chat_shape = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_field = "messages",
    .open = chat_open,
    .token = chat_token,
    .finish = chat_finish,
    .gather = chat_gather,
    .choice = chat_choice,
};

void api_chat(struct call *c)
{
    struct err_info info = {0};
    struct params p = {0};
    json_t *root = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    enum err err = json_in_parse(c->body.data, c->body.len, &root, &info);
    err = err != ERR_OK ? err : params_read(&p, root, true, c->server->conf->strict_api, c->engine, &info);
    err = err != ERR_OK ? err : generation_check_model(c->server, p.model, &info);
    err = err != ERR_OK ? err : engine_check_generates(c->engine, &info);
    err = err != ERR_OK ? err : check_messages(root, &info);
    err = err != ERR_OK ? err : make_prompt(c, &p, &ids, &n, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        const int32_t *const prompts[1] = {ids};
        generation_run(c, &p, &chat_shape, prompts, &n, 1);
    }
    mem_free(ids);
    params_fini(&p);
    json_decref(root);
}
