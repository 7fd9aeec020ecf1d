#include "fcgi/api/constraint.h"
#include "fcgi/wire/http_status.h"

#include "engine/base/mem.h"
#include "fcgi/api/schema_check.h"
#include "fcgi/api/turn.h"
#include "fcgi/wire/json_in.h"

#include <stdio.h>
#include <string.h>

/* A field, or a member of a field, that is read. */
struct row {
    const char *field, *member, *where;
    enum constraint_kind kind;
};
#define FIELD(name, kind)                                                                                              \
    {                                                                                                                  \
        name, NULL, name, kind                                                                                         \
    }
#define MEMBER(name, member, kind)                                                                                     \
    {                                                                                                                  \
        name, member, name "." member, kind                                                                            \
    }

static const struct row rows[] = {
    FIELD("grammar", CONSTRAINT_GBNF),
    FIELD("json_schema", CONSTRAINT_SCHEMA),
    FIELD("guided_json", CONSTRAINT_SCHEMA),
    FIELD("guided_regex", CONSTRAINT_REGEX),
    FIELD("guided_choice", CONSTRAINT_CHOICE),
    FIELD("guided_grammar", CONSTRAINT_GRAMMAR),
    MEMBER("structured_outputs", "json", CONSTRAINT_SCHEMA),
    MEMBER("structured_outputs", "regex", CONSTRAINT_REGEX),
    MEMBER("structured_outputs", "choice", CONSTRAINT_CHOICE),
    MEMBER("structured_outputs", "grammar", CONSTRAINT_GRAMMAR),
    MEMBER("structured_outputs", "json_object", CONSTRAINT_OBJECT),
};

enum { MAX_CHOICES = 10000, JSON_MAX_DEPTH = JSON_IN_MAX_DEPTH };

static enum err put(struct constraint *out, struct constraint found, struct err_info *info)
{
    if (out->kind != CONSTRAINT_NONE) {
        return err_set(info, ERR_INVALID_VALUE, found.where,
                       "%s: expected one field that says the answer's form, found %s too", found.where, out->where);
    }
    *out = found;
    return ERR_OK;
}

/* --- response_format -------------------------------------------------------------------------------------------------- */

/* Takes a schema of response_format; at: its path. */
static enum err take_schema(const json_t *schema, const char *at, struct constraint *c, struct err_info *info)
{
    TRY(turn_expect(schema, JSON_OBJECT, at, "a JSON Schema, an object", info));
    *c = (struct constraint){CONSTRAINT_SCHEMA, at, schema, true};
    return ERR_OK;
}

/* {"type": "json_schema", "json_schema": {"name": .., "schema": ..}}; llama-server's form has "schema" without the
 * outer object. */
static enum err read_schema(const json_t *format, struct constraint *c, struct err_info *info)
{
    const json_t *outer = json_read_get(format, "json_schema"), *name = json_read_get(outer, "name");
    const json_t *flat = json_read_get(format, "schema");
    static const char at[] = "response_format.json_schema";
    if (outer == NULL && flat != NULL) {
        return take_schema(flat, "response_format.schema", c, info);
    }
    TRY(turn_expect(outer, JSON_OBJECT, at, "an object with a schema", info));
    if (name != NULL) {
        TRY(turn_expect(name, JSON_STRING, "response_format.json_schema.name", "a string", info));
    }
    return take_schema(json_read_get(outer, "schema"), "response_format.json_schema.schema", c, info);
}

/* {"type": "json_object"}, optionally with llama.cpp's "schema". */
static enum err read_object(const json_t *format, struct constraint *c, struct err_info *info)
{
    const json_t *schema = json_read_get(format, "schema");
    if (schema != NULL && !json_is_object(schema)) {
        return json_in_refuse(ERR_INVALID_TYPE, "response_format.schema", "a JSON Schema, an object", schema, info);
    }
    bool is_any = schema == NULL || json_object_size(schema) == 0;
    *c = is_any ? (struct constraint){CONSTRAINT_OBJECT, "response_format", format, true}
                : (struct constraint){CONSTRAINT_SCHEMA, "response_format.schema", schema, true};
    return ERR_OK;
}

static enum err read_response_format(const json_t *root, struct constraint *out, struct err_info *info)
{
    const json_t *format = json_read_get(root, "response_format");
    const json_t *type = json_object_get(format, "type");
    struct constraint found = {CONSTRAINT_NONE};
    if (format == NULL || json_read_is(type, "text")) {
        return ERR_OK;
    }
    if (!json_is_string(type)) {
        return err_set(info, ERR_INVALID_TYPE, "response_format",
                       "response_format: expected an object with a string type");
    }
    if (json_read_is(type, "json_object")) {
        TRY(read_object(format, &found, info));
    } else if (json_read_is(type, "json_schema")) {
        TRY(read_schema(format, &found, info));
    } else {
        return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "response_format", "text, json_object or json_schema", type,
                              info);
    }
    return put(out, found, info);
}

/* --- other fields ----------------------------------------------------------------------------------------------------- */

/* Checks the other members of structured_outputs: rejects options that would change the form unless they are off. */
static enum err check_options(const json_t *root, struct err_info *info)
{
    static const char *const forms[] = {"disable_any_whitespace", "disable_additional_properties", "whitespace_pattern",
                                        "structural_tag"};
    static const char *const others[] = {"disable_fallback", "_backend", "_backend_was_auto"};
    const json_t *object = json_read_get(root, "structured_outputs");
    const char *key;
    json_t *value;
    char where[ERR_WHERE_BYTES];
    if (object != NULL && !json_is_object(object)) {
        return json_in_refuse(ERR_INVALID_TYPE, "structured_outputs", "an object", object, info);
    }
    json_object_foreach((json_t *)object, key, value)
    {
        bool is_known = false, is_form = false, is_off = json_is_null(value) || json_is_false(value);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            is_known = is_known || (rows[i].member != NULL && strcmp(rows[i].member, key) == 0);
        }
        for (size_t i = 0; i < ARRAY_LEN(others); i++) {
            is_known = is_known || strcmp(others[i], key) == 0;
        }
        for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
            is_form = is_form || strcmp(forms[i], key) == 0;
        }
        snprintf(where, sizeof where, "structured_outputs.%.80s", key);
        if (is_form && !is_off) {
            return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, where, "none", value, info);
        }
        if (!is_form && !is_known) {
            return err_set(info, ERR_UNKNOWN_PARAMETER, where,
                           "%s: expected json, regex, choice, grammar or json_object as a member, found another",
                           where);
        }
    }
    return ERR_OK;
}

static enum err read_row(const struct row *r, const json_t *v, struct constraint *out, struct err_info *info)
{
    static const struct {
        const char *expected;
        json_type type; /* JSON_TRUE: a boolean; a schema can also be a string */
    } shapes[] = {[CONSTRAINT_OBJECT] = {"a boolean", JSON_TRUE},
                  [CONSTRAINT_SCHEMA] = {"a JSON Schema, an object", JSON_OBJECT},
                  [CONSTRAINT_REGEX] = {"a string", JSON_STRING},
                  [CONSTRAINT_CHOICE] = {"an array of strings, 1 to 10000", JSON_ARRAY},
                  [CONSTRAINT_GBNF] = {"a string", JSON_STRING},
                  [CONSTRAINT_GRAMMAR] = {"a string", JSON_STRING}};
    json_type type = json_is_false(v) ? JSON_TRUE : json_typeof(v);
    bool fits = type == shapes[r->kind].type || (r->kind == CONSTRAINT_SCHEMA && json_is_string(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        fits = fits && json_is_string(json_array_get(v, i));
    }
    bool is_choice = fits && r->kind == CONSTRAINT_CHOICE, has_room = json_array_size(v) - 1 < MAX_CHOICES;
    if (!fits || (is_choice && !has_room)) {
        return json_in_refuse(fits ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, r->where, shapes[r->kind].expected, v, info);
    }
    if (json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0)) {
        return ERR_OK; /* "" means none, as in llama.cpp */
    }
    return put(out, (struct constraint){r->kind, r->where, v, false}, info);
}

enum err constraint_read(const json_t *root, struct constraint *out, struct err_info *info)
{
    *out = (struct constraint){CONSTRAINT_NONE};
    TRY(check_options(root, info));
    TRY(read_response_format(root, out, info));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const json_t *v = json_read_get(root, rows[i].field);
        v = rows[i].member != NULL ? json_read_get(v, rows[i].member) : v;
        TRY(v != NULL ? read_row(&rows[i], v, out, info) : ERR_OK);
    }
    return ERR_OK;
}

/* --- grammars --------------------------------------------------------------------------------------------------------- */

/* Reports errors as the engine does: the text and info->where have only the location within the schema. */
static enum err check_form(const json_t *schema, struct err_info *info)
{
    static const char at[] = "JSON Schema, #";
    enum err err = schema_check(schema, at, info);
    if (err == ERR_INVALID_SCHEMA) {
        memmove(info->where, info->where + sizeof at - 1, strlen(info->where) - sizeof at + 2);
    }
    return err;
}

/* info->where: the schema's path and the location within it. */
static enum err make_schema(const struct constraint *c, struct engine *e, enum chat_thinking thinking,
                            struct grammar **out, struct err_info *info)
{
    json_t *parsed = NULL;
    if (json_is_string(c->value)) {
        TRY(json_read(json_string_value(c->value), json_string_length(c->value), JSON_MAX_DEPTH, c->where, &parsed,
                      info));
    }
    const json_t *schema = parsed != NULL ? parsed : c->value;
    enum err err = check_form(schema, info);
    err = err != ERR_OK ? err : engine_grammar_json_schema(e, schema, thinking, out, info);
    json_decref(parsed);
    return err;
}

static enum err make_choice(const struct constraint *c, struct engine *e, enum chat_thinking thinking,
                            struct grammar **out, struct err_info *info)
{
    size_t n = json_array_size(c->value);
    const char **texts = mem_zalloc_array(n, sizeof *texts, MEM_REQUEST);
    size_t *lengths = mem_zalloc_array(n, sizeof *lengths, MEM_REQUEST);
    for (size_t i = 0; i < n && texts != NULL && lengths != NULL; i++) {
        texts[i] = json_string_value(json_array_get(c->value, i));
        lengths[i] = json_string_length(json_array_get(c->value, i));
    }
    enum err err = texts != NULL && lengths != NULL ? engine_grammar_choice(e, texts, lengths, n, thinking, out, info)
                                                    : err_set(info, ERR_NOMEM, NULL, "out of memory for the grammar");
    mem_free(texts);
    mem_free(lengths);
    return err;
}

static enum err make(const struct constraint *c, struct engine *e, enum chat_thinking thinking, struct grammar **out,
                     struct err_info *info)
{
    static const char lark_mark[] = "%llguidance";
    const char *text = json_string_value(c->value);
    size_t n = json_string_length(c->value);
    switch (c->kind) {
    case CONSTRAINT_OBJECT:
        return engine_grammar_json_object(e, thinking, out, info);
    case CONSTRAINT_SCHEMA:
        return make_schema(c, e, thinking, out, info);
    case CONSTRAINT_REGEX:
        return engine_grammar_regex(e, text, n, thinking, out, info);
    case CONSTRAINT_CHOICE:
        return make_choice(c, e, thinking, out, info);
    case CONSTRAINT_GBNF:
        return n >= sizeof lark_mark - 1 && memcmp(text, lark_mark, sizeof lark_mark - 1) == 0
                   ? engine_grammar_any(e, text, n, thinking, out, info)
                   : engine_grammar_gbnf(e, text, n, thinking, out, info);
    case CONSTRAINT_GRAMMAR:
        return engine_grammar_any(e, text, n, thinking, out, info);
    default:
        return ERR_OK;
    }
}

enum err constraint_grammar(const struct constraint *c, struct engine *e, enum chat_thinking thinking,
                            struct grammar **out, struct err_info *info)
{
    char inner[ERR_WHERE_BYTES];
    *out = NULL;
    enum err err = make(c, e, thinking, out, info);
    if (http_status(err) == 400) {
        snprintf(inner, sizeof inner, "%s", err == ERR_INVALID_SCHEMA ? info->where : "");
        snprintf(info->where, sizeof info->where, "%.40s%.80s", c->where, inner);
    }
    return err;
}
