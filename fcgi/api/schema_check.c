/* Keeps a list of schemas to check, each with its parent's index: schemas nest as deep as the request's JSON can, and a
 * path is built only for an error. [JSON Schema 2020-12 and draft 4, validation] */
#include "fcgi/api/schema_check.h"

#include "engine/base/buf.h"
#include "engine/schema/schema_keyword.h"

#include <stdio.h>
#include <string.h>

static const char *const expectations[] = {
    [SCHEMA_KEYWORD_TYPES] =
        "\"object\", \"array\", \"string\", \"number\", \"integer\", \"boolean\", \"null\", or an array of them",
    [SCHEMA_KEYWORD_SCHEMA] = "a schema: an object or a boolean",
    [SCHEMA_KEYWORD_SCHEMAS] = "an array of schemas",
    [SCHEMA_KEYWORD_ITEMS] = "a schema or an array of schemas",
    [SCHEMA_KEYWORD_NAMED] = "an object of schemas",
    [SCHEMA_KEYWORD_DEPENDS] = "an object of schemas or arrays of strings",
    [SCHEMA_KEYWORD_STRING] = "a string",
    [SCHEMA_KEYWORD_STRINGS] = "an array of strings",
    [SCHEMA_KEYWORD_NAMED_STRINGS] = "an object of arrays of strings",
    [SCHEMA_KEYWORD_VALUES] = "an array",
    [SCHEMA_KEYWORD_COUNT] = "a whole number, 0 or more",
    [SCHEMA_KEYWORD_NUMBER] = "a number",
    [SCHEMA_KEYWORD_LIMIT] = "a number, or a boolean",
    [SCHEMA_KEYWORD_STEP] = "a number above 0",
    [SCHEMA_KEYWORD_FLAG] = "a boolean",
};

/* A value that must be a schema. */
struct entry {
    const json_t *value;
    const char *keyword, *name; /* in `parent`: the keyword, then the name, or .. */
    size_t index;               /* .. the index if it is not NO_INDEX */
    size_t parent;              /* the parent's index; for the whole schema its own */
};

static const size_t NO_INDEX = (size_t)-1;

/* Returns entry i of the list, which is stored as bytes. */
static struct entry get(const struct buf *list, size_t i)
{
    struct entry e;
    memcpy(&e, list->data + i * sizeof e, sizeof e);
    return e;
}

static void add(struct buf *list, const struct entry *e) { buf_append(list, e, sizeof *e); }

/* --- places ------------------------------------------------------------------------------------------------------- */

static void put_name(struct buf *out, const char *name)
{
    buf_putc(out, '/');
    for (; *name != '\0'; name++) {
        buf_puts(out, *name == '~' ? "~0" : *name == '/' ? "~1" : "");
        if (*name != '~' && *name != '/') {
            buf_putc(out, *name);
        }
    }
}

static void put_entry(struct buf *out, const struct entry *e)
{
    put_name(out, e->keyword);
    if (e->name != NULL) {
        put_name(out, e->name);
    }
    if (e->index != NO_INDEX) {
        buf_printf(out, "/%zu", e->index);
    }
}

/* Writes the JSON pointer to `last`, which is in entry `parent`, or is that entry if its keyword is NULL. */
static void put_place(const struct buf *list, size_t parent, const struct entry *last, struct buf *out)
{
    size_t path[JSON_IN_MAX_DEPTH], n = 0;
    for (size_t i = parent; i > 0 && n < ARRAY_LEN(path); i = get(list, i).parent) {
        path[n++] = i;
    }
    while (n > 0) {
        struct entry e = get(list, path[--n]);
        put_entry(out, &e);
    }
    if (last->keyword != NULL) {
        put_entry(out, last);
    }
}

/* Returns the error for the value at `last`. */
static enum err refuse(const struct buf *list, size_t parent, const struct entry *last, const char *expected,
                       const char *at, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    struct buf place;
    buf_init(&place, 0, MEM_REQUEST);
    put_place(list, parent, last, &place);
    enum err err = buf_ok(&place);
    snprintf(where, sizeof where, "%s%s", at, place.data != NULL ? place.data : "");
    buf_fini(&place);
    return err != ERR_OK ? err : json_in_refuse(ERR_INVALID_SCHEMA, where, expected, last->value, info);
}

/* --- forms -------------------------------------------------------------------------------------------------------- */

static bool is_type(const json_t *v)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    bool is_known = false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        is_known = is_known || json_read_is(v, names[i]);
    }
    return is_known;
}

static bool is_string(const json_t *v) { return json_is_string(v); }

/* Checks for an array whose elements all satisfy `is`. */
static bool is_array_of(const json_t *v, bool (*is)(const json_t *v))
{
    bool all = json_is_array(v);
    for (size_t i = 0; i < json_array_size(v) && all; i++) {
        all = is(json_array_get(v, i));
    }
    return all;
}

static bool is_object_of_strings(const json_t *v)
{
    const char *name;
    json_t *member;
    bool all = json_is_object(v);
    json_object_foreach((json_t *)v, name, member) { all = all && is_array_of(member, is_string); }
    return all;
}

/* Checks v's form, without the schemas in it. */
static bool fits(const json_t *v, enum schema_keyword_form form)
{
    double number = json_number_value(v);
    switch (form) {
    case SCHEMA_KEYWORD_ANY:
        return true;
    case SCHEMA_KEYWORD_TYPES:
        return is_type(v) || (json_array_size(v) > 0 && is_array_of(v, is_type));
    case SCHEMA_KEYWORD_SCHEMA:
        return true; /* checked later as a schema */
    case SCHEMA_KEYWORD_SCHEMAS:
        return json_is_array(v) && json_array_size(v) > 0;
    case SCHEMA_KEYWORD_ITEMS:
        return json_is_object(v) || json_is_boolean(v) || json_is_array(v);
    case SCHEMA_KEYWORD_NAMED:
    case SCHEMA_KEYWORD_DEPENDS:
        return json_is_object(v);
    case SCHEMA_KEYWORD_STRING:
        return json_is_string(v);
    case SCHEMA_KEYWORD_STRINGS:
        return is_array_of(v, is_string);
    case SCHEMA_KEYWORD_NAMED_STRINGS:
        return is_object_of_strings(v);
    case SCHEMA_KEYWORD_VALUES:
        return json_is_array(v);
    case SCHEMA_KEYWORD_COUNT:
        return json_is_number(v) && number >= 0 && number < 9.2e18 && number == (double)(int64_t)number;
    case SCHEMA_KEYWORD_NUMBER:
        return json_is_number(v);
    case SCHEMA_KEYWORD_LIMIT:
        return json_is_number(v) || json_is_boolean(v);
    case SCHEMA_KEYWORD_STEP:
        return json_is_number(v) && number > 0;
    case SCHEMA_KEYWORD_FLAG:
        return json_is_boolean(v);
    }
    return false;
}

/* Adds the schemas in v, a keyword's value that has its form. */
static void add_schemas(struct buf *list, const struct entry *of, enum schema_keyword_form form)
{
    struct entry e = *of;
    const char *name;
    json_t *member;
    if (form == SCHEMA_KEYWORD_SCHEMA || (form == SCHEMA_KEYWORD_ITEMS && !json_is_array(of->value))) {
        add(list, of);
    } else if (form == SCHEMA_KEYWORD_SCHEMAS || form == SCHEMA_KEYWORD_ITEMS) {
        for (e.index = 0; e.index < json_array_size(of->value); e.index++) {
            e.value = json_array_get(of->value, e.index);
            add(list, &e);
        }
    } else if (form == SCHEMA_KEYWORD_NAMED || form == SCHEMA_KEYWORD_DEPENDS) {
        json_object_foreach((json_t *)of->value, name, member)
        {
            if (form == SCHEMA_KEYWORD_NAMED || !is_array_of(member, is_string)) {
                e.name = name;
                e.value = member;
                add(list, &e);
            }
        }
    }
}

/* Checks the i-th entry and adds the schemas in it. */
static enum err check_entry(struct buf *list, size_t i, const char *at, struct err_info *info)
{
    struct entry e = get(list, i);
    const char *name;
    json_t *value;
    if (!json_is_object(e.value) && !json_is_boolean(e.value)) {
        return refuse(list, e.parent, &e, expectations[SCHEMA_KEYWORD_SCHEMA], at, info);
    }
    json_object_foreach((json_t *)e.value, name, value)
    {
        const struct schema_keyword *word = schema_keyword_find(name);
        struct entry in = {value, name, NULL, NO_INDEX, i};
        if (word == NULL || json_is_null(value)) {
            continue;
        }
        if (!fits(value, word->form)) {
            return refuse(list, i, &in, expectations[word->form], at, info);
        }
        add_schemas(list, &in, word->form);
    }
    return ERR_OK;
}

enum err schema_check(const json_t *schema, const char *at, struct err_info *info)
{
    struct buf list;
    enum err err = ERR_OK;
    buf_init(&list, 0, MEM_REQUEST);
    add(&list, &(struct entry){schema, NULL, NULL, NO_INDEX, 0});
    for (size_t i = 0; i < list.len / sizeof(struct entry) && err == ERR_OK && list.err == ERR_OK; i++) {
        err = check_entry(&list, i, at, info);
    }
    err = err != ERR_OK ? err : buf_ok(&list);
    buf_fini(&list);
    return err;
}
