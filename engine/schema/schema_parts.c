/* Lists of schemas that a value must satisfy together, and the node of each list; a node becomes one rule. */
#include "engine/schema/schema_internal.h"

#include "engine/schema/schema_disjoint.h"
#include "engine/schema/schema_keyword.h"

/* --- keywords --------------------------------------------------------------------------------------------------------- */

bool schema_is_word(const char *key)
{
    const struct schema_keyword *keyword = schema_keyword_find(key);
    return keyword != NULL && keyword->restricts;
}

bool schema_says_more(const json_t *schema, const char *one)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
    {
        if ((one == NULL || strcmp(key, one) != 0) && schema_is_word(key)) {
            return true;
        }
    }
    return false;
}

static uint64_t hash_address(const void *p) { return ((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 20; }

static uint64_t hash_seen(const void *writer, uint32_t i)
{
    return hash_address(((const struct writer *)writer)->seen[i].schema);
}

struct seen_key {
    const struct seen *seen;
    const json_t *schema;
};

static ALWAYS_INLINE bool is_seen(const void *key, uint32_t i)
{
    const struct seen_key *k = key;
    return k->seen[i].schema == k->schema;
}

/* Makes room for one more entry. */
static enum err reserve_seen(struct writer *w)
{
    TRY(mem_grow(&w->seen, w->n_seen, &w->cap_seen, sizeof *w->seen, MEM_REQUEST));
    return table_reserve(&w->seen_table, w->cap_seen, hash_seen, w, MEM_REQUEST);
}

/* Returns the properties of the object's keys, valid until the next call; NULL: no memory. */
static const struct seen *see(struct writer *w, const json_t *schema)
{
    const char *key;
    json_t *value;
    uint32_t i = table_find(&w->seen_table, hash_address(schema), is_seen, &(struct seen_key){w->seen, schema});
    if (i != TABLE_NONE) {
        return &w->seen[i];
    }
    if (reserve_seen(w) != ERR_OK) {
        w->has_failed = true;
        return NULL;
    }
    struct seen *seen = &w->seen[w->n_seen];
    *seen = (struct seen){.schema = schema, .has_id = schema_id(schema) != NULL};
    json_object_foreach((json_t *)schema, key, value)
    {
        seen->words |= schema_word_bit(key);
        seen->says = seen->says || schema_is_word(key);
    }
    table_add(&w->seen_table, hash_address(schema), (uint32_t)w->n_seen++);
    return seen;
}

/* --- lists of parts as rules ------------------------------------------------------------------------------------------- */

enum err schema_nullable(struct writer *w, const json_t *schema, const json_t **out)
{
    static const char *const others[] = {"$ref", "allOf", "anyOf", "oneOf"};
    bool has_others = false;
    *out = schema;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        has_others = has_others || json_object_get(schema, others[i]) != NULL;
    }
    if (!has_others || !json_is_true(json_object_get(schema, "nullable")) || json_object_get(schema, "type") != NULL ||
        (w->ref_is_alone && json_object_get(schema, "$ref") != NULL) ||
        schema_was_made(w, schema, SCHEMA_NULLABLE, out)) {
        return ERR_OK;
    }
    json_t *rest = json_copy((json_t *)(uintptr_t)schema);
    json_object_del(rest, "nullable");
    return schema_keep(w, schema, SCHEMA_NULLABLE, json_pack("{s[o{ss}]}", "anyOf", rest, "type", "null"), out);
}

enum err schema_add_part(struct writer *w, const struct part *from, const json_t *schema, const char *path,
                         struct parts *list)
{
    TRY_MEM(path != NULL);
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return w->is_loose ? ERR_OK : schema_refuse(w, path, "", "expected a schema, an object or a boolean");
    }
    TRY(schema_nullable(w, schema, &schema));
    list->is_none |= json_is_false(schema);
    const struct seen *seen = json_is_boolean(schema) ? NULL : see(w, schema);
    if (seen == NULL || !seen->says) {
        return w->has_failed ? ERR_NOMEM : ERR_OK;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].schema == schema) {
            return ERR_OK;
        }
    }
    if (list->n == SCHEMA_MAX_PARTS) {
        return err_set(w->info, ERR_GRAMMAR_LIMIT, NULL, "JSON Schema: expected at most %d schemas for one value",
                       SCHEMA_MAX_PARTS);
    }
    bool is_of_another = from != NULL && (from->is_of_another || seen->has_id);
    bool is_of_list = from >= list->at && from < list->at + list->n;
    list->at[list->n++] = (struct part){.schema = schema,
                                        .words = seen->words,
                                        .path = path,
                                        .is_of_another = is_of_another,
                                        .asked_by = is_of_list ? (uint32_t)(from - list->at) + 1 : 0};
    return ERR_OK;
}

static uint64_t hash_parts(const struct part *parts, size_t n)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ (uint64_t)(uintptr_t)parts[i].schema ^ parts[i].is_chosen ^ 2u * parts[i].is_valued) *
               0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static uint64_t hash_node(const void *writer, uint32_t i)
{
    const struct node *node = &((const struct writer *)writer)->nodes[i];
    return hash_parts(node->parts, node->n);
}

struct node_key {
    const struct node *nodes;
    const struct parts *list;
};

static bool is_node(const void *key, uint32_t i)
{
    const struct node_key *k = key;
    const struct node *node = &k->nodes[i];
    const struct parts *list = k->list;
    bool same = node->n == list->n;
    for (size_t p = 0; p < list->n && same; p++) {
        same = node->parts[p].schema == list->at[p].schema && node->parts[p].is_chosen == list->at[p].is_chosen &&
               node->parts[p].is_valued == list->at[p].is_valued;
    }
    return same;
}

enum err schema_need(struct writer *w, struct parts *list, symbol_id *out)
{
    if (list->is_none) {
        *out = grammar_rule(w->b); /* derives nothing */
        return ERR_OK;
    }
    if (list->n == 0) {
        *out = schema_any_value(w);
        return ERR_OK;
    }
    uint64_t hash = hash_parts(list->at, list->n);
    uint32_t i = table_find(&w->table, hash, is_node, &(struct node_key){w->nodes, list});
    if (i != TABLE_NONE) {
        *out = w->nodes[i].rule;
        return ERR_OK;
    }
    if (w->n_nodes == w->max_nodes && w->is_loose) {
        *out = schema_any_value(w);
        return ERR_OK;
    }
    if (w->n_nodes == w->max_nodes) {
        return err_set(w->info, ERR_GRAMMAR_LIMIT, NULL, "JSON Schema: expected at most %d schemas within it",
                       SCHEMA_MAX_NODES);
    }
    TRY(table_reserve(&w->table, w->n_nodes + 1, hash_node, w, MEM_REQUEST));
    struct part *parts = arena_alloc(&w->arena, list->n * sizeof *parts);
    TRY_MEM(parts != NULL);
    memcpy(parts, list->at, list->n * sizeof *parts);
    *out = grammar_rule(w->b);
    table_add(&w->table, hash, (uint32_t)w->n_nodes);
    w->nodes[w->n_nodes++] = (struct node){parts, list->n, *out};
    return ERR_OK;
}

enum err schema_follow(struct writer *w, const struct part *p, const json_t *ref, const char *path, const json_t **out)
{
    if (p->is_of_another) {
        return schema_refuse(w, path, "$ref", "expected no schema around it with an $id of its own");
    }
    *out = json_is_string(ref) ? schema_resolve(w->root, json_string_value(ref)) : NULL;
    return *out != NULL
               ? ERR_OK
               : schema_refuse(
                     w, path, "$ref",
                     "expected a JSON pointer to a schema of the same document, as #/$defs/name, an $anchor or an "
                     "$id in it");
}
