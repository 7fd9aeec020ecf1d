/* POST /v1/chat/completions: messages through the model's chat template, and OpenAI's chat shapes. */
#include "fcgi/api/generation.h"
#include "fcgi/api/chat_render.h"
#include "fcgi/api/thoughts.h"
#include "fcgi/api/continuation.h"
#include "fcgi/api/messages.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/api/tool_choice.h"
#include "fcgi/api/tools.h"

#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/chat/chat_format.h"

#include <stdio.h>
#include <string.h>

/* --- the prompt ------------------------------------------------------------------------------------------------- */

/* Adds chat_template_kwargs to the context; never the variables that the server sets. */
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
        if (json_object_get(context, name) != NULL || strcmp(name, "tools") == 0) {
            return err_set(info, ERR_UNSUPPORTED_PARAMETER, "chat_template_kwargs",
                           "chat_template_kwargs.%.64s: expected a variable that the server does not set, found %s",
                           name, json_read_type_name(value));
        }
        if (json_object_set(context, name, value) != 0) {
            return ERR_NOMEM;
        }
    }
    return ERR_OK;
}

/* Does the template read thinking from parts of the content, and from no field of the message? */
static enum err find_thinking_parts(const struct call *c, bool *reads)
{
    static const char *const fields[] = {"reasoning_content", "message.thinking", "message['thinking']", "message.reasoning"};
    struct buf source;
    *reads = engine_chat_mentions(c->engine, "thinking");
    for (size_t i = 0; i < ARRAY_LEN(fields) && *reads; i++) {
        *reads = !engine_chat_mentions(c->engine, fields[i]);
    }
    if (!*reads) {
        return ERR_OK;
    }
    buf_init(&source, 0, MEM_REQUEST);
    enum err err = engine_chat_template(c->engine, &source);
    err = err != ERR_OK ? err : thoughts_are_parts(source.data, source.len, reads);
    buf_fini(&source);
    return err;
}

static enum err make_prompt(struct call *c, struct params *p, bool shows_tools, int32_t **ids, size_t *n,
                            struct err_info *info)
{
    json_t *context = engine_chat_context(c->engine, json_object_get(p->root, "messages"), p->add_generation_prompt);
    json_t *all = json_object_get(p->root, "tools"), *tools = shows_tools ? all : NULL;
    bool is_told = json_array_size(all) > 0 && engine_tool_format(c->engine)->is_told;
    bool ok = context != NULL && json_object_set_new(context, "continue_final_message", json_boolean(p->continues)) == 0;
    ok = ok && (tools == NULL || is_told || json_object_set(context, "tools", tools) == 0);
    bool as_parts = false;
    enum err err = ok ? add_kwargs(p->root, context, info) : ERR_NOMEM;
    err = err != ERR_OK ? err : find_thinking_parts(c, &as_parts);
    err = err != ERR_OK ? err : thoughts_place(json_object_get(p->root, "messages"), as_parts, p->continues);
    err = err != ERR_OK ? err : reasoning_add_effort(p->root, context, info);
    err = err != ERR_OK ? err : reasoning_add_defaults(c, context, info);
    err = err != ERR_OK ? err
          : is_told     ? chat_render_told(c, context, tools, ids, n, info)
                        : chat_render(c, context, ids, n, info);
    err = err != ERR_OK ? err : reasoning_look(c, context, *ids, *n, p);
    err = err != ERR_OK ? err : reasoning_set_budget(c, p, info);
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

/* --- parts of a streamed answer */

/* Where parts of an event go; the first chunk of a token tells the token. */
struct teller {
    struct generation *g;
    struct choice *c;
    const struct engine_event *ev; /* NULL once it is told, and at the end */
    struct buf *out;
};

static void write_call_head(struct choice *c, const struct chat_part *part, struct buf *out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    enum { EACH = 8 }; /* letters of a number: 62^8 are less than 2^48 */
    char id[3 * EACH + 1];
    for (size_t i = 0; i + 1 < sizeof id;) {
        uint64_t drawn = rng_fresh_seed();
        for (size_t k = 0; k < EACH; k++, drawn /= sizeof letters - 1) {
            id[i++] = letters[drawn % (sizeof letters - 1)];
        }
    }
    id[sizeof id - 1] = '\0';
    buf_printf(out, "\"id\":\"call_%s\",\"type\":\"function\",\"function\":{\"name\":", id);
    json_write_string(out, part->text, part->len);
    buf_puts(out, ",\"arguments\":");
    c->n_calls++;
}

static void write_delta(struct choice *c, const struct chat_part *part, struct buf *out)
{
    switch (part->kind) {
    case CHAT_TEXT:
        buf_puts(out, "\"content\":");
        json_write_string(out, part->text, part->len);
        break;
    case CHAT_REASONING: /* both names are in use */
        buf_puts(out, "\"reasoning_content\":");
        json_write_string(out, part->text, part->len);
        buf_puts(out, ",\"reasoning\":");
        json_write_string(out, part->text, part->len);
        break;
    case CHAT_CALL_BEGIN:
        buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", part->i_call);
        write_call_head(c, part, out);
        buf_puts(out, "\"\"}}]");
        break;
    case CHAT_CALL_ARGUMENTS:
        buf_printf(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", part->i_call);
        json_write_string(out, part->text, part->len);
        buf_puts(out, "}}]");
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT: /* what is missing shows in the arguments, which clients parse */
        break;
    }
}

/* part NULL: the token alone. */
static void tell_part(struct teller *t, const struct chat_part *part)
{
    const struct params *p = t->g->params;
    bool has_token = t->ev != NULL && t->ev->kind == SCHED_TOKEN;
    chunk(t->g, t->c, "{", t->out);
    if (part != NULL) {
        write_delta(t->c, part, t->out);
    }
    buf_puts(t->out, "},\"logprobs\":");
    if (has_token && p->want_logprobs) {
        buf_puts(t->out, "{\"content\":[");
        write_logprobs(t->g, t->ev, t->out);
        buf_puts(t->out, "],\"refusal\":null}");
    } else {
        buf_puts(t->out, "null");
    }
    if (has_token && p->return_token_ids) {
        buf_printf(t->out, ",\"token_ids\":[%d]", t->ev->token.id);
    }
    buf_puts(t->out, ",\"finish_reason\":null}");
    generation_chunk_close(t->g, t->out);
    t->ev = NULL;
}

static void stream_part(void *arg, const struct chat_part *part)
{
    if (part->kind != CHAT_CALL_END && part->kind != CHAT_CALL_CUT) {
        tell_part(arg, part);
    }
}

static void chat_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    struct teller t = {g, c, ev, out};
    bool tells_tokens = ev->kind == SCHED_TOKEN && (g->params->want_logprobs || g->params->return_token_ids);
    chat_split_feed(&c->split, ev->text, ev->text_len, stream_part, &t);
    generation_count_reasoning(c, ev);
    if (t.ev != NULL && tells_tokens) { /* its text is part of a character or a mark, or held back */
        tell_part(&t, NULL);
    }
}

/* A call counts even where the answer was cut off in it or behind it; the reason is the cut, then. */
static const char *finish_reason(const struct choice *c)
{
    return c->n_calls > 0 && c->end.finish != SCHED_FINISH_LENGTH ? "tool_calls" : generation_finish_reason(c);
}

static void chat_finish(struct generation *g, struct choice *c, struct buf *out)
{
    struct teller t = {g, c, NULL, out};
    chat_split_finish(&c->split, stream_part, &t);
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
    chunk(g, c, "{},\"logprobs\":null", out);
    buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
    generation_chunk_end(g, c, out);
}

/* --- whole answers */

static void keep_part(void *arg, const struct chat_part *part)
{
    struct choice *c = arg;
    switch (part->kind) {
    case CHAT_TEXT:
        buf_append(&c->text, part->text, part->len);
        break;
    case CHAT_REASONING:
        buf_append(&c->reasoning, part->text, part->len);
        break;
    case CHAT_CALL_BEGIN:
        buf_puts(&c->calls, part->i_call == 0 ? "{" : ",{");
        write_call_head(c, part, &c->calls);
        break;
    case CHAT_CALL_ARGUMENTS:
        buf_append(&c->arguments, part->text, part->len);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
        json_write_buf(&c->calls, &c->arguments);
        buf_puts(&c->calls, "}}");
        buf_reset(&c->arguments);
        break;
    }
}

static void chat_gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    chat_split_feed(&c->split, ev->text, ev->text_len, keep_part, c);
    generation_count_reasoning(c, ev);
    if (g->params->want_logprobs && ev->kind == SCHED_TOKEN) {
        buf_puts(&c->parts[0], c->parts[0].len == 0 ? "" : ",");
        write_logprobs(g, ev, &c->parts[0]);
    }
}

static void write_message(struct choice *c, struct buf *out)
{
    buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (c->text.len == 0 && c->n_calls > 0) {
        buf_puts(out, "null");
    } else {
        json_write_buf(out, &c->text);
    }
    if (c->reasoning.len > 0) {
        buf_puts(out, ",\"reasoning_content\":");
        json_write_buf(out, &c->reasoning);
        buf_puts(out, ",\"reasoning\":");
        json_write_buf(out, &c->reasoning);
    }
    if (c->n_calls > 0) {
        buf_puts(out, ",\"tool_calls\":[");
        buf_add(out, &c->calls);
        buf_putc(out, ']');
    }
    buf_puts(out, ",\"refusal\":null,\"annotations\":[]}");
}

static void chat_choice(struct generation *g, struct choice *c, struct buf *out)
{
    chat_split_finish(&c->split, keep_part, c);
    out->err = out->err != ERR_OK ? out->err : chat_split_ok(&c->split);
    buf_printf(out, "{\"index\":%d,\"message\":", c->index);
    write_message(c, out);
    buf_puts(out, ",\"logprobs\":");
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
    buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
}

static void chat_progress(struct generation *g, struct choice *c, struct buf *out)
{
    generation_progress(g, c, "\"delta\":{},\"logprobs\":null", out);
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
    .done = generation_done,
    .whole = generation_whole,
    .progress = chat_progress,
};

const struct shape *api_chat_shape(void) { return &chat_shape; }

enum err chat_prepare(struct call *c, struct params *p, bool *shows_tools, int32_t **ids, size_t *n,
                      struct err_info *info)
{
    TRY(params_read(p, c->json, true, c->server->conf->strict_api, c->engine, &c->arena, info));
    TRY(generation_check_model(c, p->model, info));
    TRY(engine_check_generates(c->engine, info));
    TRY(messages_check(c->json, info));
    p->split.splits_reasoning = params_splits_reasoning(c->json, c->server->conf->reasoning_format);
    bool as_openai = c->server->conf->strict_api && !c->reply.is_anthropic && !c->reply.is_ollama;
    TRY(tools_check(c->json, as_openai, shows_tools, info));
    TRY(continuation_read(c, p, info));
    return make_prompt(c, p, *shows_tools, ids, n, info);
}

void chat_answer(struct call *c, struct params *p, bool shows_tools, const int32_t *ids, size_t n,
                 const struct shape *shape, void *arg)
{
    struct err_info info = {0};
    enum err err = ERR_OK;
    bool is_forced = false, binds = shows_tools && tool_choice_binds(p->root, &is_forced);
    const struct chat_format *format = engine_tool_format(c->engine);
    p->split.format = format;
    p->split.reads_calls = shows_tools;
    bool shows_marks = shows_tools || format->body == CHAT_BODY_CHANNELS || p->thinking != CHAT_THINKS_NOT;
    p->gen.show_special = format->has_tokens && shows_marks;
    if (binds && (is_forced || !p->constraint.is_of_response)) { /* a call is no answer: the form asked of that does not matter */
        p->split.is_forced = is_forced;
        err = tool_choice_grammar(p, c->engine, &info);
    } else if (params_has_grammar(p)) { /* and nothing else: no calls, and no thinking but in front of it */
        p->split.reads_calls = false;
        if (p->thinking == CHAT_THINKS_NOT) {
            p->split = (struct chat_split_config){.splits_reasoning = false};
            p->gen.show_special = false;
        }
        err = params_grammar(p, c->engine, &info);
    }
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
        return;
    }
    json_t *tools = shows_tools ? json_incref(json_object_get(p->root, "tools")) : NULL;
    p->split.tools = tools;
    p->gen.reads_calls = p->split.reads_calls;
    p->root = NULL;
    route_drop_json(c); /* before the answer, which may take minutes */
    generation_run(c, p, shape, arg, (const int32_t *const[]){ids}, &n, 1);
    json_decref(tools);
    engine_grammar_free(&p->gen.grammar);
}

void api_chat(struct call *c)
{
    struct err_info info = {0};
    struct params p = {0};
    bool shows_tools = false;
    int32_t *ids = NULL;
    size_t n = 0;
    enum err err = route_read_json(c, &info);
    err = err != ERR_OK ? err : chat_prepare(c, &p, &shows_tools, &ids, &n, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        chat_answer(c, &p, shows_tools, ids, n, &chat_shape, NULL);
    }
}
