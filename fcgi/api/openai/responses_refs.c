#include "fcgi/api/openai/responses_refs.h"

#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "fcgi/api/openai/responses_output.h"
#include "fcgi/api/openai/responses_store.h"

#include <stdio.h>
#include <string.h>

/* References to items of one response, and that response's items. */
struct group {
    json_t *found; /* owned: the items by id; of several with one id the first */
    json_t *bytes; /* owned: lengths of the inserted items, by id */
};

struct resolving {
    json_t *items; /* borrowed */
    size_t most_bytes, n_bytes;
    struct err_info *info;
};

static bool is_reference(const json_t *item)
{
    const json_t *type = json_read_get(item, "type");
    bool has_no_other = type == NULL && json_object_get(item, "role") == NULL;
    return (has_no_other || json_read_is(type, "item_reference")) && json_is_string(json_object_get(item, "id"));
}

static const char *id_of(const json_t *item) { return json_string_value(json_object_get(item, "id")); }

/* Writes the id of the response that the item's id names; false if it names none. */
static bool response_of(const char *item_id, char id[RESPONSES_ID_BYTES])
{
    const char *digits = strchr(item_id, '_');
    if (digits == NULL || strlen(digits) <= RESPONSES_HEX) {
        return false;
    }
    snprintf(id, RESPONSES_ID_BYTES, "resp_%.*s", RESPONSES_HEX, digits + 1);
    return true;
}

/* Groups the positions of references in `items` by response: an object of arrays. */
static enum err group_references(const json_t *items, json_t *groups)
{
    char id[RESPONSES_ID_BYTES];
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        if (!is_reference(item) || !response_of(id_of(item), id)) {
            continue;
        }
        json_t *places = json_object_get(groups, id);
        if (places == NULL) {
            places = json_array();
            TRY(json_object_set_new(groups, id, places) == 0 ? ERR_OK : ERR_NOMEM);
        }
        TRY(json_array_append_new(places, json_integer((json_int_t)i)) == 0 ? ERR_OK : ERR_NOMEM);
    }
    return ERR_OK;
}

static enum err index_items(const json_t *own, struct group *g)
{
    g->found = json_object();
    g->bytes = json_object();
    TRY_MEM(g->found != NULL && g->bytes != NULL);
    for (size_t i = 0; i < json_array_size(own); i++) {
        json_t *item = json_array_get(own, i);
        const char *id = id_of(item);
        if (id != NULL && json_object_get(g->found, id) == NULL) {
            TRY(json_object_set(g->found, id, item) == 0 ? ERR_OK : ERR_NOMEM);
        }
    }
    return ERR_OK;
}

/* Measures the item's length as JSON. */
static enum err measure(const json_t *item, size_t *n)
{
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    json_write_value(&text, item, false);
    enum err err = buf_ok(&text);
    *n = text.len;
    buf_fini(&text);
    return err;
}

/* Counts another use of the item. */
static enum err count(struct resolving *r, struct group *g, const char *id, const json_t *item)
{
    const json_t *known = json_object_get(g->bytes, id);
    size_t n = (size_t)json_integer_value(known);
    if (known == NULL) {
        TRY(measure(item, &n));
        TRY(json_object_set_new(g->bytes, id, json_integer((json_int_t)n)) == 0 ? ERR_OK : ERR_NOMEM);
    }
    if (n > r->most_bytes - r->n_bytes) {
        return err_set(r->info, ERR_TOO_LARGE, "input",
                       "input: expected references to items of at most %zu bytes in all, found more", r->most_bytes);
    }
    r->n_bytes += n;
    return ERR_OK;
}

static enum err put_in(struct resolving *r, struct group *g, const json_t *places)
{
    for (size_t k = 0; k < json_array_size(places); k++) {
        size_t i = (size_t)json_integer_value(json_array_get(places, k));
        const char *id = id_of(json_array_get(r->items, i));
        json_t *item = json_object_get(g->found, id);
        if (item != NULL) {
            TRY(count(r, g, id, item));
            TRY(json_array_set(r->items, i, item) == 0 ? ERR_OK : ERR_NOMEM);
        }
    }
    return ERR_OK;
}

/* Resolves all references to items of one response. */
static enum err resolve_group(struct resolving *r, const struct apikey_id *owner, const char *response,
                              const json_t *places)
{
    json_t *own = NULL;
    struct group g = {NULL, NULL};
    enum err err = responses_store_own(owner, response, &own);
    if (err == ERR_RESPONSE_NOT_FOUND) {
        return ERR_OK;
    }
    err = err != ERR_OK ? err : index_items(own, &g);
    err = err != ERR_OK ? err : put_in(r, &g, places);
    json_decref(own);
    json_decref(g.found);
    json_decref(g.bytes);
    return err;
}

enum err responses_refs_resolve(const struct apikey_id *owner, json_t *items, size_t most_bytes, struct err_info *info)
{
    struct resolving r = {.items = items, .most_bytes = most_bytes, .info = info};
    json_t *groups = json_object(), *places;
    const char *response;
    enum err err = groups != NULL ? group_references(items, groups) : ERR_NOMEM;
    json_object_foreach(groups, response, places)
    {
        err = err != ERR_OK ? err : resolve_group(&r, owner, response, places);
    }
    json_decref(groups);
    return err;
}
