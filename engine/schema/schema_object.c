/* Objects of a schema: members in any order, each with all parts that restrict its name. */
#include "engine/schema/schema_internal.h"

#include "engine/base/json_read.h"

enum { MAX_PATTERNS = 32, MAX_CLASSES = 64, BUDGET = 5000, MAX_ASKED = 4, MAX_CHOICES = 32, MAX_TRIES = 4096 };

static const char UNEVALUATED[] = "unevaluatedProperties";

/* A pattern of patternProperties. */
struct pattern {
    regex_id r; /* as in REGEX_OPEN */
    const json_t *schema;
    const char *path;
    size_t part; /* the part with the pattern */
};

struct object {
    const struct parts *list;
    json_t *names; /* all names of properties and required, sorted: true if required */
    struct pattern patterns[MAX_PATTERNS];
    size_t n_patterns;
    regex_id allowed; /* names that propertyNames allows */
    struct grammar_member *members;
    const char **member_names; /* [n_members] NULL: names not in `names` */
    size_t n_members;
    const json_t *asked[MAX_ASKED]; /* each requires a member whose name is not in its list */
    size_t n_asked;
    struct schema_counts counts;
    bool is_none;         /* no object satisfies this */
    bool has_unevaluated; /* a part has the keyword */
};

/* Names that are not in `properties` and match exactly these patterns. */
struct other {
    regex_id names;
    uint32_t found; /* bits of patterns */
};

/* --- restrictions of the parts ------------------------------------------------------------------------------------ */

static enum err check_shapes(struct writer *w, const struct part *p)
{
    static const char *const objects[] = {"properties", "patternProperties"};
    for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
        const json_t *v = schema_keyword(w, p, objects[i]);
        if (v != NULL && !json_is_object(v)) {
            return schema_refuse(w, p->path, objects[i], "expected an object of schemas");
        }
    }
    const json_t *required = schema_keyword(w, p, "required");
    bool is_list = required == NULL || json_is_array(required);
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        is_list = is_list && json_is_string(name) && strlen(json_string_value(name)) == json_string_length(name);
    }
    return is_list ? ERR_OK : schema_refuse(w, p->path, "required", "expected an array of names");
}

static enum err read_patterns(struct writer *w, struct object *o, size_t part)
{
    const struct part *p = &o->list->at[part];
    const json_t *patterns = schema_keyword(w, p, "patternProperties");
    const char *path = patterns != NULL ? schema_join(w, p->path, "patternProperties") : "", *key;
    json_t *schema;
    TRY_MEM(path != NULL);
    json_object_foreach((json_t *)patterns, key, schema)
    {
        if (o->n_patterns == MAX_PATTERNS) {
            return schema_refuse(w, p->path, "patternProperties", "expected 32 patterns at most");
        }
        struct pattern *out = &o->patterns[o->n_patterns++];
        *out = (struct pattern){.schema = schema, .path = schema_join(w, path, key), .part = part};
        const struct regex_pattern pattern = {key, strlen(key), REGEX_SEARCH | REGEX_OPEN};
        TRY(schema_pattern(w, p, "patternProperties", &pattern, &out->r));
    }
    return ERR_OK;
}

/* Adds the keys of an object (OPTIONAL) to the names; they are not required. */
static enum err add_names(struct object *o, const json_t *keys)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys, key, value)
    {
        TRY_MEM(json_object_get(o->names, key) != NULL ||
                json_object_set_new_nocheck(o->names, key, json_false()) == 0);
    }
    return ERR_OK;
}

static enum err read_names(struct writer *w, struct object *o, const struct part *p)
{
    const json_t *required = schema_keyword(w, p, "required");
    TRY(add_names(o, schema_keyword(w, p, "properties")));
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        TRY_MEM(json_object_set_new_nocheck(o->names, name, json_true()) == 0);
    }
    return ERR_OK;
}

static enum err read_allowed(struct writer *w, struct object *o, const struct part *p)
{
    const json_t *names = schema_keyword(w, p, "propertyNames");
    regex_id allowed;
    if (names == NULL) {
        return ERR_OK;
    }
    const char *path = schema_join(w, p->path, "propertyNames");
    TRY(path != NULL ? schema_names(w, p, names, path, &allowed) : ERR_NOMEM);
    o->allowed = allowed == REGEX_ALL ? o->allowed : regex_and(w->s, o->allowed, allowed);
    return ERR_OK;
}

/* Reads the requirement of a negated additionalProperties. Its names become members, so that the remaining names are
 * the others. */
static enum err read_asked(struct writer *w, struct object *o, const struct part *p)
{
    const json_t *other = NULL;
    if (!schema_was_made(w, p->schema, SCHEMA_MEMBER, &other)) {
        return ERR_OK;
    }
    if (o->n_asked == MAX_ASKED) {
        return ERR_GRAMMAR_LIMIT;
    }
    o->asked[o->n_asked++] = json_object_get(other, "names");
    return add_names(o, o->asked[o->n_asked - 1]);
}

static enum err read_parts(struct writer *w, struct object *o)
{
    for (size_t i = 0; i < o->list->n; i++) {
        const struct part *p = &o->list->at[i];
        TRY(check_shapes(w, p));
        TRY(read_patterns(w, o, i));
        TRY(read_names(w, o, p));
        TRY(read_allowed(w, o, p));
        TRY(read_asked(w, o, p));
        TRY(schema_narrow(w, p, "minProperties", "maxProperties", &o->counts));
    }
    return ERR_OK;
}

/* --- unevaluatedProperties ----------------------------------------------------------------------------------------------- */

/* Checks whether the i-th part restricts a member of that name, or one that matches exactly these patterns. */
static bool evaluates(struct writer *w, const struct object *o, size_t i, const char *name, uint32_t found)
{
    const struct part *p = &o->list->at[i];
    bool is = schema_keyword(w, p, "additionalProperties") != NULL ||
              (name != NULL && json_object_get(schema_keyword(w, p, "properties"), name) != NULL);
    for (size_t k = 0; k < o->n_patterns && !is; k++) {
        is = o->patterns[k].part == i && (found >> k & 1) != 0;
    }
    return is;
}

/* Adds the parts' unevaluatedProperties schemas for members that neither the part nor the schemas it requires
 * restrict. */
static enum err add_unevaluated(struct writer *w, const struct object *o, const char *name, uint32_t found,
                                struct parts *out)
{
    bool says[SCHEMA_MAX_PARTS];
    for (size_t i = 0; i < o->list->n && o->has_unevaluated; i++) {
        TRY(schema_spend(w, 1 + o->n_patterns));
        says[i] = evaluates(w, o, i, name, found);
    }
    return o->has_unevaluated ? schema_add_unevaluated(w, o->list, UNEVALUATED, says, out) : ERR_OK;
}

/* --- members ---------------------------------------------------------------------------------------------------------- */

/* Collects the schemas of a member's value. name OPTIONAL, of `properties`; found: the patterns that match it. */
static enum err value_parts(struct writer *w, const struct object *o, const char *name, uint32_t found,
                            struct parts *out)
{
    out->n = 0;
    out->is_none = false;
    for (size_t i = 0; i < o->list->n; i++) {
        const struct part *p = &o->list->at[i];
        const json_t *own = name != NULL ? json_object_get(schema_keyword(w, p, "properties"), name) : NULL;
        const json_t *more = schema_keyword(w, p, "additionalProperties");
        bool is_named = own != NULL;
        if (own != NULL) {
            const char *path = schema_join(w, p->path, "properties");
            TRY(path != NULL ? schema_add_part(w, p, own, schema_join(w, path, name), out) : ERR_NOMEM);
        }
        for (size_t k = 0; k < o->n_patterns; k++) {
            if (o->patterns[k].part == i && (found >> k & 1) != 0) {
                TRY(schema_add_part(w, p, o->patterns[k].schema, o->patterns[k].path, out));
                is_named = true;
            }
        }
        if (!is_named && more != NULL) {
            TRY(schema_add_part(w, p, more, schema_join(w, p->path, "additionalProperties"), out));
        }
    }
    return add_unevaluated(w, o, name, found, out);
}

/* Adds a key, the separator and the value. name: NULL for names not in o->names, whose members can repeat. */
static enum err add_member(struct writer *w, struct object *o, const char *name, regex_id key_text, struct parts *value)
{
    symbol_id of;
    bool must_be = name != NULL && json_is_true(json_object_get(o->names, name));
    TRY(schema_need(w, value, &of));
    symbol_id key = grammar_lexeme(w->b, key_text);
    o->member_names[o->n_members] = name;
    o->members[o->n_members++] =
        (struct grammar_member){grammar_sequence(w->b, (symbol_id[]){key, of}, 2), must_be, name == NULL};
    return ERR_OK;
}

/* Returns the text between a key's closing quote and the value. */
static regex_id after_key(struct writer *w)
{
    return regex_concat(w->s, w->spaces, regex_concat(w->s, regex_byte(w->s, ':'), w->spaces));
}

/* Returns the key as jansson writes it, and the text after it. */
static regex_id written(struct writer *w, const char *key)
{
    json_t *value = json_string_nocheck(key);
    char *dumped = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    regex_id r = dumped != NULL ? regex_bytes_before(w->s, dumped, strlen(dumped), after_key(w)) : REGEX_NONE;
    w->has_failed |= dumped == NULL;
    mem_free(dumped);
    json_decref(value);
    return r;
}

static enum err add_named(struct writer *w, struct object *o, const char *name)
{
    struct parts value;
    uint32_t found = 0;
    bool must_be = json_is_true(json_object_get(o->names, name));
    for (size_t k = 0; k < o->n_patterns; k++) {
        found |= (uint32_t)schema_matches(w, o->patterns[k].r, name) << k;
    }
    TRY(schema_spend(w, 20 + 6 * o->list->n + o->n_patterns));
    TRY(value_parts(w, o, name, found, &value));
    bool may_be = !value.is_none && (o->allowed == REGEX_ALL || schema_matches(w, o->allowed, name));
    o->is_none |= must_be && !may_be;
    return may_be ? add_member(w, o, name, written(w, name), &value) : ERR_OK;
}

/* Splits the names by whether they match the pattern. */
static enum err split(struct writer *w, struct other *all, size_t *n, size_t k, const struct pattern *p)
{
    for (size_t i = 0, before = *n; i < before; i++) {
        const struct other one = all[i];
        struct other halves[2] = {{regex_and(w->s, one.names, regex_not(w->s, p->r)), one.found},
                                  {regex_and(w->s, one.names, p->r), one.found | (uint32_t)1 << k}};
        bool none[2];
        for (int h = 0; h < 2; h++) {
            TRY(regex_is_none(w->s, halves[h].names, BUDGET, &none[h]));
        }
        if (!none[0] && !none[1] && *n == MAX_CLASSES) {
            return ERR_GRAMMAR_LIMIT;
        }
        all[i] = halves[none[0] ? 1 : 0];
        if (!none[0] && !none[1]) {
            all[(*n)++] = halves[1];
        }
    }
    return ERR_OK;
}

/* Checks whether grammar_close_objects applies: the object has only the members that it names. */
static bool is_closed_by_default(const struct writer *w, const struct object *o)
{
    static const char *const says[] = {"additionalProperties", "patternProperties", "unevaluatedProperties"};
    bool names_some = false, is_silent = o->n_asked == 0;
    for (size_t i = 0; i < o->list->n; i++) {
        const struct part *p = &o->list->at[i];
        names_some |= schema_keyword(w, p, "properties") != NULL || schema_keyword(w, p, "required") != NULL;
        for (size_t k = 0; k < ARRAY_LEN(says); k++) {
            is_silent = is_silent && schema_keyword(w, p, says[k]) == NULL;
        }
    }
    return grammar_closes_objects(w->b) && names_some && is_silent && json_object_size(o->names) >= o->counts.min;
}

/* Checks whether the object can have members with other names. */
static bool has_others(struct writer *w, const struct object *o)
{
    bool has = !is_closed_by_default(w, o);
    for (size_t i = 0; i < o->list->n; i++) {
        bool is_closed = json_is_false(schema_keyword(w, &o->list->at[i], "additionalProperties"));
        has = has && (!is_closed || json_object_size(schema_keyword(w, &o->list->at[i], "patternProperties")) > 0);
    }
    return has;
}

/* Adds members with other names. */
static enum err add_others(struct writer *w, struct object *o)
{
    size_t n_names = json_object_size(o->names), i = 0, n = 1;
    struct other all[MAX_CLASSES];
    const char *key;
    json_t *value;
    struct regex_word *own = arena_alloc(&w->arena, (n_names + 1) * sizeof *own);
    TRY_MEM(own != NULL);
    json_object_foreach(o->names, key, value) { own[i++] = (struct regex_word){key, strlen(key)}; }
    regex_id rest = regex_and(w->s, w->any_text, regex_not(w->s, regex_words(w->s, own, n_names)));
    all[0] = (struct other){regex_and(w->s, rest, o->allowed), 0};
    for (size_t k = 0; k < o->n_patterns; k++) {
        TRY(split(w, all, &n, k, &o->patterns[k]));
    }
    for (size_t k = 0; k < n; k++) {
        struct parts of;
        TRY(value_parts(w, o, NULL, all[k].found, &of));
        if (!of.is_none) {
            regex_id quote = regex_byte(w->s, '"'), inside = regex_json_escaped(w->s, all[k].names);
            regex_id after = regex_concat(w->s, quote, after_key(w));
            regex_id text = regex_concat(w->s, quote, regex_concat(w->s, inside, after));
            TRY(add_member(w, o, NULL, text, &of));
        }
    }
    return ERR_OK;
}

/* Members with other names can repeat, and duplicates count once, so at most one such member can be required. */
static enum err check_least(struct writer *w, const struct object *o)
{
    uint32_t n_must = 0;
    bool may_repeat = false;
    for (size_t i = 0; i < o->n_members; i++) {
        n_must += o->members[i].must_be;
        may_repeat = may_repeat || o->members[i].may_repeat;
    }
    return !may_repeat || o->counts.min <= 1 || o->counts.min <= n_must
               ? ERR_OK
               : schema_refuse(w, o->list->at[0].path, "minProperties",
                               "expected 1, or as many as are required, at most");
}

static void write_set(struct writer *w, const struct node *node, const struct object *o)
{
    symbol_id all = grammar_set(w->b, o->members, o->n_members, w->comma, o->counts.min, o->counts.max);
    schema_put(w, node, grammar_sequence(w->b, (symbol_id[]){schema_opening(w, "{"), all, schema_closing(w, "}")}, 3));
}

/* Writes a set for each choice of required members, one per requirement. Choices are counted like a number with one
 * digit per requirement. */
static enum err write_choices(struct writer *w, const struct node *node, struct object *o)
{
    size_t n_tries = 1, n_choices = 0;
    for (size_t i = 0; i < o->n_asked; i++) {
        n_tries *= MIN_OF(o->n_members, (size_t)MAX_TRIES);
        if (n_tries > MAX_TRIES) {
            return ERR_GRAMMAR_LIMIT;
        }
    }
    for (size_t k = 0; k < n_tries; k++) {
        size_t chosen[MAX_ASKED], left = k, n = 0;
        bool was[MAX_ASKED], can = true;
        for (; n < o->n_asked && can; left /= o->n_members) {
            const char *name = o->member_names[left % o->n_members];
            can = name == NULL || json_object_get(o->asked[n], name) == NULL;
            chosen[n++] = left % o->n_members;
        }
        TRY(schema_spend(w, 10 + (can ? o->n_members : 0)));
        if (!can) {
            continue;
        }
        if (++n_choices > MAX_CHOICES) {
            return ERR_GRAMMAR_LIMIT;
        }
        for (size_t i = 0; i < n; i++) {
            was[i] = o->members[chosen[i]].must_be;
            o->members[chosen[i]].must_be = true;
        }
        write_set(w, node, o);
        for (size_t i = n; i-- > 0;) {
            o->members[chosen[i]].must_be = was[i];
        }
    }
    return ERR_OK;
}

static enum err write_members(struct writer *w, const struct node *node, struct object *o)
{
    const char *key;
    json_t *value;
    TRY(schema_check_unevaluated(w, o->list, UNEVALUATED, &o->has_unevaluated));
    TRY(read_parts(w, o));
    o->members = arena_alloc(&w->arena, (json_object_size(o->names) + MAX_CLASSES) * sizeof *o->members);
    o->member_names = arena_alloc(&w->arena, (json_object_size(o->names) + MAX_CLASSES) * sizeof *o->member_names);
    TRY_MEM(o->members != NULL && o->member_names != NULL);
    json_object_foreach(o->names, key, value) { TRY(add_named(w, o, key)); }
    TRY(has_others(w, o) ? add_others(w, o) : ERR_OK);
    TRY(w->is_loose ? ERR_OK : check_least(w, o));
    if (!o->is_none && o->counts.min <= o->counts.max && o->n_asked > 0) {
        return o->n_members > 0 ? write_choices(w, node, o) : ERR_OK;
    }
    if (!o->is_none && o->counts.min <= o->counts.max) {
        write_set(w, node, o);
    }
    return ERR_OK;
}

enum err schema_write_object(struct writer *w, const struct node *node, const struct parts *list)
{
    struct object o = {.list = list, .names = json_object(), .allowed = REGEX_ALL, .counts = {0, REGEX_UNBOUNDED}};
    enum err err = o.names != NULL ? write_members(w, node, &o) : ERR_NOMEM;
    json_decref(o.names);
    return err;
}
