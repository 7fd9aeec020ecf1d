/* Writes the rules of a schema. A value must satisfy a list of schemas, the parts. $ref and allOf add parts; anyOf
 * yields one list per schema; schema_form.c expresses not, if and oneOf by these. Each list becomes one rule. Lists
 * without a rule yet are queued. */
#include "engine/schema/schema_internal.h"

#include "engine/schema/schema_refs.h"

/* --- lists of parts ----------------------------------------------------------------------------------------------- */

static enum err check_keywords(struct writer *w, const struct part *p)
{
    static const char *const refused[] = {"$dynamicRef", "$recursiveRef", "disallow", "extends"};
    TRY(schema_spend(w, 40 + 6 * json_object_size(p->schema)));
    for (size_t i = 0; i < ARRAY_LEN(refused) && !w->is_loose; i++) {
        if (schema_member(p, refused[i]) != NULL) {
            return schema_refuse(w, p->path, refused[i], "this keyword is not supported");
        }
    }
    return ERR_OK;
}

static enum err add_ref(struct writer *w, const struct part *p, const json_t *ref, struct parts *list)
{
    const json_t *found;
    TRY(schema_follow(w, p, ref, p->path, &found));
    for (size_t i = (size_t)(p - list->at) + 1; i != 0; i = list->at[i - 1].asked_by) {
        list->is_none |= list->at[i - 1].schema == found; /* a cycle: no value satisfies it */
    }
    return schema_add_part(w, p, found, json_string_value(ref) + 1, list); /* the text lives as long as the document */
}

static enum err add_all_of(struct writer *w, const struct part *p, struct parts *list)
{
    const json_t *all = schema_member(p, "allOf");
    if (all == NULL) {
        return ERR_OK;
    }
    const char *path = schema_join(w, p->path, "allOf");
    if (!json_is_array(all) || json_array_size(all) == 0) {
        return schema_refuse(w, p->path, "allOf", "expected an array of schemas");
    }
    for (size_t i = 0; i < json_array_size(all) && path != NULL; i++) {
        TRY(schema_add_part(w, p, json_array_get(all, i), schema_join_index(w, path, i), list));
    }
    return path != NULL ? ERR_OK : ERR_NOMEM;
}

/* Adds all schemas that the parts of the node require in addition to themselves. */
static enum err expand(struct writer *w, const struct node *node, struct parts *list)
{
    memcpy(list->at, node->parts, node->n * sizeof *list->at);
    list->n = node->n;
    list->is_none = false;
    for (size_t i = 0; i < list->n && !list->is_none; i++) {
        const struct part *p = &list->at[i];
        const json_t *ref = schema_member(p, "$ref"), *more = NULL;
        TRY(ref != NULL ? add_ref(w, p, ref, list) : ERR_OK);
        if (ref != NULL && w->ref_is_alone) {
            continue;
        }
        TRY(check_keywords(w, p));
        TRY(add_all_of(w, p, list));
        TRY(schema_conditions(w, p, &more));
        TRY(more != NULL ? schema_add_part(w, p, more, p->path, list) : ERR_OK);
        TRY(schema_one_of(w, p, &more));
        size_t n = list->n;
        TRY(more != NULL ? schema_add_part(w, p, more, p->path, list) : ERR_OK);
        if (list->n > n) {
            list->at[n].is_one_of = true;
        }
    }
    return ERR_OK;
}

/* Writes one alternative per schema of the i-th part's anyOf. */
static enum err write_any_of(struct writer *w, const struct node *node, const struct parts *list, size_t i)
{
    const struct part *p = &list->at[i];
    const json_t *all = schema_member(p, "anyOf");
    const char *path = schema_join(w, p->path, p->is_one_of ? "oneOf" : "anyOf");
    if (!json_is_array(all) || json_array_size(all) == 0) {
        return schema_refuse(w, p->path, "anyOf", "expected an array of schemas");
    }
    symbol_id symbol, last = 0;
    for (size_t k = 0; k < json_array_size(all) && path != NULL; k++) {
        struct parts one;
        TRY(schema_spend(w, 15 + 2 * list->n));
        parts_copy(&one, list);
        one.at[i].is_chosen = true;
        TRY(schema_add_part(w, p, json_array_get(all, k), schema_join_index(w, path, k), &one));
        if (one.n > list->n) {
            one.at[list->n].asked_by = (uint32_t)i + 1;
        }
        if (!one.is_none) {
            TRY(schema_need(w, &one, &symbol));
            if (k == 0 || symbol != last) { /* of equal alternatives one is enough */
                schema_put(w, node, symbol);
            }
            last = symbol;
        }
    }
    return path != NULL ? ERR_OK : ERR_NOMEM;
}

/* Reads the types that the part allows, bits of enum schema_type. */
static enum err read_types(struct writer *w, const struct part *p, unsigned *out)
{
    const json_t *type = schema_keyword(w, p, "type");
    *out = schema_types_of(type);
    for (size_t i = 0; i < MAX_OF(json_array_size(type), type != NULL ? 1u : 0u); i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        *out |= one == w->fraction ? SCHEMA_FRACTION : 0;
        if (one != w->fraction && schema_types_named(one) == 0) {
            return schema_refuse(w, p->path, "type",
                                 "expected object, array, string, number, integer, boolean or null");
        }
    }
    *out |= json_is_true(schema_keyword(w, p, "nullable")) ? SCHEMA_NULL : 0;
    return ERR_OK;
}

static symbol_id text(struct writer *w, const char *s) { return grammar_lexeme(w->b, regex_bytes(w->s, s, strlen(s))); }

/* Writes scalars that have only one text. */
static void write_word(struct writer *w, const struct node *node, const struct parts *list, json_t *value,
                       const char *word)
{
    if (!schema_is_left_out(w, list, value)) {
        schema_put(w, node, text(w, word));
    }
}

/* If objects and arrays are excluded, writes the node as the list with the exclusions as a part. Enumerated values
 * apply all exclusions themselves. */
static enum err leave_out(struct writer *w, const struct node *node, const struct parts *list, bool *is_written)
{
    struct parts more;
    symbol_id symbol;
    parts_copy(&more, list);
    for (size_t i = 0; i < list->n; i++) {
        const json_t *others = NULL;
        TRY(list->at[i].is_valued ? ERR_OK : schema_other_values(w, &list->at[i], &others));
        TRY(others != NULL ? schema_add_part(w, &list->at[i], others, list->at[i].path, &more) : ERR_OK);
    }
    *is_written = more.n > list->n; /* otherwise no part excludes any, or the list has all exclusions */
    if (*is_written) {
        TRY(schema_need(w, &more, &symbol));
        schema_put(w, node, symbol);
    }
    return ERR_OK;
}

static enum err write_types(struct writer *w, const struct node *node, const struct parts *list)
{
    unsigned types = SCHEMA_ALL_TYPES, one;
    bool has_values, is_written = false;
    for (size_t i = 0; i < list->n; i++) {
        TRY(read_types(w, &list->at[i], &one));
        types &= one;
    }
    TRY(schema_write_values(w, node, list, types, &has_values));
    TRY(!has_values && (types & (SCHEMA_OBJECT | SCHEMA_ARRAY)) != 0 ? leave_out(w, node, list, &is_written) : ERR_OK);
    if (has_values || is_written) {
        return ERR_OK;
    }
    TRY((types & SCHEMA_OBJECT) != 0 ? schema_write_object(w, node, list) : ERR_OK);
    TRY((types & SCHEMA_ARRAY) != 0 ? schema_write_array(w, node, list) : ERR_OK);
    TRY((types & SCHEMA_STRING) != 0 ? schema_write_string(w, node, list) : ERR_OK);
    TRY((types & (SCHEMA_INTEGER | SCHEMA_FRACTION)) != 0 ? schema_write_number(w, node, list, types) : ERR_OK);
    if ((types & SCHEMA_BOOLEAN) != 0) {
        write_word(w, node, list, json_true(), "true");
        write_word(w, node, list, json_false(), "false");
    }
    if ((types & SCHEMA_NULL) != 0) {
        write_word(w, node, list, json_null(), "null");
    }
    return ERR_OK;
}

static enum err write_node(struct writer *w, const struct node *node)
{
    struct parts list;
    TRY(expand(w, node, &list));
    if (list.is_none) {
        return ERR_OK;
    }
    for (size_t i = 0; i < list.n; i++) {
        if (!list.at[i].is_chosen && schema_keyword(w, &list.at[i], "anyOf") != NULL) {
            return write_any_of(w, node, &list, i);
        }
    }
    return write_types(w, node, &list);
}

/* Adds the location to the error unless it has one. */
static enum err say_where(struct writer *w, const struct node *node, enum err err)
{
    bool is_full = err == ERR_NOMEM && arena_is_full(&w->arena);
    if (!is_full && err != ERR_GRAMMAR_LIMIT) {
        return err;
    }
    const char *path = node->n > 0 && node->parts[0].path[0] != '\0' ? node->parts[0].path : "#";
    return w->info->code == ERR_GRAMMAR_LIMIT
               ? ERR_GRAMMAR_LIMIT
               : err_set(w->info, ERR_GRAMMAR_LIMIT, NULL,
                         "JSON Schema, %.200s: the schema takes too much work or memory, of which this was the last",
                         path);
}

enum err schema_write_all(struct writer *w)
{
    while (w->n_written < w->n_nodes) {
        const struct node node = w->nodes[w->n_written++];
        enum err err = write_node(w, &node);
        if (err == ERR_INVALID_SCHEMA && w->is_loose) {
            schema_put(w, &node, schema_any_value(w));
            err = ERR_OK;
        }
        err = err == ERR_OK && w->has_failed ? ERR_NOMEM : err;
        err = err == ERR_OK ? regex_ok(w->s) : err;
        TRY(say_where(w, &node, err));
    }
    return ERR_OK;
}

static enum err write_root(struct writer *w, symbol_id *out)
{
    struct parts list = {.n = 0};
    const char *draft = json_string_value(json_object_get(w->root, "$schema"));
    w->ref_is_alone = draft != NULL && (strstr(draft, "draft-04") != NULL || strstr(draft, "draft-06") != NULL ||
                                        strstr(draft, "draft-07") != NULL);
    TRY(schema_add_part(w, NULL, w->root, "", &list));
    TRY(schema_need(w, &list, out));
    return schema_write_all(w);
}

enum err schema_add(struct grammar_builder *b, const json_t *schema, symbol_id *out, struct err_info *info)
{
    struct writer w = {.b = b, .root = schema, .info = info};
    json_t *plain;
    enum err err = schema_refs_plain(schema, &plain);
    w.root = plain != NULL ? plain : schema;
    err = err == ERR_OK ? schema_writer_init(&w, SCHEMA_MAX_NODES) : err;
    err = err == ERR_OK ? write_root(&w, out) : err;
    if (err == ERR_NOMEM) {
        err_set(info, err, NULL, "out of memory for the JSON Schema");
    } else if (err == ERR_GRAMMAR_LIMIT && info->code != err) {
        err_set(info, err, NULL, "JSON Schema: it takes too much work or memory");
    }
    schema_writer_fini(&w);
    json_decref(plain);
    return err;
}
