/* Forms are OpenAI's [API reference, "Create chat completion"]. For clients of other servers, ids and types of earlier
 * calls can be missing, and their arguments can be an object. */
#include "fcgi/api/tools.h"

#include "fcgi/api/schema_check.h"
#include "fcgi/api/turn.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 128 };

enum err tools_check_name(const json_t *name, const char *at, struct err_info *info)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t n = json_string_length(name);
    char where[ERR_WHERE_BYTES];
    return json_is_string(name) && n > 0 && n <= MAX_NAME && strspn(json_string_value(name), allowed) == n
               ? ERR_OK
               : turn_refuse(name, JSON_STRING, turn_member(where, at, "name"),
                             "1 to 128 letters, digits, '_', '-' and '.'", info);
}

static enum err check_openai_name(const json_t *name, const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    return json_string_length(name) <= TOOLS_OPENAI_MAX_NAME && strchr(json_string_value(name), '.') == NULL
               ? ERR_OK
               : turn_refuse(name, JSON_STRING, turn_member(where, at, "name"), "1 to 64 letters, digits, '_' and '-'",
                             info);
}

/* Checks a member that can be absent or null. */
static enum err check_optional(const json_t *object, const char *at, const char *field, json_type type,
                               struct err_info *info)
{
    static const char *const expected[] = {
        [JSON_STRING] = "a string", [JSON_ARRAY] = "an array", [JSON_OBJECT] = "an object"};
    const json_t *v = json_read_get(object, field);
    char where[ERR_WHERE_BYTES];
    return v == NULL || json_typeof(v) == type
               ? ERR_OK
               : turn_refuse(v, type, turn_member(where, at, field), expected[type], info);
}

static enum err check_type(const json_t *object, const char *at, bool may_lack, struct err_info *info)
{
    const json_t *v = json_read_get(object, "type");
    char where[ERR_WHERE_BYTES];
    return json_read_is(v, "function") || (v == NULL && may_lack)
               ? ERR_OK
               : turn_refuse(v, JSON_STRING, turn_member(where, at, "type"), "\"function\"", info);
}

/* *out: the object `function` of the value at `at`; inner: its path. */
static enum err get_function(const json_t *object, const char *at, const json_t **out, char inner[ERR_WHERE_BYTES],
                             struct err_info *info)
{
    *out = json_object_get(object, "function");
    turn_member(inner, at, "function");
    return json_is_object(*out) ? ERR_OK : turn_refuse(*out, JSON_OBJECT, inner, "an object with a name", info);
}

/* --- the choice ------------------------------------------------------------------------------------------------- */

void tools_fini(struct tools *t)
{
    json_decref(t->list);
    json_decref(t->places);
    json_decref(t->names);
    json_decref(t->allowed);
    *t = (struct tools){.list = NULL};
}

bool tools_among(const json_t *names, const json_t *name)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(names) && !has; i++) {
        has = json_equal(json_array_get(names, i), name);
    }
    return has;
}

enum err tools_allow(struct tools *t, json_t *name, const char *at, struct err_info *info)
{
    TRY(tools_check_name(name, at, info));
    t->allowed = t->allowed != NULL ? t->allowed : json_array();
    return turn_append(t->allowed, json_incref(name));
}

bool tools_read_mode(const json_t *v, struct tools *t)
{
    static const char *const modes[] = {[TOOLS_AUTO] = "auto", [TOOLS_NONE] = "none", [TOOLS_REQUIRED] = "required"};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (json_read_is(v, modes[i])) {
            t->mode = (enum tools_mode)i;
            return true;
        }
    }
    return false;
}

/* {"type": "function", "function": {"name": ..}} */
static enum err read_named(const json_t *choice, const char *at, struct tools *t, struct err_info *info)
{
    const json_t *f;
    char inner[ERR_WHERE_BYTES];
    if (!json_is_object(choice)) {
        return turn_refuse(choice, JSON_OBJECT, at, "an object with type and function", info);
    }
    TRY(check_type(choice, at, false, info));
    TRY(get_function(choice, at, &f, inner, info));
    return tools_allow(t, json_object_get(f, "name"), inner, info);
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": .., "tools": [..]}} */
static enum err read_allowed(const json_t *choice, struct tools *t, struct err_info *info)
{
    static const char at[] = "tool_choice.allowed_tools", list[] = "tool_choice.allowed_tools.tools";
    char where[ERR_WHERE_BYTES];
    const json_t *inner = json_object_get(choice, "allowed_tools"), *mode = json_object_get(inner, "mode");
    const json_t *some = json_object_get(inner, "tools");
    if (!json_is_object(inner)) {
        return turn_refuse(inner, JSON_OBJECT, at, "an object with mode and tools", info);
    }
    if (!tools_read_mode(mode, t) || t->mode == TOOLS_NONE) {
        return turn_refuse(mode, JSON_STRING, turn_member(where, at, "mode"), "\"auto\" or \"required\"", info);
    }
    if (json_array_size(some) == 0 || json_array_size(some) > TOOLS_MAX) {
        return turn_refuse(some, JSON_ARRAY, list, "an array of 1 to 512 tools", info);
    }
    for (size_t i = 0; i < json_array_size(some); i++) {
        TRY(read_named(json_array_get(some, i), turn_element(where, list, i), t, info));
    }
    return ERR_OK;
}

static enum err read_choice(const json_t *choice, struct tools *t, struct err_info *info)
{
    static const char expected[] = "\"none\", \"auto\", \"required\" or an object that names a function";
    if (!json_is_object(choice)) {
        return choice == NULL || tools_read_mode(choice, t)
                   ? ERR_OK
                   : turn_refuse(choice, JSON_STRING, "tool_choice", expected, info);
    }
    if (json_read_is(json_object_get(choice, "type"), "allowed_tools")) {
        return read_allowed(choice, t, info);
    }
    t->mode = TOOLS_REQUIRED;
    t->is_named = true;
    return read_named(choice, "tool_choice", t, info);
}

enum err tools_read_parallel(const json_t *root, struct tools *t, struct err_info *info)
{
    const json_t *v = json_read_get(root, "parallel_tool_calls");
    t->is_parallel = json_is_true(v);
    t->is_separate = json_is_false(v);
    return v == NULL || json_is_boolean(v) ? ERR_OK
                                           : turn_refuse(v, JSON_TRUE, "parallel_tool_calls", "a boolean", info);
}

enum err tools_read(const json_t *root, struct tools *t, struct err_info *info)
{
    t->is_openai = true;
    TRY(check_optional(root, "", "tools", JSON_ARRAY, info));
    t->list = json_incref(json_object_get(root, "tools"));
    TRY(read_choice(json_read_get(root, "tool_choice"), t, info));
    return tools_read_parallel(root, t, info);
}

/* --- tools ------------------------------------------------------------------------------------------------------ */

enum err tools_add(struct tools *t, json_t *function, const char *at, const char *parameters_at)
{
    json_t *tool = json_pack("{s:s, s:o}", "type", "function", "function", function);
    t->list = t->list != NULL ? t->list : json_array();
    t->places = t->places != NULL ? t->places : json_array();
    TRY(turn_append(t->list, tool));
    return turn_append(t->places, json_pack("[s, s]", at, parameters_at));
}

const char *tools_place(const struct tools *t, size_t i, bool of_parameters, char out[ERR_WHERE_BYTES])
{
    if (t->is_openai) {
        snprintf(out, ERR_WHERE_BYTES, "tools[%zu].function%s", i, of_parameters ? ".parameters" : "");
    } else {
        const json_t *place = json_array_get(json_array_get(t->places, i), of_parameters);
        snprintf(out, ERR_WHERE_BYTES, "%s", json_string_value(place));
    }
    return out;
}

/* Checks whether one of the first n tools has that name. */
static bool has_tool(const struct tools *t, size_t n, const json_t *name)
{
    bool has = false;
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_object_get(json_array_get(t->list, i), "function");
        has = has || json_equal(json_object_get(f, "name"), name);
    }
    return has;
}

/* Checks the parts of a tool around its function. */
static enum err check_form(const json_t *tool, size_t i, struct err_info *info)
{
    const json_t *f;
    char at[ERR_WHERE_BYTES], inner[ERR_WHERE_BYTES];
    turn_element(at, "tools", i);
    if (!json_is_object(tool)) {
        return turn_refuse(tool, JSON_OBJECT, at, "an object with type and function", info);
    }
    TRY(check_type(tool, at, false, info));
    return get_function(tool, at, &f, inner, info);
}

static enum err check_tool(const struct tools *t, size_t i, bool as_openai, struct err_info *info)
{
    const json_t *tool = json_array_get(t->list, i), *f = json_object_get(tool, "function");
    const json_t *name = json_object_get(f, "name"), *parameters = json_read_get(f, "parameters");
    const json_t *strict = json_read_get(f, "strict");
    char at[ERR_WHERE_BYTES], where[ERR_WHERE_BYTES];
    TRY(t->is_openai ? check_form(tool, i, info) : ERR_OK);
    tools_place(t, i, false, at);
    TRY(tools_check_name(name, at, info));
    TRY(as_openai ? check_openai_name(name, at, info) : ERR_OK);
    TRY(check_optional(f, at, "description", JSON_STRING, info));
    tools_place(t, i, true, where);
    if (parameters != NULL && !json_is_object(parameters)) {
        return turn_refuse(parameters, JSON_OBJECT, where, "a JSON Schema, an object", info);
    }
    TRY(parameters != NULL ? schema_check(parameters, where, info) : ERR_OK);
    if (strict != NULL && !json_is_boolean(strict)) {
        return turn_refuse(strict, JSON_TRUE, turn_member(where, at, "strict"), "a boolean", info);
    }
    return has_tool(t, i, name) ? json_in_refuse(ERR_INVALID_VALUE, turn_member(where, at, "name"),
                                                 "a name that no tool in front has", name, info)
                                : ERR_OK;
}

/* Checks that the functions of the choice are among the tools. */
static enum err check_choice(const struct tools *t, struct err_info *info)
{
    size_t n = json_array_size(t->list);
    char where[ERR_WHERE_BYTES];
    for (size_t i = 0; i < json_array_size(t->allowed); i++) {
        const json_t *name = json_array_get(t->allowed, i);
        if (!has_tool(t, n, name)) {
            snprintf(where, sizeof where, "tool_choice.allowed_tools.tools[%zu].function.name", i);
            const char *of_named = t->is_openai ? "tool_choice.function.name" : "tool_choice.name";
            return turn_refuse(name, JSON_STRING, t->is_named ? of_named : where, "the name of one of tools", info);
        }
    }
    return t->mode == TOOLS_REQUIRED && n == 0
               ? err_set(info, ERR_INVALID_VALUE, "tool_choice",
                         "tool_choice: expected \"required\" only with tools, found 'required'")
               : ERR_OK;
}

enum err tools_check(struct tools *t, bool as_openai, struct err_info *info)
{
    size_t n = json_array_size(t->list), most = as_openai ? TOOLS_OPENAI_MAX : TOOLS_MAX;
    if (n > most) {
        return err_set(info, ERR_INVALID_VALUE, "tools", "tools: expected at most %zu tools, found %zu", most, n);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(check_tool(t, i, as_openai, info));
    }
    TRY(check_choice(t, info));
    t->is_shown = n > 0 && t->mode != TOOLS_NONE;
    return ERR_OK;
}

/* --- optional members of tools ------------------------------------------------------------------------------------ */

/* Sets a member that is absent or null. Takes ownership of `made`. */
static enum err fill_member(json_t *object, const char *name, json_t *made, bool *is_filled)
{
    if (json_read_get(object, name) != NULL) {
        json_decref(made);
        return ERR_OK;
    }
    *is_filled = true;
    return json_object_set_new(object, name, made) == 0 ? ERR_OK : ERR_NOMEM;
}

/* Adds the missing members to the copied tool's function. */
static enum err fill_function(json_t *tool, bool *is_filled)
{
    const json_t *function = json_object_get(tool, "function");
    if (!json_is_object(function)) { /* not from a request: the operator's template variable of that name */
        return ERR_OK;
    }
    json_t *f = json_copy((json_t *)function);
    json_t *parameters = f != NULL ? json_object_get(f, "parameters") : NULL;
    parameters = json_is_object(parameters) ? json_copy(parameters) : json_object();
    bool ok = f != NULL && json_object_set_new(tool, "function", f) == 0;
    if (!ok || parameters == NULL) {
        json_decref(parameters);
        return ERR_NOMEM;
    }
    *is_filled = json_read_get(f, "parameters") == NULL;
    TRY(json_object_set_new(f, "parameters", parameters) == 0 ? ERR_OK : ERR_NOMEM);
    TRY(fill_member(f, "description", json_string(""), is_filled));
    TRY(fill_member(parameters, "type", json_string("object"), is_filled));
    return fill_member(parameters, "properties", json_object(), is_filled);
}

static enum err fill_tools(const json_t *tools, json_t *out, bool *any)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i), *copy = json_copy(tool);
        bool is_filled = false;
        enum err err = copy != NULL ? fill_function(copy, &is_filled) : ERR_NOMEM;
        bool ok = err == ERR_OK && json_array_append(out, is_filled ? copy : tool) == 0;
        json_decref(copy);
        TRY(ok ? ERR_OK : ERR_NOMEM);
        *any = *any || is_filled;
    }
    return ERR_OK;
}

enum err tools_fill(const json_t *tools, json_t **out)
{
    bool any = false;
    json_t *made = json_array();
    enum err err = made != NULL ? fill_tools(tools, made, &any) : ERR_NOMEM;
    *out = err == ERR_OK && any ? json_incref(made) : NULL;
    json_decref(made);
    return err;
}

/* --- calls of earlier messages ---------------------------------------------------------------------------------- */

/* Checks for null arguments, an empty text or the text "null". */
static bool is_nothing(const json_t *arguments)
{
    static const char null[] = "null", spaces[] = " \t\r\n";
    size_t n = json_string_length(arguments), from = 0;
    const char *text = json_string_value(arguments);
    while (from < n && text[from] != '\0' && strchr(spaces, text[from]) != NULL) {
        from++;
    }
    while (n > from && text[n - 1] != '\0' && strchr(spaces, text[n - 1]) != NULL) {
        n--;
    }
    bool is_null = n - from == sizeof null - 1 && memcmp(text + from, null, sizeof null - 1) == 0;
    return json_is_null(arguments) || (json_is_string(arguments) && (n == from || is_null));
}

/* Checks a name and arguments: a call, or the legacy function_call. */
static enum err check_called(json_t *f, const char *at, struct err_info *info)
{
    const json_t *arguments = json_object_get(f, "arguments");
    char where[ERR_WHERE_BYTES];
    TRY(tools_check_name(json_object_get(f, "name"), at, info));
    if (is_nothing(arguments)) {
        return json_object_set_new(f, "arguments", json_string("{}")) == 0 ? ERR_OK : ERR_NOMEM;
    }
    return json_is_string(arguments) || json_is_object(arguments)
               ? ERR_OK
               : turn_refuse(arguments, JSON_STRING, turn_member(where, at, "arguments"), "a string of JSON", info);
}

static enum err check_call(json_t *call, const char *at, struct err_info *info)
{
    const json_t *f;
    char inner[ERR_WHERE_BYTES];
    if (!json_is_object(call)) {
        return turn_refuse(call, JSON_OBJECT, at, "an object with id, type and function", info);
    }
    TRY(check_optional(call, at, "id", JSON_STRING, info));
    TRY(check_type(call, at, true, info));
    TRY(get_function(call, at, &f, inner, info));
    return check_called(json_object_get(call, "function"), inner, info);
}

enum err tools_check_message(json_t *message, const char *where, struct err_info *info)
{
    const json_t *calls = json_read_get(message, "tool_calls");
    char at[ERR_WHERE_BYTES], call[ERR_WHERE_BYTES];
    TRY(check_optional(message, where, "tool_call_id", JSON_STRING, info));
    TRY(check_optional(message, where, "tool_calls", JSON_ARRAY, info));
    turn_member(at, where, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        TRY(check_call(json_array_get(calls, i), turn_element(call, at, i), info));
    }
    TRY(check_optional(message, where, "function_call", JSON_OBJECT, info));
    json_t *legacy = json_object_get(message, "function_call");
    return json_is_object(legacy) ? check_called(legacy, turn_member(at, where, "function_call"), info) : ERR_OK;
}

/* --- arguments, text or object ---------------------------------------------------------------------------------- */

enum { MAX_ARGUMENTS_DEPTH = 100 /* templates nest at most 128 levels, including the messages around the arguments */ };

static enum err open_call(json_t *call, json_t *undo)
{
    json_t *f = json_object_get(call, "function"), *text = json_object_get(f, "arguments"), *object = NULL;
    struct err_info ignored = {0};
    if (!json_is_string(text)) {
        return ERR_OK;
    }
    enum err err = json_read_lenient(json_string_value(text), json_string_length(text), MAX_ARGUMENTS_DEPTH,
                                     "arguments", &object, &ignored);
    if (err != ERR_OK || !json_is_object(object)) { /* the template gets the text */
        json_decref(object);
        return err == ERR_NOMEM ? err : ERR_OK;
    }
    bool ok = json_array_append_new(undo, json_pack("[OO]", f, text)) == 0;
    ok = ok && json_object_set(f, "arguments", object) == 0;
    json_decref(object);
    return ok ? ERR_OK : ERR_NOMEM;
}

enum err tools_open_arguments(json_t *messages, json_t *undo)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            TRY(open_call(json_array_get(calls, k), undo));
        }
    }
    return ERR_OK;
}

enum err tools_close_arguments(json_t *undo)
{
    for (size_t i = 0; i < json_array_size(undo); i++) {
        const json_t *pair = json_array_get(undo, i);
        if (json_object_set(json_array_get(pair, 0), "arguments", json_array_get(pair, 1)) != 0) {
            return ERR_NOMEM;
        }
    }
    return ERR_OK;
}
