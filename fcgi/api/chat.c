/* POST /v1/chat/completions: messages through the model's chat template, and OpenAI's chat shapes. */
#include "fcgi/api/generation.h"
#include "fcgi/api/messages.h"
#include "fcgi/api/tools.h"

#include "engine/base/json_write.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

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

static enum err make_prompt(struct call *c, const struct params *p, bool shows_tools, int32_t **ids, size_t *n,
                            struct err_info *info)
{
    json_t *context = engine_chat_context(c->engine, json_object_get(p->root, "messages"), p->add_generation_prompt);
    bool ok =
        context != NULL && (!shows_tools || json_object_set(context, "tools", json_object_get(p->root, "tools")) == 0);
    enum err err = ok ? add_kwargs(p->root, context, info) : ERR_NOMEM;
    if (err == ERR_OK) {
        err = engine_chat(c->engine, context, fastcgi_has_left(c->reply.request), &c->arena, ids, n, info);
    }
    json_decref(context);
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
    write_logprob(g, ev->token.id, ev->token.logprob, out);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < ev->token.n_top; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        write_logprob(g, ev->token.top[i].id, ev->token.top[i].logprob, out);
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
    bool has_logprobs = g->params->want_logprobs && ev->kind == SCHED_TOKEN;
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
    if (g->params->return_token_ids && ev->kind == SCHED_TOKEN) {
        buf_printf(out, ",\"token_ids\":[%d]", ev->token.id);
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
    if (g->params->want_logprobs && ev->kind == SCHED_TOKEN) {
        buf_puts(&c->parts[0], c->parts[0].len == 0 ? "" : ",");
        write_logprobs(g, ev, &c->parts[0]);
    }
}

static void chat_choice(struct generation *g, struct choice *c, struct buf *out)
{
    buf_printf(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    json_write_buf(out, &c->text);
    buf_puts(out, ",\"refusal\":null},\"logprobs\":");
    if (g->params->want_logprobs) {
        buf_puts(out, "{\"content\":[");
        buf_add(out, &c->parts[0]);
        buf_puts(out, "],\"refusal\":null}");
    } else {
        buf_puts(out, "null");
    }
    if (g->params->return_token_ids) {
        buf_puts(out, ",\"token_ids\":[");
        buf_add(out, &c->ids);
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
    bool shows_tools = false;
    int32_t *ids = NULL;
    size_t n = 0;
    enum err err = route_read_json(c, &info);
    err =
        err != ERR_OK ? err : params_read(&p, c->json, true, c->server->conf->strict_api, c->engine, &c->arena, &info);
    err = err != ERR_OK ? err : generation_check_model(c->server, p.model, &info);
    err = err != ERR_OK ? err : engine_check_generates(c->engine, &info);
    err = err != ERR_OK ? err : messages_check(c->json, &info);
    err = err != ERR_OK ? err : tools_check(c->json, &shows_tools, &info);
    err = err != ERR_OK ? err : make_prompt(c, &p, shows_tools, &ids, &n, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        p.root = NULL;
        route_drop_json(c); /* before the answer, which may take minutes */
        const int32_t *const prompts[1] = {ids};
        generation_run(c, &p, &chat_shape, prompts, &n, 1);
    }
}
