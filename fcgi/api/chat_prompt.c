/* Chats of all APIs: renders their messages through the model's chat template and builds the answer's constraint. */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_format.h"
#include "fcgi/api/chat_render.h"
#include "fcgi/api/continuation.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/messages.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/api/thoughts.h"
#include "fcgi/api/tool_choice.h"
#include "fcgi/api/tools.h"

#include <string.h>

/* Adds chat_template_kwargs to the context, without the variables that the server sets. */
static enum err add_kwargs(const json_t *kwargs, json_t *context, struct err_info *info)
{
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

static enum err fill_context(struct call *c, const struct params *p, json_t *context, struct err_info *info)
{
    bool as_parts;
    TRY(json_object_set_new(context, "continue_final_message", json_boolean(p->continues)) == 0 ? ERR_OK : ERR_NOMEM);
    if (p->tools.is_shown && !engine_tool_format(c->engine)->lists_tools) {
        TRY(json_object_set(context, "tools", p->tools.list) == 0 ? ERR_OK : ERR_NOMEM);
    }
    TRY(add_kwargs(p->kwargs, context, info));
    TRY(find_thinking_parts(c, &as_parts));
    TRY(thoughts_place(p->messages, as_parts, p->continues));
    TRY(reasoning_add_effort(p->effort, context));
    return reasoning_add_defaults(c, context, info);
}

static enum err make_prompt(struct call *c, struct params *p, struct err_info *info)
{
    json_t *context = engine_chat_context(c->engine, p->messages, p->add_generation_prompt);
    enum err err = context != NULL ? fill_context(c, p, context, info) : ERR_NOMEM;
    err = err != ERR_OK ? err : chat_render(c, context, p, info);
    err = err != ERR_OK ? err : reasoning_look(c, context, p);
    err = err != ERR_OK ? err : reasoning_set_budget(c, p, info);
    json_decref(context);
    return err;
}

enum err chat_prepare(struct call *c, struct params *p, struct err_info *info)
{
    const struct conf *conf = c->server->conf;
    const char *format = p->reasoning_format != NULL ? p->reasoning_format : conf->reasoning_format;
    TRY(generation_check_model(c, p->model, info));
    TRY(engine_check_generates(c->engine, info));
    TRY(messages_check(p->messages, info));
    p->split.splits_reasoning = format == NULL || strcmp(format, "none") != 0;
    TRY(tools_check(&p->tools, conf->strict_api && c->reply.dialect->checks_as_openai, info));
    TRY(continuation_read(c, p, info));
    return make_prompt(c, p, info);
}

enum err chat_read(struct call *c, struct params *p, struct err_info *info)
{
    params_init(p, c);
    TRY(call_read_json(c, info));
    TRY(params_read(p, c, &fields_of_chat, c->json, info));
    p->messages = json_incref(json_object_get(c->json, "messages"));
    TRY(tools_read(c->json, &p->tools, info));
    return chat_prepare(c, p, info);
}

void chat_answer(struct call *c, struct params *p, const struct shape *shape, void *arg)
{
    struct err_info info = {0};
    enum err err = ERR_OK;
    bool is_forced = false, binds = p->tools.is_shown && tool_choice_binds(&p->tools, &is_forced);
    const struct chat_format *format = engine_tool_format(c->engine);
    p->split.format = format;
    p->split.reads_calls = p->tools.is_shown;
    bool shows_marks = p->tools.is_shown || format->body == CHAT_BODY_CHANNELS || p->thinking != CHAT_THINKS_NOT;
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
    p->split.tools = p->tools.is_shown ? p->tools.list : NULL;
    p->gen.reads_calls = p->split.reads_calls;
    json_decref(p->messages); /* before the answer, which can take minutes */
    p->messages = NULL;
    call_drop_json(c);
    generation_run(c, p, shape, arg, &(struct prompts){.ids = &p->prompt, .n_ids = &p->n_prompt, .n = 1});
}
