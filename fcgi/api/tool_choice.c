/* The choice is read from the request on use: tools_check has checked its form. */
#include "fcgi/api/tool_choice.h"
#include "fcgi/wire/http_status.h"

#include "engine/base/mem.h"
#include "engine/chat/chat_forced.h"

#include <stdio.h>
#include <string.h>

/* Returns the function that a choice, or an entry of allowed tools, names. NULL: none. */
static const json_t *named(const json_t *choice)
{
    return json_object_get(json_object_get(choice, "function"), "name");
}

static const json_t *allowed(const json_t *choice) { return json_object_get(choice, "allowed_tools"); }

static bool is_required(const json_t *choice)
{
    return json_read_is(choice, "required") || named(choice) != NULL ||
           json_read_is(json_object_get(allowed(choice), "mode"), "required");
}

static const json_t *function_at(const json_t *root, size_t i)
{
    return json_object_get(json_array_get(json_object_get(root, "tools"), i), "function");
}

static bool is_strict(const json_t *function) { return json_is_true(json_object_get(function, "strict")); }

bool tool_choice_binds(const json_t *root, bool *is_forced)
{
    const json_t *choice = json_read_get(root, "tool_choice");
    size_t n = json_array_size(json_object_get(root, "tools"));
    bool binds = json_is_false(json_object_get(root, "parallel_tool_calls")) || allowed(choice) != NULL;
    for (size_t i = 0; i < n; i++) {
        binds = binds || is_strict(function_at(root, i));
    }
    *is_forced = n > 0 && is_required(choice);
    return n > 0 && !json_read_is(choice, "none") && (binds || *is_forced);
}

/* Checks whether the answer may call the function. */
static bool may_call(const json_t *choice, const json_t *name)
{
    const json_t *one = named(choice), *some = json_object_get(allowed(choice), "tools");
    bool may = some == NULL;
    for (size_t i = 0; i < json_array_size(some); i++) {
        may = may || json_equal(named(json_array_get(some, i)), name);
    }
    return one != NULL ? json_equal(one, name) : may;
}

bool tool_choice_is_parallel(const json_t *root, const struct chat_format *format)
{
    const json_t *parallel = json_read_get(root, "parallel_tool_calls");
    return parallel != NULL ? json_is_true(parallel) : !format->is_told;
}

/* Checks whether at most one call is allowed. */
static bool is_single(const json_t *root, const struct chat_format *format)
{
    return named(json_read_get(root, "tool_choice")) != NULL || !tool_choice_is_parallel(root, format);
}

/* The tools that may be called, and their indexes in the request. */
struct callable {
    struct chat_forced_tool *tools;
    size_t *places, n;
};

static enum err list_callable(const json_t *root, bool is_forced, struct callable *out)
{
    const json_t *choice = json_read_get(root, "tool_choice");
    size_t n = json_array_size(json_object_get(root, "tools"));
    out->tools = mem_zalloc_array(n, sizeof *out->tools, MEM_REQUEST);
    out->places = mem_zalloc_array(n, sizeof *out->places, MEM_REQUEST);
    if (out->tools == NULL || out->places == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *f = function_at(root, i), *name = json_object_get(f, "name");
        if (may_call(choice, name)) {
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
    char inner[ERR_WHERE_BYTES];
    size_t i_failed;
    const struct chat_forced forced = {
        .format = engine_tool_format(e),
        .tools = c->tools,
        .n_tools = c->n,
        .is_single = is_single(p->root, engine_tool_format(e)),
        .may_speak = !is_forced,
        .thinking = p->split.starts_in_reasoning ? CHAT_IS_THINKING : p->thinking,
    };
    enum err err = engine_grammar_calls(e, &forced, &p->gen.grammar, &i_failed, info);
    if (err == ERR_INVALID_SCHEMA) {
        snprintf(inner, sizeof inner, "%s", info->where);
        snprintf(info->where, sizeof info->where, "tools[%zu].function.parameters%.80s", c->places[i_failed], inner);
    } else if (http_status(err) == 400) {
        snprintf(info->where, sizeof info->where, "tools");
    }
    return err;
}

enum err tool_choice_grammar(struct params *p, struct engine *e, struct err_info *info)
{
    struct callable c = {0};
    bool is_forced;
    if (!tool_choice_binds(p->root, &is_forced)) {
        return ERR_OK;
    }
    if (params_has_text_grammar(p)) {
        return err_set(info, ERR_INVALID_VALUE, "tool_choice",
                       "tool_choice: expected no grammar with enforced calls, found %s", p->constraint.where);
    }
    enum err err = list_callable(p->root, is_forced, &c);
    err = err != ERR_OK ? err : make(p, e, &c, is_forced, info);
    mem_free(c.tools);
    mem_free(c.places);
    return err;
}
