/* Marks that are text become lexemes; marks that are control tokens of the model become these tokens. */
#include "engine/chat/chat_forced.h"

#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/grammar/grammar_json.h"
#include "engine/schema/schema.h"
#include "engine/schema/schema_disjoint.h"

#include <string.h>

enum { MAX_PARTS = 16, MAX_REFS = 16 };

struct writer {
    struct grammar_builder *b;
    struct regex_set *s;
    const struct chat_forced *f;
    const struct tokenizer *t;
    struct err_info *info;
};

/* A sequence of symbols, with room for one call. */
struct row {
    symbol_id parts[MAX_PARTS];
    size_t n;
};

static void add(struct row *r, symbol_id symbol) { r->parts[r->n++] = symbol; }

static symbol_id sequence(struct writer *w, const struct row *r) { return grammar_sequence(w->b, r->parts, r->n); }

static symbol_id text(struct writer *w, const char *s, size_t n)
{
    return grammar_lexeme(w->b, regex_bytes(w->s, s, n));
}

/* --- marks ------------------------------------------------------------------------------------------------------ */

/* Returns the control token at the start of s[0..n), and its length; TOKENIZER_NO_TOKEN: none. */
static int32_t control_token(const struct tokenizer *t, const char *s, size_t n, size_t *len)
{
    const char *end = n > 0 && s[0] == '<' ? memchr(s, '>', n) : n > 0 && s[0] == '[' ? memchr(s, ']', n) : NULL;
    if (t == NULL || end == NULL) {
        return TOKENIZER_NO_TOKEN;
    }
    *len = (size_t)(end - s) + 1;
    int32_t id = tokenizer_find(t, s, *len);
    return id != TOKENIZER_NO_TOKEN && tokenizer_kind(t, id) == TOKEN_CONTROL ? id : TOKENIZER_NO_TOKEN;
}

/* Adds a mark; "" adds nothing. No mark has more pieces than the row has room for. */
static void add_mark(struct writer *w, struct row *r, const char *mark)
{
    size_t from = 0, n = strlen(mark);
    for (size_t i = 0; i <= n; i++) {
        size_t len = 0;
        int32_t id = control_token(w->t, mark + i, n - i, &len);
        if ((id != TOKENIZER_NO_TOKEN || i == n) && i > from) {
            add(r, text(w, mark + from, i - from));
        }
        if (id != TOKENIZER_NO_TOKEN) {
            add(r, grammar_token(w->b, id));
            from = i + len;
            i = from - 1;
        }
    }
}

/* Returns the texts that do not contain the mark; all texts if the mark is a token. */
static regex_id without(struct writer *w, const char *mark)
{
    size_t len;
    if (mark[0] == '\0' || control_token(w->t, mark, strlen(mark), &len) != TOKENIZER_NO_TOKEN) {
        return REGEX_ALL;
    }
    regex_id found = regex_bytes(w->s, mark, strcspn(mark, "\n"));
    return regex_not(w->s, regex_concat(w->s, REGEX_ALL, regex_concat(w->s, found, REGEX_ALL)));
}

/* --- arguments -------------------------------------------------------------------------------------------------- */

static enum err no_object(struct writer *w)
{
    return err_set(w->info, ERR_INVALID_SCHEMA, "/type", "JSON Schema, #/type: expected a schema of objects");
}

/* Returns the schema that it refers to, or itself; NULL: none. */
static const json_t *resolve(const json_t *root, const json_t *schema)
{
    const json_t *ref;
    for (int i = 0; (ref = json_object_get(schema, "$ref")) != NULL; i++) {
        schema = json_is_string(ref) && i < MAX_REFS ? schema_resolve(root, json_string_value(ref)) : NULL;
    }
    return schema;
}

/* Arguments must be an object: rejects schemas that allow other values, and adds the type to a copy, *out, if it is
 * missing. */
static enum err only_objects(struct writer *w, const json_t *schema, json_t **out)
{
    static const char *const others[] = {"anyOf", "oneOf", "allOf", "enum", "const"};
    const json_t *own = resolve(schema, schema), *some = NULL;
    for (size_t i = 0; i < ARRAY_LEN(others) && own != NULL; i++) {
        some = some != NULL ? some : json_object_get(own, others[i]);
    }
    for (size_t i = 0; i < json_array_size(some); i++) {
        const json_t *one = json_array_get(some, i);
        if (!json_read_is(json_object_get(resolve(schema, one), "type"), "object")) {
            return no_object(w);
        }
    }
    const json_t *type = json_object_get(own, "type");
    *out = json_copy((json_t *)(uintptr_t)schema);
    if (*out == NULL) {
        return ERR_NOMEM;
    }
    if (json_read_is(type, "object") || (type == NULL && json_array_size(some) > 0)) {
        return ERR_OK;
    }
    return type != NULL || own != schema || some != NULL                   ? no_object(w)
           : json_object_set_new(*out, "type", json_string("object")) != 0 ? ERR_NOMEM
                                                                           : ERR_OK;
}

static enum err arguments_of(struct writer *w, const struct chat_forced_tool *tool, symbol_id *out)
{
    if (tool->is_loose) {
        *out = grammar_json_object(w->b);
        return ERR_OK;
    }
    if (tool->parameters == NULL) {
        *out = text(w, "{}", 2);
        return ERR_OK;
    }
    json_t *schema = NULL;
    enum err err = only_objects(w, tool->parameters, &schema);
    err = err != ERR_OK ? err : schema_add(w->b, schema, out, w->info);
    json_decref(schema);
    return err;
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

static void add_text(struct writer *w, struct row *r, const char *s) { add(r, text(w, s, strlen(s))); }

static enum err call_of(struct writer *w, const struct chat_forced_tool *tool, symbol_id *out)
{
    const struct chat_format *format = w->f->format;
    struct row r = {.n = 0};
    symbol_id arguments = 0;
    TRY(arguments_of(w, tool, &arguments));
    add_mark(w, &r, format->call);
    add_text(w, &r, tool->name);
    add_mark(w, &r, format->name_end);
    add(&r, arguments);
    add_mark(w, &r, format->call_end);
    *out = sequence(w, &r);
    return ERR_OK;
}

/* Makes one or more calls. */
static enum err calls(struct writer *w, symbol_id *out, size_t *i_failed)
{
    const struct chat_format *format = w->f->format;
    struct row r = {.n = 0}, next = {.n = 0};
    symbol_id one = grammar_rule(w->b);
    for (*i_failed = 0; *i_failed < w->f->n_tools; ++*i_failed) {
        symbol_id call;
        TRY(call_of(w, &w->f->tools[*i_failed], &call));
        grammar_alternative(w->b, one, &call, 1);
    }
    add_mark(w, &r, format->begin);
    add(&r, one);
    add_mark(w, &next, format->between);
    add(&next, one);
    add(&r, grammar_repeat(w->b, sequence(w, &next), 0, w->f->is_single ? 0 : CHAT_FORCED_MAX_CALLS - 1));
    add_mark(w, &r, format->end);
    *out = sequence(w, &r);
    return ERR_OK;
}

/* Makes the model's thinking; has_begun: the prompt contains the first mark. */
static symbol_id thought(struct writer *w, const struct chat_format *format, bool has_begun)
{
    enum { MAX_NEWLINES = 4 };
    struct row r = {.n = 0};
    if (!has_begun) {
        add_mark(w, &r, format->think);
    }
    add(&r, grammar_lexeme(w->b, without(w, format->think_end)));
    add_mark(w, &r, format->think_end);
    add(&r, grammar_lexeme(w->b, regex_repeat(w->s, regex_bytes(w->s, "\n", 1), 0, MAX_NEWLINES)));
    return sequence(w, &r);
}

static void add_thinking(struct writer *w, struct row *r, const struct chat_format *format, enum chat_thinking thinking)
{
    if (thinking == CHAT_IS_THINKING) {
        add(r, thought(w, format, true));
    } else if (thinking == CHAT_MAY_THINK) {
        add(r, grammar_repeat(w->b, thought(w, format, false), 0, 1));
    }
}

symbol_id chat_forced_think(struct grammar_builder *b, const struct chat_format *format, enum chat_thinking thinking,
                            const struct tokenizer *t, symbol_id said)
{
    struct writer w = {.b = b, .s = grammar_regexes(b), .t = t};
    struct row r = {.n = 0};
    if (thinking == CHAT_THINKS_NOT) {
        return said;
    }
    add_thinking(&w, &r, format, thinking);
    if (format->answer != NULL) {
        add_mark(&w, &r, format->answer);
    }
    add(&r, said);
    return sequence(&w, &r);
}

enum err chat_forced_add(struct grammar_builder *b, const struct chat_forced *f, const struct tokenizer *t,
                         symbol_id *out, size_t *i_failed, struct err_info *info)
{
    struct writer w = {b, grammar_regexes(b), f, t, info};
    struct row r = {.n = 0};
    symbol_id all;
    TRY(calls(&w, &all, i_failed));
    add_thinking(&w, &r, f->format, f->thinking);
    if (f->may_speak) {
        const char *mark = f->format->begin[0] != '\0' ? f->format->begin : f->format->call;
        add(&r, grammar_lexeme(b, without(&w, mark)));
    }
    add(&r, f->may_speak ? grammar_repeat(b, all, 0, 1) : all);
    *out = sequence(&w, &r);
    return ERR_OK;
}
