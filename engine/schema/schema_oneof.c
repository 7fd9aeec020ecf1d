/* Translates oneOf to anyOf: each schema excludes the others that can hold together with it. A grammar of both decides
 * whether two can hold together, so this file and schema.c call each other. */
#include "engine/schema/schema_internal.h"

#include "engine/schema/schema_disjoint.h"

enum {
    MAX_BRANCHES = 128,
    MAX_CHECKS = 500,
    CHECK_NODES = 40,
    CHECK_PARTS = 1 << 16,
    CHECK_WORK = 200000,
    CHECK_BEGINS = 500
};

/* Checks whether a grammar that allows at least the values of both is empty. Types next to the oneOf count. */
static bool is_empty(struct writer *w, const struct part *p, const json_t *a, const json_t *b)
{
    struct err_info ignored = {0};
    struct writer sub = {.root = w->root, .info = &ignored, .is_loose = true, .ref_is_alone = w->ref_is_alone};
    struct parts list;
    symbol_id start;
    bool can = true;
    json_t *type = schema_member(p, "type"), *beside = type != NULL ? json_pack("{sO}", "type", type) : NULL;
    if (w->check_set != NULL && regex_ok(w->check_set) != ERR_OK) { /* the set reached its limit: create another one */
        regex_set_free(&w->check_set);
    }
    if ((w->check_set == NULL && regex_set_new(CHECK_PARTS, &w->check_set) != ERR_OK) ||
        grammar_builder_new_in(w->check_set, &sub.b) != ERR_OK) {
        json_decref(beside);
        return false;
    }
    size_t before = regex_work(w->check_set);
    regex_limit_work(w->check_set, before + CHECK_WORK);
    list.n = 0;
    list.is_none = false;
    enum err err = schema_writer_init(&sub, CHECK_NODES);
    err = err == ERR_OK ? schema_add_part(&sub, p, beside != NULL ? beside : json_true(), "", &list) : err;
    err = err == ERR_OK ? schema_add_part(&sub, p, a, "", &list) : err;
    err = err == ERR_OK ? schema_add_part(&sub, p, b, "", &list) : err;
    err = err == ERR_OK ? schema_need(&sub, &list, &start) : err;
    err = err == ERR_OK ? schema_write_all(&sub) : err;
    err = err == ERR_OK ? grammar_derives(sub.b, start, &can) : err;
    grammar_builder_free(&sub.b);
    schema_writer_fini(&sub);
    json_decref(beside);
    regex_spend(w->s,
                regex_work(w->check_set) - before + CHECK_BEGINS); /* the next step sees whether it was too much */
    return err == ERR_OK && !can;
}

static bool are_apart(struct writer *w, const struct part *p, const json_t *a, const json_t *b)
{
    size_t work = 0;
    bool are = schema_are_disjoint(w->root, a, b, &work);
    return regex_spend(w->s, work) && (are || (w->n_checks++ < MAX_CHECKS && is_empty(w, p, a, b)));
}

/* The pairs of schemas that share no value. */
struct apart {
    const json_t *all; /* the schemas of the oneOf */
    uint64_t bits[MAX_BRANCHES][MAX_BRANCHES / 64];
};

static bool is_apart(const struct apart *a, size_t i, size_t k) { return (a->bits[i][k / 64] >> k % 64 & 1) != 0; }

static void find_apart(struct writer *w, const struct part *p, const json_t *all, struct apart *out)
{
    *out = (struct apart){.all = all};
    for (size_t i = 0; i < json_array_size(all); i++) {
        for (size_t k = i + 1; k < json_array_size(all) && regex_ok(w->s) == ERR_OK; k++) {
            uint64_t are = are_apart(w, p, json_array_get(all, i), json_array_get(all, k));
            out->bits[i][k / 64] |= are << k % 64;
            out->bits[k][i / 64] |= are << i % 64;
        }
    }
}

/* Builds the i-th schema without the others that can hold together with it. */
static enum err only_one(struct writer *w, const struct part *p, const struct apart *apart, size_t i, json_t **out)
{
    const json_t *all = apart->all;
    json_t *parts = json_array();
    enum err err = parts != NULL ? schema_and(parts, json_incref(json_array_get(all, i))) : ERR_NOMEM;
    for (size_t k = 0; k < json_array_size(all) && err == ERR_OK; k++) {
        const json_t *opposite = NULL;
        if (k != i && !is_apart(apart, i, k)) {
            err = schema_negate(w, json_array_get(all, k), &opposite);
            err = err == ERR_OK && opposite == NULL
                      ? schema_refuse(w, p->path, "oneOf",
                                      "expected schemas of which no value is of two, or whose opposite can be said")
                      : err;
            err = err == ERR_OK ? schema_and(parts, json_incref((json_t *)opposite)) : err;
        }
    }
    bool is_alone = json_array_size(parts) == 1;
    *out = err != ERR_OK ? NULL : is_alone ? json_incref(json_array_get(parts, 0)) : json_pack("{sO}", "allOf", parts);
    json_decref(parts);
    return err == ERR_OK && *out == NULL ? ERR_NOMEM : err;
}

static enum err add_branches(struct writer *w, const struct part *p, json_t *any)
{
    struct apart apart;
    json_t *all = schema_member(p, "oneOf"), *one;
    size_t n = json_array_size(all);
    if (!json_is_array(all) || n == 0 || n > MAX_BRANCHES) {
        return schema_refuse(w, p->path, "oneOf", "expected an array of schemas, 128 at most");
    }
    if (w->is_loose || n == 1) {
        return json_array_extend(any, all) == 0 ? ERR_OK : ERR_NOMEM;
    }
    find_apart(w, p, all, &apart);
    for (size_t i = 0; i < n; i++) {
        TRY(only_one(w, p, &apart, i, &one));
        TRY(schema_and(any, one));
    }
    return ERR_OK;
}

enum err schema_one_of(struct writer *w, const struct part *p, const json_t **out)
{
    *out = NULL;
    return schema_keyword(w, p, "oneOf") == NULL ? ERR_OK : schema_translate(w, p, SCHEMA_ONE_OF, add_branches, out);
}
