/* Arrays of a schema. */
#include "engine/schema/schema_internal.h"

/* The schemas of a part's first elements and of the others; NULL: unrestricted. */
struct elements {
    const json_t *first, *rest;
    const char *first_word, *rest_word;
};

/* The arrays to write. */
struct array {
    const struct parts *list;
    const struct part *unique; /* the part with uniqueItems; NULL: none */
    size_t n_first;            /* first elements with their own schemas */
    struct schema_counts counts;
};

static struct elements elements_of(const struct writer *w, const struct part *p)
{
    const json_t *items = schema_keyword(w, p, "items");
    if (json_is_array(items)) { /* before 2020-12 */
        return (struct elements){items, schema_keyword(w, p, "additionalItems"), "items", "additionalItems"};
    }
    return (struct elements){schema_keyword(w, p, "prefixItems"), items, "prefixItems", "items"};
}

static const char UNEVALUATED[] = "unevaluatedItems";

/* Adds the parts' unevaluatedItems schemas for elements that neither the part nor the schemas it requires restrict. */
static enum err add_unevaluated(struct writer *w, const struct parts *list, size_t i, struct parts *out)
{
    bool says[SCHEMA_MAX_PARTS], has_unevaluated = false;
    for (size_t k = 0; k < list->n && !w->is_loose; k++) {
        struct elements e = elements_of(w, &list->at[k]);
        says[k] = e.rest != NULL || i < json_array_size(e.first);
        has_unevaluated = has_unevaluated || schema_keyword(w, &list->at[k], UNEVALUATED) != NULL;
    }
    return has_unevaluated ? schema_add_unevaluated(w, list, UNEVALUATED, says, out) : ERR_OK;
}

/* Collects the schemas of the i-th element. */
static enum err element_parts(struct writer *w, const struct parts *list, size_t i, struct parts *out)
{
    out->n = 0;
    out->is_none = false;
    for (size_t k = 0; k < list->n; k++) {
        const struct part *p = &list->at[k];
        struct elements e = elements_of(w, p);
        if (i < json_array_size(e.first)) {
            const char *path = schema_join(w, p->path, e.first_word);
            TRY(path != NULL ? schema_add_part(w, p, json_array_get(e.first, i), schema_join_index(w, path, i), out)
                             : ERR_NOMEM);
        } else if (e.rest != NULL) {
            TRY(schema_add_part(w, p, e.rest, schema_join(w, p->path, e.rest_word), out));
        }
    }
    return add_unevaluated(w, list, i, out);
}

static uint32_t less(uint32_t count, uint32_t by)
{
    if (count == REGEX_UNBOUNDED) {
        return count;
    }
    return count > by ? count - by : 0;
}

/* Writes the elements after the first ones: each of `of`, for a total of c->min to c->max. */
static symbol_id write_rest(struct writer *w, symbol_id of, uint32_t n_first, const struct schema_counts *c)
{
    symbol_id more = grammar_sequence(w->b, (symbol_id[]){w->comma, of}, 2);
    if (c->max <= n_first) {
        return grammar_sequence(w->b, NULL, 0);
    }
    uint32_t least = less(c->min, n_first), most = less(c->max, n_first);
    if (n_first > 0) {
        return grammar_repeat(w->b, more, least, most);
    }
    symbol_id some =
        grammar_sequence(w->b, (symbol_id[]){of, grammar_repeat(w->b, more, less(least, 1), less(most, 1))}, 2);
    symbol_id none = grammar_sequence(w->b, NULL, 0);
    return least > 0 ? some : grammar_choice(w->b, (symbol_id[]){none, some}, 2);
}

static enum err write_elements(struct writer *w, const struct array *a, symbol_id *out)
{
    size_t n = a->n_first;
    struct schema_counts c = a->counts;
    struct parts of;
    symbol_id one;
    TRY(element_parts(w, a->list, n, &of));
    c.max = of.is_none ? MIN_OF(c.max, (uint32_t)n) : c.max;
    if (c.min > c.max) {
        *out = grammar_rule(w->b); /* no array satisfies this */
        return ERR_OK;
    }
    TRY(schema_need(w, &of, &one));
    *out = write_rest(w, one, (uint32_t)n, &c);
    for (size_t i = n; i-- > 0;) { /* *out: the rest after element i; from some element on it can be empty */
        TRY(element_parts(w, a->list, i, &of));
        TRY(schema_need(w, &of, &one));
        *out = i == 0 ? grammar_sequence(w->b, (symbol_id[]){one, *out}, 2)
                      : grammar_sequence(w->b, (symbol_id[]){w->comma, one, *out}, 3);
        symbol_id none = grammar_sequence(w->b, NULL, 0);
        if (i >= c.max) {
            *out = none;
        } else if (i >= c.min) {
            *out = grammar_choice(w->b, (symbol_id[]){none, *out}, 2);
        }
    }
    return ERR_OK;
}

static enum err refuse_unique(struct writer *w, const struct part *unique)
{
    return schema_refuse(
        w, unique->path, "uniqueItems",
        "a grammar cannot compare elements with each other; expected items of 1000 values at most, as of an "
        "enumeration, or single ones of which no value is of two, or maxItems of 1");
}

/* Writes arrays whose elements have few values, each at most once. */
static enum err write_few(struct writer *w, const struct parts *of, const json_t *values, const struct schema_counts *c,
                          symbol_id *out)
{
    size_t n = json_array_size(values), n_members = 0;
    struct grammar_member *members = arena_alloc(&w->arena, (n + 1) * sizeof *members);
    for (size_t i = 0; i < n && members != NULL; i++) {
        struct parts one;
        json_t *value = json_array_get(values, i);
        const json_t *only = NULL;
        one.n = 0;
        one.is_none = false;
        if (!schema_was_made(w, value, SCHEMA_ONLY, &only)) {
            TRY(schema_keep(w, value, SCHEMA_ONLY, json_pack("{sO}", "const", value), &only));
        }
        TRY(schema_add_part(w, &of->at[0], only, of->at[0].path, &one));
        TRY(of->n < SCHEMA_MAX_PARTS ? ERR_OK : ERR_GRAMMAR_LIMIT);
        /* After the value's part, so that no other values are tried. */
        memcpy(one.at + one.n, of->at, of->n * sizeof *of->at);
        one.n += of->n;
        members[n_members] = (struct grammar_member){.symbol = 0};
        TRY(schema_need(w, &one, &members[n_members++].symbol));
    }
    *out = members != NULL ? grammar_set(w->b, members, n_members, w->comma, c->min, c->max) : 0;
    return members != NULL ? ERR_OK : ERR_NOMEM;
}

/* Writes arrays of different elements: n single ones that share no value, or elements of few values. */
static enum err write_unique(struct writer *w, const struct array *a, symbol_id *out)
{
    enum { MOST_VALUES = 1000, MOST_SINGLE = 32 };
    struct parts of, other;
    json_t *values;
    size_t n = a->n_first;
    TRY(element_parts(w, a->list, n, &of));
    uint32_t most = of.is_none ? MIN_OF(a->counts.max, (uint32_t)n) : a->counts.max;
    if (n > 0 && (most > n || n > MOST_SINGLE)) {
        return refuse_unique(w, a->unique);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(element_parts(w, a->list, i, &of));
        for (size_t k = i + 1; k < n; k++) {
            TRY(element_parts(w, a->list, k, &other));
            if (!schema_lists_differ(w, &of, &other)) {
                return refuse_unique(w, a->unique);
            }
        }
    }
    if (n > 0 || most <= 1) {
        return write_elements(w, a, out);
    }
    TRY(schema_few_values(w, &of, MOST_VALUES, &values));
    enum err err = values != NULL ? write_few(w, &of, values, &a->counts, out) : refuse_unique(w, a->unique);
    json_decref(values);
    return err;
}

/* --- contains ---------------------------------------------------------------------------------------------------------- */

/* The number of elements that must satisfy a schema. */
struct contains {
    const struct part *part; /* the part with the keyword; NULL: no requirement */
    const json_t *schema;
    struct schema_counts counts;
    symbol_id one, others; /* elements that satisfy it; elements around them */
};

enum { MAX_CONTAINED = 16, MAX_PLACES = 64 };

static enum err refuse_contains(struct writer *w, const struct part *p, const char *expected)
{
    return schema_refuse(w, p->path, "contains", expected);
}

static enum err read_contains(struct writer *w, const struct parts *list, struct contains *out)
{
    *out = (struct contains){.part = NULL};
    for (size_t i = 0; i < list->n && !w->is_loose; i++) {
        const struct part *p = &list->at[i];
        const json_t *schema = schema_keyword(w, p, "contains");
        struct schema_counts c;
        TRY(schema_count(w, p, "minContains", 1, &c.min));
        TRY(schema_count(w, p, "maxContains", REGEX_UNBOUNDED, &c.max));
        if (schema == NULL || (c.min == 0 && c.max == REGEX_UNBOUNDED)) {
            continue;
        }
        if (out->part != NULL && (out->schema != schema || out->counts.min != c.min || out->counts.max != c.max)) {
            return refuse_contains(w, p, "expected one contains for an array");
        }
        *out = (struct contains){.part = p, .schema = schema, .counts = c};
    }
    return ERR_OK;
}

static const struct schema_counts ANY = {0, REGEX_UNBOUNDED};

/* Writes any number of other elements, then one that satisfies the schema, n times, then more others. If n is 1, before
 * and after are the numbers of others on each side. */
static symbol_id spread_out(struct writer *w, const struct contains *c, uint32_t n, struct schema_counts before,
                            struct schema_counts after)
{
    symbol_id first = grammar_sequence(w->b, (symbol_id[]){c->others, w->comma}, 2), parts[3 * MAX_CONTAINED];
    symbol_id last = grammar_sequence(w->b, (symbol_id[]){w->comma, c->others}, 2);
    size_t n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) {
            parts[n_parts++] = w->comma;
        }
        parts[n_parts++] = grammar_repeat(w->b, first, before.min, before.max);
        parts[n_parts++] = c->one;
    }
    parts[n_parts++] = grammar_repeat(w->b, last, after.min, after.max);
    return grammar_sequence(w->b, parts, n_parts);
}

/* Requires at least the minimum of elements that satisfy the schema; `all` elements in total. */
static enum err write_at_least(struct writer *w, const struct contains *c, const struct schema_counts *all,
                               symbol_id *out)
{
    symbol_id ways[MAX_PLACES + 1];
    uint32_t places = all->max == REGEX_UNBOUNDED ? all->min : all->max; /* that the first match can have */
    if (c->counts.min <= MAX_CONTAINED && all->min <= c->counts.min && all->max == REGEX_UNBOUNDED) {
        *out = spread_out(w, c, c->counts.min, ANY, ANY);
        return ERR_OK;
    }
    if (c->counts.min != 1 || places > MAX_PLACES) {
        return refuse_contains(w, c->part,
                               "expected minContains of 16 at most, and no numbers of items beside it, or of 64 at "
                               "most beside 1");
    }
    for (uint32_t i = 0; i < places; i++) {
        bool is_last = all->max == REGEX_UNBOUNDED && i + 1 == places;
        ways[i] = spread_out(w, c, 1, (struct schema_counts){i, is_last ? REGEX_UNBOUNDED : i},
                             (struct schema_counts){less(all->min, i + 1), less(all->max, i + 1)});
    }
    *out = grammar_choice(w->b, ways, places);
    return ERR_OK;
}

/* Also requires at most the maximum; the others do not satisfy the schema. */
static enum err write_at_most(struct writer *w, const struct contains *c, const struct schema_counts *all,
                              symbol_id *out)
{
    symbol_id ways[MAX_CONTAINED + 1];
    size_t n = 0;
    if (c->counts.max > MAX_CONTAINED ||
        (c->counts.max > 0 && (all->min > MAX_OF(c->counts.min, 1u) || all->max != REGEX_UNBOUNDED))) {
        return refuse_contains(w, c->part, "expected maxContains of 16 at most, and no numbers of items beside it");
    }
    for (uint32_t i = c->counts.min; i <= c->counts.max; i++) {
        ways[n++] = i == 0 ? write_rest(w, c->others, 0, all) : spread_out(w, c, i, ANY, ANY);
    }
    *out = grammar_choice(w->b, ways, n);
    return ERR_OK;
}

static enum err write_contains(struct writer *w, const struct array *a, struct contains *c, symbol_id *out)
{
    struct parts of, with;
    const char *path = schema_join(w, c->part->path, "contains");
    bool has_max = c->counts.max != REGEX_UNBOUNDED;
    TRY(element_parts(w, a->list, 0, &of));
    parts_copy(&with, &of);
    TRY(schema_add_part(w, c->part, c->schema, path, &with));
    TRY(schema_need(w, &with, &c->one));
    if (has_max) {
        const json_t *opposite;
        TRY(schema_negate(w, c->schema, &opposite));
        if (opposite == NULL) {
            return schema_refuse(w, c->part->path, "maxContains", "expected a contains whose opposite can be said");
        }
        TRY(schema_add_part(w, c->part, opposite, path, &of));
    }
    TRY(schema_need(w, &of, &c->others));
    return has_max ? write_at_most(w, c, &a->counts, out) : write_at_least(w, c, &a->counts, out);
}

enum err schema_write_array(struct writer *w, const struct node *node, const struct parts *list)
{
    struct array a = {.list = list, .counts = ANY};
    const struct part *containing = NULL;
    struct contains contains;
    symbol_id all;
    bool has_unevaluated;
    TRY(read_contains(w, list, &contains));
    TRY(schema_check_unevaluated(w, list, UNEVALUATED, &has_unevaluated));
    for (size_t i = 0; i < list->n; i++) {
        const struct part *p = &list->at[i];
        struct elements e = elements_of(w, p);
        TRY(schema_narrow(w, p, "minItems", "maxItems", &a.counts));
        if ((e.first != NULL && !json_is_array(e.first)) || json_array_size(e.first) > SCHEMA_MAX_NODES) {
            return schema_refuse(w, p->path, e.first_word, "expected an array of schemas, 10000 at most");
        }
        a.n_first = MAX_OF(a.n_first, json_array_size(e.first));
        a.unique = json_is_true(schema_keyword(w, p, "uniqueItems")) ? p : a.unique;
        containing = schema_keyword(w, p, "contains") != NULL ? p : containing;
    }
    if (has_unevaluated && containing != NULL) { /* 2020-12 counts contained elements as evaluated, 2019-09 does not */
        return refuse_contains(w, containing, "expected no unevaluatedItems beside it");
    }
    uint32_t max = a.counts.max;
    if (a.counts.min > max || (contains.part != NULL && contains.counts.min > MIN_OF(max, contains.counts.max))) {
        return ERR_OK; /* no array satisfies this */
    }
    if (contains.part != NULL && (a.n_first > 0 || (a.unique != NULL && max > 1))) {
        return refuse_contains(w, contains.part, "expected no schemas for single items and no uniqueItems beside it");
    }
    if (max == 0) { /* then the elements' schemas do not matter */
        schema_put(w, node, grammar_sequence(w->b, (symbol_id[]){schema_opening(w, "["), schema_closing(w, "]")}, 2));
        return ERR_OK;
    }
    if (contains.part != NULL) {
        TRY(write_contains(w, &a, &contains, &all));
    } else if (a.unique != NULL && max > 1 && !w->is_loose) {
        TRY(write_unique(w, &a, &all));
    } else {
        TRY(write_elements(w, &a, &all));
    }
    schema_put(w, node, grammar_sequence(w->b, (symbol_id[]){schema_opening(w, "["), all, schema_closing(w, "]")}, 3));
    return ERR_OK;
}
