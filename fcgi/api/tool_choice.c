#include "fcgi/api/tool_choice.h"
#include "fcgi/wire/http_status.h"

#include "engine/base/mem.h"
#include "engine/chat/chat_forced.h"

#include <stdio.h>

static const json_t *function_at(const struct tools *t, size_t i)
{
    return json_object_get(json_array_get(t->list, i), "function");
}

static bool is_strict(const json_t *function) { return json_is_true(json_object_get(function, "strict")); }

bool tool_choice_binds(const struct tools *t, bool *is_forced)
{
    size_t n = json_array_size(t->list);
    bool binds = t->is_separate || t->allowed != NULL;
    for (size_t i = 0; i < n; i++) {
        binds = binds || is_strict(function_at(t, i));
    }
    *is_forced = n > 0 && t->mode == TOOLS_REQUIRED;
    return n > 0 && t->mode != TOOLS_NONE && (binds || *is_forced);
}

bool tool_choice_is_parallel(const struct tools *t, const struct chat_format *format)
{
    return t->is_parallel || (!t->is_separate && !format->lists_tools);
}

/* The tools that may be called, and their indexes in the request. */
struct callable {
    struct chat_forced_tool *tools;
    size_t *places, n;
};

static enum err list_callable(const struct tools *t, bool is_forced, struct callable *out)
{
    size_t n = json_array_size(t->list);
    out->tools = mem_zalloc_array(n, sizeof *out->tools, MEM_REQUEST);
    out->places = mem_zalloc_array(n, sizeof *out->places, MEM_REQUEST);
    if (out->tools == NULL || out->places == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *f = function_at(t, i), *name = json_object_get(f, "name");
        if (t->allowed == NULL || tools_among(t->allowed, name)) {
            out->places[out->n] = i;
            out->tools[out->n++] = (struct chat_forced_tool){.name = json_string_value(name),
                                                             .parameters = json_read_get(f, "parameters"),
                                                             .is_loose = !is_forced && !is_strict(f)};
        }
    }
    return ERR_OK;
}

static enum err make(struct params *p, struct engine *e, const struct callable *c, bool is_forced,
                     struct err_info *info)
{
    char inner[ERR_WHERE_BYTES], at[ERR_WHERE_BYTES];
    size_t i_failed;
    const struct chat_forced forced = {
        .format = engine_tool_format(e),
        .tools = c->tools,
        .n_tools = c->n,
        .is_single = p->tools.is_named || !tool_choice_is_parallel(&p->tools, engine_tool_format(e)),
        .may_speak = !is_forced,
        .thinking = p->split.starts_in_reasoning ? CHAT_IS_THINKING : p->thinking,
    };
    enum err err = engine_grammar_calls(e, &forced, &p->gen.grammar, &i_failed, info);
    if (err == ERR_INVALID_SCHEMA) {
        snprintf(inner, sizeof inner, "%s", info->where);
        tools_place(&p->tools, c->places[i_failed], true, at);
        const json_t *other = json_object_get(p->tools.names, c->tools[i_failed].name);
        bool is_made = json_object_get(other, "custom") != NULL; /* of the schema, the client has one text */
        snprintf(info->where, sizeof info->where, "%.46s%.80s", at, is_made ? "" : inner);
    } else if (http_status(err) == 400) {
        snprintf(info->where, sizeof info->where, "tools");
    }
    return err;
}

enum err tool_choice_grammar(struct params *p, struct engine *e, struct err_info *info)
{
    struct callable c = {0};
    bool is_forced;
    if (!tool_choice_binds(&p->tools, &is_forced)) {
        return ERR_OK;
    }
    if (params_has_text_grammar(p)) {
        return err_set(info, ERR_INVALID_VALUE, "tool_choice",
                       "tool_choice: expected no grammar with enforced calls, found %s", p->constraint.where);
    }
    enum err err = list_callable(&p->tools, is_forced, &c);
    err = err != ERR_OK ? err : make(p, e, &c, is_forced, info);
    mem_free(c.tools);
    mem_free(c.places);
    return err;
}
