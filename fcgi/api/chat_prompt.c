/* Chats of all APIs: renders their messages through the model's chat template and builds the answer's constraint. */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/chat/chat_format.h"
#include "fcgi/api/chat_render.h"
#include "fcgi/api/continuation.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/messages.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/api/thoughts.h"
#include "fcgi/api/tool_choice.h"
#include "fcgi/api/tools.h"

#include <stdio.h>
#include <string.h>

/* Adds chat_template_kwargs to the context, without the variables that the server sets. */
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

/* Checks whether the template reads thinking from parts of the content only, not from a field of the message. */
static enum err find_thinking_parts(const struct call *c, bool *reads)
{
    static const char *const fields[] = {"reasoning_content", "message.thinking", "message['thinking']",
                                         "message.reasoning"};
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
    bool ok =
        context != NULL && json_object_set_new(context, "continue_final_message", json_boolean(p->continues)) == 0;
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

enum err chat_prepare(struct call *c, struct params *p, bool *shows_tools, int32_t **ids, size_t *n,
                      struct err_info *info)
{
    TRY(params_read(p, c->json, true, c->server->conf->strict_api, c->engine, &c->arena, info));
    TRY(generation_check_model(c, p->model, info));
    TRY(engine_check_generates(c->engine, info));
    TRY(messages_check(c->json, info));
    p->split.splits_reasoning = params_splits_reasoning(c->json, c->server->conf->reasoning_format);
    bool as_openai = c->server->conf->strict_api && c->reply.dialect->checks_as_openai;
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
    if (binds && (is_forced ||
                  !p->constraint.is_of_response)) { /* a call is not an answer, so the answer's form does not apply */
        p->split.is_forced = is_forced;
        err = tool_choice_grammar(p, c->engine, &info);
    } else if (params_has_grammar(p)) { /* and nothing else: no calls, and thinking only before it */
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
    call_drop_json(c); /* before the answer, which can take minutes */
    generation_run(c, p, shape, arg, (const int32_t *const[]){ids}, &n, 1);
    json_decref(tools);
    engine_grammar_free(&p->gen.grammar);
}
