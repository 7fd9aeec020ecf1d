/* Names that propertyNames allows. They are strings, so each keyword of a schema describes a set, and a schema combines
 * these sets without reading the grammar. */
#include "engine/schema/schema_internal.h"

enum { MAX_DEPTH = 32 };

/* A schema being read, and the result of its keywords so far. */
struct look {
    const json_t *schema;
    const char *path;
    size_t word, i;     /* index in `words`; index of the branch */
    regex_id r;         /* all keywords so far */
    regex_id one, none; /* of the branches so far: one holds (exactly one for oneOf); none holds */
};

static const char *const words[] = {"$ref", "allOf", "anyOf", "oneOf", "not"};
enum { REF, ALL_OF, ANY_OF, ONE_OF, NOT };

/* Reads the keywords other than `words`. */
static enum err own_names(struct writer *w, const struct part *from, struct look *l)
{
    static const char *const refused[] = {"if", "x-lark", "$dynamicRef", "$recursiveRef", "disallow", "extends"};
    struct parts list = {.n = 0};
    regex_id strings = REGEX_ALL;
    bool is_free = true;
    l->r = json_is_false(l->schema) ? REGEX_NONE : REGEX_ALL;
    if (w->ref_is_alone && json_object_get(l->schema, "$ref") != NULL) {
        return ERR_OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (json_object_get(l->schema, refused[i]) != NULL) {
            return schema_refuse(w, l->path, refused[i], "this keyword is not supported for names");
        }
    }
    if ((schema_types_of(json_object_get(l->schema, "type")) & SCHEMA_STRING) == 0) {
        l->r = REGEX_NONE;
        return ERR_OK;
    }
    TRY(schema_add_part(w, from, l->schema, l->path, &list));
    TRY(list.is_none || list.n == 0 ? ERR_OK : schema_strings(w, &list, &strings, &is_free));
    l->r = is_free ? l->r : regex_and(w->s, l->r, strings);
    return ERR_OK;
}

/* Finds the next schema that restricts the names of *l; NULL: no more. */
static enum err next_branch(struct writer *w, struct look *l, const json_t **out, const char **path)
{
    *out = NULL;
    for (; l->word < ARRAY_LEN(words); l->word++, l->i = 0) {
        const json_t *value = json_object_get(l->schema, words[l->word]);
        bool is_many = l->word == ALL_OF || l->word == ANY_OF || l->word == ONE_OF;
        if (value == NULL || (w->ref_is_alone && l->word != REF && json_object_get(l->schema, "$ref") != NULL)) {
            continue;
        }
        if (is_many && (!json_is_array(value) || json_array_size(value) == 0)) {
            return schema_refuse(w, l->path, words[l->word], "expected an array of schemas");
        }
        if (l->i < (is_many ? json_array_size(value) : 1)) {
            *path = schema_join(w, l->path, words[l->word]);
            *path = is_many && *path != NULL ? schema_join_index(w, *path, l->i) : *path;
            *out = is_many ? json_array_get(value, l->i) : value;
            return *path != NULL ? ERR_OK : ERR_NOMEM;
        }
        if (l->word == ANY_OF || l->word == ONE_OF) {
            l->r = regex_and(w->s, l->r, l->one);
        }
    }
    return ERR_OK;
}

/* Adds the names r of the branch that next_branch found. */
static void add_branch(struct writer *w, struct look *l, regex_id r)
{
    regex_id one = l->i == 0 ? REGEX_NONE : l->one, none = l->i == 0 ? REGEX_ALL : l->none;
    if (l->word == REF || l->word == ALL_OF) {
        l->r = regex_and(w->s, l->r, r);
    } else if (l->word == NOT) {
        l->r = regex_and(w->s, l->r, regex_not(w->s, r));
    } else {
        bool is_any = l->word == ANY_OF;
        regex_id stays = is_any ? one : regex_and(w->s, one, regex_not(w->s, r));
        l->one = regex_or(w->s, stays, is_any ? r : regex_and(w->s, none, r));
        l->none = is_any ? none : regex_and(w->s, none, regex_not(w->s, r));
    }
    l->i++;
}

static enum err begin_look(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                           struct look *l)
{
    TRY(schema_spend(w, 40 + 6 * json_object_size(schema)));
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return schema_refuse(w, path, "", "expected a schema, an object or a boolean");
    }
    TRY(schema_nullable(w, schema, &schema));
    *l = (struct look){.schema = schema, .path = path};
    return own_names(w, from, l);
}

enum err schema_names(struct writer *w, const struct part *from, const json_t *schema, const char *path, regex_id *out)
{
    struct look stack[MAX_DEPTH];
    size_t n = 0;
    TRY(begin_look(w, from, schema, path, &stack[n++]));
    for (;;) {
        struct look *top = &stack[n - 1];
        const json_t *branch;
        TRY(next_branch(w, top, &branch, &path));
        if (branch == NULL) {
            n--;
            if (n == 0) {
                *out = top->r == REGEX_ALL ? REGEX_ALL : regex_and(w->s, top->r, w->any_text);
                return regex_ok(w->s);
            }
            add_branch(w, &stack[n - 1], top->r);
            continue;
        }
        if (top->word == REF) {
            TRY(schema_follow(w, from, branch, top->path, &branch));
            path = top->path;
        }
        if (n == MAX_DEPTH) {
            return schema_refuse(w, path, "", "expected schemas of names that nest 32 deep at most");
        }
        TRY(begin_look(w, from, branch, path, &stack[n++]));
    }
}
