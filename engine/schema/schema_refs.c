/* Walks the document three times: to find names, to find broken references, and to copy it. */
#include "engine/schema/schema_refs.h"

#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/schema/schema_disjoint.h"
#include "engine/schema/schema_keyword.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 256, MAX_RESOURCES = 256, MAX_URI = 2048 };

/* A schema with an $id, or the document; references within are relative to it. */
struct resource {
    char *uri, *pointer; /* absolute, without a fragment; from the document's root, as a fragment */
    bool is_broken;      /* it contains a broken reference: keep its $id, so that the reference is rejected */
};

struct frame {
    const json_t *from;
    json_t *to;       /* the copy */
    void *member;     /* of an object: the next member */
    const char *name; /* in the enclosing object; NULL: `at` */
    size_t i, at;     /* of an array: the next element; the index in the enclosing array */
    size_t resource;
    bool is_map; /* its members are schemas, whatever their names */
};

struct walk {
    struct frame stack[MAX_DEPTH];
    size_t n;
    struct resource resources[MAX_RESOURCES];
    size_t n_resources, n_seen; /* n_seen: passed by this walk */
    json_t *names;              /* "uri#anchor": its pointer */
    json_t *dynamic;            /* name of a $dynamicAnchor: the number of them */
    bool needs_copy, is_lost;   /* is_lost: too deep or too many */
    enum err err;
};

static void check(struct walk *w, bool ok) { w->err = ok ? w->err : ERR_NOMEM; }

static const char *text_of(const json_t *schema, const char *keyword)
{
    return json_string_value(json_object_get(schema, keyword));
}

/* --- URIs ------------------------------------------------------------------------------------------------------------ */

/* Returns the length of "scheme:", 0 if there is none. */
static size_t scheme_of(const char *uri)
{
    size_t n = strcspn(uri, ":/?#");
    return uri[n] == ':' && n > 0 ? n + 1 : 0;
}

/* Removes segments "." and ".." from the path that begins at `from`. */
static void drop_dots(char *uri, size_t from)
{
    size_t n = from, i = from;
    while (uri[i] != '\0') { /* one segment and its slash */
        size_t len = strcspn(uri + i, "/"), step = len + (uri[i + len] == '/');
        bool is_one = len == 1 && uri[i] == '.', is_two = len == 2 && memcmp(uri + i, "..", 2) == 0;
        if (is_two && n > from) {
            n--;
            while (n > from && uri[n - 1] != '/') {
                n--;
            }
        } else if (!is_one && !is_two) {
            memmove(uri + n, uri + i, step);
            n += step;
        }
        i += step;
    }
    uri[n] = '\0';
}

/* Resolves ref[0..n), without a fragment, against base [RFC 3986, section 5.2]; "" if the result is too long. */
static void resolve(const char *base, const char *ref, size_t n, char out[MAX_URI])
{
    size_t scheme = scheme_of(base), path = scheme, keep;
    if (strncmp(base + path, "//", 2) == 0) {
        path += 2 + strcspn(base + path + 2, "/?#");
    }
    const char *last = strrchr(base + path, '/');
    if (n == 0) {
        keep = strlen(base);
    } else if (scheme_of(ref) > 0 && scheme_of(ref) <= n) {
        keep = 0;
    } else {
        keep = n >= 2 && memcmp(ref, "//", 2) == 0 ? scheme
               : ref[0] == '/'                     ? path
               : last != NULL                      ? (size_t)(last - base) + 1
                                                   : path;
    }
    bool joins = keep == path && path > scheme && n > 0 && ref[0] != '/'; /* an authority and no path */
    out[0] = '\0';
    if (keep + joins + n >= MAX_URI) {
        return;
    }
    memcpy(out, base, keep);
    out[keep] = '/';
    memcpy(out + keep + joins, ref, n);
    out[keep + joins + n] = '\0';
    if (n > 0 && keep > 0) {
        drop_dots(out, MIN_OF(path + (out[path] == '/'), strlen(out)));
    }
}

/* --- pointers -------------------------------------------------------------------------------------------------------- */

/* Adds a name to a pointer in a fragment that schema_resolve reads. */
static void put_name(struct buf *b, const char *name)
{
    buf_putc(b, '/');
    for (; *name != '\0'; name++) {
        if (*name == '~' || *name == '/') {
            buf_puts(b, *name == '~' ? "~0" : "~1");
        } else if (*name == '%') {
            buf_puts(b, "%25");
        } else {
            buf_putc(b, *name);
        }
    }
}

/* Returns the pointer of the schema on top of the stack, owned by the caller. NULL: no memory. */
static char *pointer_here(struct walk *w)
{
    struct buf b;
    buf_init(&b, 0, MEM_REQUEST);
    for (size_t i = 1; i < w->n; i++) {
        if (w->stack[i].name != NULL) {
            put_name(&b, w->stack[i].name);
        } else {
            buf_printf(&b, "/%zu", w->stack[i].at);
        }
    }
    size_t n;
    char *pointer = buf_take(&b, &n);
    buf_fini(&b);
    check(w, pointer != NULL);
    return pointer;
}

static const struct resource *resource_at(const struct walk *w, const char *uri)
{
    for (size_t i = 0; i < w->n_resources; i++) {
        if (strcmp(w->resources[i].uri, uri) == 0) {
            return &w->resources[i];
        }
    }
    return NULL;
}

/* Converts a reference from the resource to a pointer in a fragment, "#/..", or an empty b if it is broken. *anchor:
 * the name in it, or NULL. */
static void find_target(const struct walk *w, size_t from, const char *ref, struct buf *b, const char **anchor)
{
    char uri[MAX_URI], key[2 * MAX_URI];
    size_t n = strcspn(ref, "#");
    const char *fragment = ref[n] == '#' ? ref + n + 1 : "", *pointer;
    *anchor = fragment[0] != '\0' && fragment[0] != '/' ? fragment : NULL;
    resolve(w->resources[from].uri, ref, n, uri);
    const struct resource *of = n == 0 ? &w->resources[from] : resource_at(w, uri);
    pointer = of != NULL ? of->pointer : NULL;
    if (*anchor != NULL && of != NULL) {
        bool fits = (size_t)snprintf(key, sizeof key, "%s#%s", of->uri, fragment) < sizeof key;
        pointer = fits ? json_string_value(json_object_get(w->names, key)) : NULL;
    }
    if (pointer != NULL) {
        buf_printf(b, "#%s%s", pointer, *anchor == NULL ? fragment : "");
    }
}

/* --- walks ----------------------------------------------------------------------------------------------------------- */

static void add_name(struct walk *w, const char *uri, const char *name)
{
    char *pointer = pointer_here(w);
    struct buf key;
    buf_init(&key, 0, MEM_REQUEST);
    buf_printf(&key, "%s#%s", uri, name);
    check(w, pointer != NULL && buf_ok(&key) == ERR_OK &&
                 json_object_set_new_nocheck(w->names, key.data, json_string_nocheck(pointer)) == 0);
    buf_fini(&key);
    mem_free(pointer);
}

/* Enters a resource if the schema on top has an $id; all walks pass resources in the same order. */
static void enter(struct walk *w, bool is_first)
{
    struct frame *top = &w->stack[w->n - 1];
    const char *id = schema_id(top->from);
    char uri[MAX_URI] = "";
    if (w->n > 1 && id == NULL) {
        return;
    }
    if (is_first && w->n_resources == MAX_RESOURCES) {
        w->is_lost = true;
        return;
    }
    if (is_first) {
        struct resource *r = &w->resources[w->n_resources++];
        resolve(w->n > 1 ? w->resources[top->resource].uri : "", id != NULL ? id : "",
                id != NULL ? strcspn(id, "#") : 0, uri);
        *r = (struct resource){.uri = mem_dup(uri, strlen(uri), MEM_REQUEST), .pointer = pointer_here(w)};
        check(w, r->uri != NULL);
        w->needs_copy |= w->n > 1;
    }
    top->resource = w->n_seen++;
}

/* Records the names of the schema on top, and whether it has references that are not pointers. */
static void note_names(struct walk *w)
{
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor", "$id", "id"};
    const struct frame *top = &w->stack[w->n - 1];
    const char *uri = w->resources[top->resource].uri, *ref = text_of(top->from, "$ref");
    for (size_t i = 0; i < ARRAY_LEN(anchors) && uri != NULL; i++) {
        const char *name = text_of(top->from, anchors[i]);
        name = name != NULL && i >= 2 ? (name[0] == '#' ? name + 1 : NULL) : name; /* draft 4 to 7 */
        if (name != NULL && name[0] != '\0') {
            add_name(w, uri, name);
        }
        if (name != NULL && i == 1) {
            json_int_t n = json_integer_value(json_object_get(w->dynamic, name));
            check(w, json_object_set_new_nocheck(w->dynamic, name, json_integer(n + 1)) == 0);
        }
    }
    bool is_pointer = ref == NULL || (ref[0] == '#' && (ref[1] == '\0' || ref[1] == '/'));
    w->needs_copy |=
        !is_pointer || text_of(top->from, "$dynamicRef") != NULL || text_of(top->from, "$recursiveRef") != NULL;
}

/* Returns a reference of the schema on top as a pointer, owned by the caller; NULL: none, or it is broken. *keyword:
 * its name. */
static char *plain_ref(struct walk *w, const char **keyword)
{
    static const char *const all[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    const struct frame *top = &w->stack[w->n - 1];
    const char *ref = NULL, *anchor = NULL;
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const char *one = text_of(top->from, all[i]);
        n += one != NULL;
        *keyword = one != NULL ? all[i] : *keyword;
        ref = one != NULL ? one : ref;
    }
    if (n != 1) {
        return NULL;
    }
    struct buf b;
    buf_init(&b, 0, MEM_REQUEST);
    find_target(w, top->resource, ref, &b, &anchor);
    bool is_dynamic =
        *keyword == all[1] && anchor != NULL && json_integer_value(json_object_get(w->dynamic, anchor)) > 1;
    bool is_unknown = is_dynamic || (*keyword == all[2] && (strcmp(ref, "#") != 0 || w->n_resources > 1));
    check(w, buf_ok(&b) == ERR_OK);
    char *text = b.len > 0 && !is_unknown && w->err == ERR_OK ? buf_take(&b, &n) : NULL;
    check(w, text != NULL || b.len == 0 || is_unknown);
    buf_fini(&b);
    return text;
}

static void check_ref(struct walk *w)
{
    const char *keyword = NULL;
    char *ref = plain_ref(w, &keyword);
    w->resources[w->stack[w->n - 1].resource].is_broken |= keyword != NULL && ref == NULL;
    mem_free(ref);
}

static void copy_ref(struct walk *w)
{
    const struct frame *top = &w->stack[w->n - 1];
    const char *keyword = NULL;
    char *ref = plain_ref(w, &keyword);
    if (ref != NULL) {
        json_object_del(top->to, keyword);
        check(w, json_object_set_new_nocheck(top->to, "$ref", json_string_nocheck(ref)) == 0);
    }
    if (schema_id(top->from) != NULL && w->n > 1 && !w->resources[top->resource].is_broken) {
        json_object_del(top->to, "$id");
        json_object_del(top->to, "id");
    }
    mem_free(ref);
}

static bool is_one_of(const char *name, const char *const *all, size_t n)
{
    bool is = false;
    for (size_t i = 0; i < n && name != NULL; i++) {
        is = is || strcmp(name, all[i]) == 0;
    }
    return is;
}

/* Returns the next member or element of the top that can hold schemas; NULL: no more. */
static const json_t *next_child(struct frame *top, const char **name, size_t *at)
{
    static const char *const values[] = {"enum", "const", "default", "examples", "example"};
    const json_t *child = NULL;
    *name = NULL;
    while (json_is_array(top->from) && child == NULL && top->i < json_array_size(top->from)) {
        *at = top->i;
        child = json_array_get(top->from, top->i++);
        child = json_is_object(child) || json_is_array(child) ? child : NULL;
    }
    while (json_is_object(top->from) && child == NULL && top->member != NULL) {
        *name = json_object_iter_key(top->member);
        child = json_object_iter_value(top->member);
        top->member = json_object_iter_next((json_t *)(uintptr_t)top->from, top->member);
        bool is_value = !top->is_map && is_one_of(*name, values, ARRAY_LEN(values));
        child = (json_is_object(child) || json_is_array(child)) && !is_value ? child : NULL;
    }
    return child;
}

static void push(struct walk *w, const json_t *schema, const char *name, size_t at, json_t *to)
{
    const struct frame *around = w->n > 0 ? &w->stack[w->n - 1] : NULL;
    if (w->n == MAX_DEPTH) {
        w->is_lost = true;
        return;
    }
    const struct schema_keyword *keyword = name != NULL ? schema_keyword_find(name) : NULL;
    bool has_names =
        keyword != NULL && (keyword->form == SCHEMA_KEYWORD_NAMED || keyword->form == SCHEMA_KEYWORD_DEPENDS);
    w->stack[w->n++] = (struct frame){.from = schema,
                                      .to = to,
                                      .member = json_object_iter((json_t *)(uintptr_t)schema),
                                      .name = name,
                                      .at = at,
                                      .resource = around != NULL ? around->resource : 0,
                                      .is_map = around != NULL && !around->is_map && has_names};
}

/* Puts a copy of the child into `to`; returns a borrowed reference, NULL without memory. */
static json_t *copy_child(struct walk *w, json_t *to, const json_t *child, const char *name, size_t at)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)child);
    bool ok = copy != NULL &&
              (name != NULL ? json_object_set_new_nocheck(to, name, copy) == 0 : json_array_set_new(to, at, copy) == 0);
    check(w, ok);
    return ok ? copy : NULL;
}

/* Walks over each object and array, outer ones first. visit: called for each schema. to: the document's copy; NULL: do
 * not copy. */
static void walk(struct walk *w, const json_t *schema, json_t *to, bool is_first, void (*visit)(struct walk *))
{
    w->n = w->n_seen = 0;
    push(w, schema, NULL, 0, to);
    for (bool is_new = true; w->n > 0 && w->err == ERR_OK && !w->is_lost;) {
        struct frame *top = &w->stack[w->n - 1];
        if (is_new && json_is_object(top->from) && !top->is_map) {
            enter(w, is_first);
            if (!w->is_lost && w->err == ERR_OK) {
                visit(w);
            }
        }
        const char *name;
        size_t at = 0;
        const json_t *child = next_child(top, &name, &at);
        is_new = child != NULL;
        if (child == NULL) {
            w->n--;
        } else {
            push(w, child, name, at, top->to != NULL ? copy_child(w, top->to, child, name, at) : NULL);
        }
    }
}

enum err schema_refs_plain(const json_t *schema, json_t **out)
{
    *out = NULL;
    struct walk *w = json_is_object(schema) ? mem_zalloc(sizeof *w, MEM_REQUEST) : NULL;
    if (w == NULL) {
        return json_is_object(schema) ? ERR_NOMEM : ERR_OK;
    }
    w->names = json_object();
    w->dynamic = json_object();
    check(w, w->names != NULL && w->dynamic != NULL);
    walk(w, schema, NULL, true, note_names);
    if (w->needs_copy && !w->is_lost && w->err == ERR_OK) {
        walk(w, schema, NULL, false, check_ref);
        *out = json_copy((json_t *)(uintptr_t)schema);
        check(w, *out != NULL);
        walk(w, schema, *out, false, copy_ref);
    }
    for (size_t i = 0; i < w->n_resources; i++) {
        mem_free(w->resources[i].uri);
        mem_free(w->resources[i].pointer);
    }
    enum err err = w->err;
    json_decref(w->names);
    json_decref(w->dynamic);
    mem_free(w);
    if (err != ERR_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return err;
}
