/* Other forms are tried only if the template fails on the conversation as it was sent. */
#include "fcgi/api/chat_render.h"

#include "engine/chat/chat_template.h"
#include "fcgi/api/messages_fold.h"
#include "fcgi/api/thoughts.h"
#include "fcgi/api/tools.h"
#include "fcgi/api/tools_prompt.h"

/* State while a conversation is rendered. */
struct rendering {
    struct call *call;
    json_t *context;
    struct params *params;
    struct err_info first; /* the error to report; code ERR_OK: no form has failed yet */
    bool is_raised;        /* a form failed by raise_exception .. */
    bool is_broken;        /* .. or otherwise */
};

/* Renders the context unchanged. */
static enum err attempt(struct rendering *r)
{
    struct err_info info = {0};
    struct call *c = r->call;
    enum err err = engine_chat(c->engine, r->context, &c->arena, &r->params->prompt, &r->params->n_prompt, &info);
    if (err == ERR_TEMPLATE) {
        chat_template_keep_error(&r->first, &info);
        r->is_raised = r->is_raised || chat_template_raised(&info);
        r->is_broken = r->is_broken || !chat_template_raised(&info);
    } else if (err != ERR_OK) {
        r->first = info;
    }
    return err;
}

/* Renders with arguments as objects, which most templates expect; if the template fails, as strings. */
static enum err attempt_arguments(struct rendering *r)
{
    json_t *undo = json_array();
    enum err err = undo != NULL ? tools_open_arguments(json_object_get(r->context, "messages"), undo) : ERR_NOMEM;
    err = err != ERR_OK ? err : attempt(r);
    if (err == ERR_TEMPLATE && json_array_size(undo) > 0) {
        err = tools_close_arguments(undo);
        err = err != ERR_OK ? err : attempt(r);
    }
    json_decref(undo);
    return err;
}

/* Renders with these members of the context. NULL: keep the context's. */
static enum err attempt_with(struct rendering *r, json_t *messages, json_t *tools)
{
    bool ok = messages == NULL || json_object_set(r->context, "messages", messages) == 0;
    ok = ok && (tools == NULL || json_object_set(r->context, "tools", tools) == 0);
    return ok ? attempt_arguments(r) : ERR_NOMEM;
}

/* Renders with these messages; if that fails, with completed tools. */
static enum err attempt_tools(struct rendering *r, json_t *messages)
{
    json_t *tools = json_incref(json_object_get(r->context, "tools")), *filled = NULL;
    enum err err = attempt_with(r, messages, NULL);
    if (err == ERR_TEMPLATE && r->is_broken) {
        err = tools_fill(tools, &filled);
        if (err == ERR_OK) {
            err = filled != NULL ? attempt_with(r, NULL, filled) : ERR_TEMPLATE;
        }
        if (err == ERR_TEMPLATE && filled != NULL && json_object_set(r->context, "tools", tools) != 0) {
            err = ERR_NOMEM;
        }
        json_decref(filled);
    }
    json_decref(tools);
    return err;
}

static enum err attempt_all(struct rendering *r)
{
    json_t *messages = json_incref(json_object_get(r->context, "messages")), *joined = NULL;
    enum err err = attempt_tools(r, NULL);
    if (err == ERR_TEMPLATE && r->is_raised) {
        err = thoughts_join(messages, &joined);
        if (err == ERR_OK) {
            err = joined != NULL ? attempt_tools(r, joined) : ERR_TEMPLATE;
        }
        if (joined != NULL) {
            json_decref(messages);
            messages = joined;
        }
    }
    for (int no_system = 0; no_system < 2 && err == ERR_TEMPLATE && r->is_raised; no_system++) {
        json_t *folded = NULL;
        err = messages_fold(messages, no_system == 1, &folded);
        if (err == ERR_OK) {
            err = folded != NULL ? attempt_tools(r, folded) : ERR_TEMPLATE;
        }
        json_decref(folded);
    }
    json_decref(messages);
    return err;
}

/* Renders for a template without support for tools. */
static enum err attempt_listed(struct rendering *r)
{
    static const unsigned ways[] = {TOOLS_PROMPT_KEEPS_CALLS, TOOLS_PROMPT_KEEPS_CALLS | TOOLS_PROMPT_NO_SYSTEM, 0,
                                    TOOLS_PROMPT_NO_SYSTEM};
    const struct tools *tools = &r->params->tools;
    json_t *messages = json_incref(json_object_get(r->context, "messages")), *listed;
    enum err err = ERR_TEMPLATE;
    for (size_t i = engine_chat_mentions(r->call->engine, "tool_calls") ? 0 : 2;
         err == ERR_TEMPLATE && i < ARRAY_LEN(ways); i++) {
        err = tools_prompt(messages, tools->is_shown ? tools->list : NULL, ways[i], &listed);
        if (err == ERR_OK) {
            err = json_object_set_new(r->context, "messages", listed) == 0 ? attempt_all(r) : ERR_NOMEM;
        }
    }
    json_decref(messages);
    return err;
}

enum err chat_render(struct call *c, json_t *context, struct params *p, struct err_info *info)
{
    struct rendering r = {.call = c, .context = context, .params = p};
    bool lists_tools = json_array_size(p->tools.list) > 0 && engine_tool_format(c->engine)->lists_tools;
    enum err err = lists_tools ? attempt_listed(&r) : attempt_all(&r);
    if (err != ERR_OK && err == r.first.code) {
        *info = r.first;
    }
    return err;
}
