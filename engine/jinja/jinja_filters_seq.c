/* Filters on sequences. Filters that return a generator in jinja2 do so here (JV_GEN): always true, without length or
 * index. */
#include "engine/jinja/jinja_filters_internal.h"

#include <string.h>

enum { MAX_BUILTIN_DEPTH = 4 /* nesting of map in map */ };

enum err jfilter_first(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv_iter it = {.of = c->self};
    if (!jv_iter_next(vm, &it, out)) {
        *out = jv_hint("no first item, the sequence was empty");
    }
    return it.err;
}

enum err jfilter_last(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv_list *l;
    if (c->self.kind == JV_GEN) {
        return jvm_fail(vm, "'generator' object is not reversible");
    }
    TRY(jv_to_list(vm, c->self, &l));
    *out = l->n > 0 ? l->at[l->n - 1] : jv_hint("no last item, the sequence was empty");
    return ERR_OK;
}

enum err jfilter_list(struct jvm *vm, struct jcall *c, struct jv *out)
{
    *out = (struct jv){.kind = JV_LIST};
    return jv_to_list(vm, c->self, &out->list); /* lists are immutable, so sharing is copying */
}

/* Returns an item or attribute of v by a dotted path of names and indexes, as make_attrgetter does; an int is an
 * index. */
static enum err getter(struct jvm *vm, struct jv v, struct jv path, struct jv *out)
{
    *out = v;
    if (!jv_is_str(path)) {
        return path.kind == JV_NONE ? ERR_OK : jop_item(vm, v, path, out);
    }
    const struct jstr *s = path.str;
    for (size_t from = 0; from <= s->len;) {
        const char *dot = memchr(s->p + from, '.', s->len - from);
        size_t to = dot == NULL ? s->len : (size_t)(dot - s->p);
        struct jv part;
        TRY(jv_substr(vm, s, from, to, &part));
        int64_t i;
        if (jstr_index(part.str->p, part.str->len, &i)) {
            part = jv_int(i);
        }
        TRY(jop_item(vm, *out, part, out));
        from = to + 1;
    }
    return ERR_OK;
}

enum err jfilter_join(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv_iter it = {.of = c->self};
    struct jv item;
    struct jv sep = {.kind = JV_ABSENT};
    if (c->arg[0].kind != JV_ABSENT) {
        TRY(jv_to_str(vm, c->arg[0], &sep));
    }
    for (bool is_first = true; jv_iter_next(vm, &it, &item); is_first = false) {
        if (!is_first && sep.kind == JV_STR) {
            jtext_str(&vm->tmp, sep.str);
        }
        if (c->arg[1].kind != JV_ABSENT) {
            TRY(getter(vm, item, c->arg[1], &item));
        }
        TRY(jv_write_str(vm, &vm->tmp, item));
    }
    TRY(it.err);
    return jtext_take(vm, &vm->tmp, 0, out);
}

/* jinja2's map and select test the value's truth before its type: none and 0 yield nothing. */
static struct jv_iter iter_unless_false(struct jv v)
{
    return (struct jv_iter){.of = jv_truth(v) ? v : (struct jv){.kind = JV_UNDEF}};
}

/* Runs the filter (or test) that c's positional argument i names on *v, with the arguments after it; *v: its result. */
static enum err run_named(struct jvm *vm, const struct jbuiltin *table, const struct jcall *c, uint32_t i, struct jv *v)
{
    const struct jstr *s = NULL;
    bool is_filter = table == jinja_filters;
    TRY(jcall_str(vm, c->pos[i], is_filter ? "the name of a filter" : "the name of a test", &s));
    int row = jbuiltin_find(table, s->p, s->len);
    if (row < 0) {
        return jvm_fail(vm, "no %s named '%.*s'", is_filter ? "filter" : "test", (int)MIN_OF(s->len, 80u), s->p);
    }
    if (vm->builtin_depth == MAX_BUILTIN_DEPTH) {
        return jvm_fail(vm, "filters are nested more than %d levels deep", MAX_BUILTIN_DEPTH);
    }
    struct jcall inner = {.self = *v,
                          .pos = c->pos + i + 1,
                          .n_pos = c->n_pos - i - 1,
                          .kw = c->kw,
                          .kw_names = c->kw_names,
                          .n_kw = c->n_kw};
    vm->builtin_depth++;
    enum err e = jcall_run(vm, &table[row], &inner, v);
    vm->builtin_depth--;
    return e;
}

/* map('filter', args...) or map(attribute='a', default=d) */
enum err jfilter_map(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv attribute = jcall_keyword(c, "attribute", 9);
    struct jv otherwise = jcall_keyword(c, "default", 7);
    bool by_attribute = c->n_pos == 0 && attribute.kind != JV_ABSENT;
    if (c->n_pos == 0 && (!by_attribute || c->n_kw > 1u + (otherwise.kind != JV_ABSENT))) {
        return jvm_fail(vm, "map expects the name of a filter or an attribute");
    }
    struct jv_iter it = iter_unless_false(c->self);
    struct jv item;
    struct jv list;
    TRY(jv_list_new(vm, JV_LIST, 0, &list));
    while (jv_iter_next(vm, &it, &item)) {
        if (by_attribute) {
            TRY(getter(vm, item, attribute, &item));
            item = item.kind == JV_UNDEF && jcall_given(otherwise) ? otherwise : item;
        } else {
            TRY(run_named(vm, jinja_filters, c, 0, &item));
        }
        TRY(jv_list_add(vm, list.list, item));
    }
    TRY(it.err);
    return jv_gen_new(vm, list.list, out);
}

enum err jfilter_choose(struct jvm *vm, struct jcall *c, struct jv *out)
{
    bool want = (c->row->how & JCHOOSE_WANTED) != 0, by_attribute = (c->row->how & JCHOOSE_BY_ATTRIBUTE) != 0;
    struct jv_iter it = iter_unless_false(c->self);
    struct jv item;
    struct jv list;
    if (by_attribute && c->n_pos == 0) {
        return jvm_fail(vm, "the filter expects the name of an attribute");
    }
    TRY(jv_list_new(vm, JV_LIST, 0, &list));
    while (jv_iter_next(vm, &it, &item)) {
        struct jv looked_at = item;
        if (by_attribute) {
            TRY(getter(vm, item, c->pos[0], &looked_at));
        }
        if (c->n_pos > by_attribute) {
            TRY(run_named(vm, jinja_tests, c, by_attribute, &looked_at));
        }
        if (jv_truth(looked_at) == want) {
            TRY(jv_list_add(vm, list.list, item));
        }
    }
    TRY(it.err);
    return jv_gen_new(vm, list.list, out);
}

/* Returns an item's attribute, in small letters unless case_sensitive. */
static enum err one_key(struct jvm *vm, struct jv item, struct jv attribute, bool case_sensitive, struct jv *key)
{
    *key = item;
    if (attribute.kind != JV_ABSENT) {
        TRY(getter(vm, item, attribute, key));
    }
    return !case_sensitive && jv_is_str(*key) ? jstr_case(vm, key->str, JCASE_LOWER, key) : ERR_OK;
}

/* Returns an item's sort key: its attribute, or a tuple of several that are separated by commas. */
static enum err key_of(struct jvm *vm, struct jv item, struct jv attribute, bool case_sensitive, struct jv *key)
{
    const struct jstr *s = attribute.str;
    if (attribute.kind != JV_STR || memchr(s->p, ',', s->len) == NULL) {
        return one_key(vm, item, attribute, case_sensitive, key);
    }
    TRY(jv_list_new(vm, JV_TUPLE, 2, key));
    for (size_t from = 0; from <= s->len;) {
        const char *comma = memchr(s->p + from, ',', s->len - from);
        size_t to = comma == NULL ? s->len : (size_t)(comma - s->p);
        struct jv part;
        TRY(jv_substr(vm, s, from, to, &part));
        TRY(one_key(vm, item, part, case_sensitive, &part));
        TRY(jv_list_add(vm, key->list, part));
        from = to + 1;
    }
    return ERR_OK;
}

struct keyed {
    struct jv items, keys; /* lists */
};

/* Returns new lists of v's items and of their keys. */
static enum err keyed(struct jvm *vm, struct jv v, struct jv attribute, bool case_sensitive, struct keyed *out)
{
    struct jv_iter it = {.of = v};
    struct jv item;
    TRY(jv_list_new(vm, JV_LIST, 0, &out->items));
    TRY(jv_list_new(vm, JV_LIST, 0, &out->keys));
    while (jv_iter_next(vm, &it, &item)) {
        struct jv key;
        TRY(key_of(vm, item, attribute, case_sensitive, &key));
        TRY(jv_list_add(vm, out->items.list, item));
        TRY(jv_list_add(vm, out->keys.list, key));
    }
    return it.err;
}

enum err jfilter_sort(struct jvm *vm, struct jcall *c, struct jv *out) /* reverse case_sensitive attribute */
{
    struct keyed all;
    TRY(keyed(vm, c->self, c->arg[2], jcall_flag(c->arg[1], false), &all));
    *out = all.items;
    return jv_sort(vm, all.keys.list, out->list, jcall_flag(c->arg[0], false), true);
}

enum err jfilter_unique(struct jvm *vm, struct jcall *c, struct jv *out) /* case_sensitive attribute */
{
    struct keyed all;
    struct jv seen;
    struct jv list;
    TRY(keyed(vm, c->self, c->arg[1], jcall_flag(c->arg[0], false), &all));
    TRY(jv_dict_new(vm, JV_DICT, 0, &seen));
    TRY(jv_list_new(vm, JV_LIST, 0, &list));
    for (uint32_t i = 0; i < all.items.list->n; i++) {
        struct jv key = all.keys.list->at[i];
        struct jv found;
        TRY(jvm_pay(vm, key.kind == JV_TUPLE ? i : 1)); /* all tuples have the same hash */
        TRY(jv_dict_find(vm, seen.dict, key, &found));
        if (found.kind == JV_ABSENT) {
            TRY(jv_dict_add(vm, seen.dict, key, jv_none()));
            TRY(jv_list_add(vm, list.list, all.items.list->at[i]));
        }
    }
    return jv_gen_new(vm, list.list, out);
}

static enum err pairs(struct jvm *vm, struct jv_dict *d, struct jv *out)
{
    TRY(jv_list_new(vm, JV_LIST, d->n, out));
    for (uint32_t i = 0; i < d->n; i++) {
        struct jv pair;
        TRY(jv_list_of(vm, JV_TUPLE, (struct jv[]){d->at[i].key, d->at[i].value}, 2, &pair));
        TRY(jv_list_add(vm, out->list, pair));
    }
    return ERR_OK;
}

enum err jfilter_dictsort(struct jvm *vm, struct jcall *c, struct jv *out) /* case_sensitive by reverse */
{
    TRY(jvm_defined(vm, c->self));
    if (c->self.kind != JV_DICT) {
        return jvm_fail(vm, "dictsort expects a dict, not '%s'", jv_type_name(c->self));
    }
    const struct jstr *by = NULL;
    TRY(jcall_str(vm, c->arg[1], "dictsort", &by));
    bool by_value = by != NULL && jstr_is(by, "value");
    if (by != NULL && !by_value && !jstr_is(by, "key")) {
        return jvm_fail(vm, "dictsort can sort by 'key' or 'value' only");
    }
    struct jv list;
    struct keyed all;
    TRY(pairs(vm, c->self.dict, &list));
    TRY(keyed(vm, list, jv_int(by_value), jcall_flag(c->arg[0], false), &all));
    *out = all.items;
    return jv_sort(vm, all.keys.list, out->list, jcall_flag(c->arg[2], false), false);
}

enum err jfilter_items(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv list;
    if (c->self.kind == JV_UNDEF) {
        TRY(jv_list_new(vm, JV_LIST, 0, &list));
    } else if (c->self.kind == JV_DICT) {
        TRY(pairs(vm, c->self.dict, &list));
    } else {
        return jvm_fail(vm, "can only get item pairs from a mapping");
    }
    return jv_gen_new(vm, list.list, out);
}

enum err jfilter_batch(struct jvm *vm, struct jcall *c, struct jv *out) /* linecount fill_with */
{
    int64_t size;
    struct jv_list *all;
    struct jv rows;
    TRY(jcall_int(vm, c->arg[0], "batch", &size));
    TRY(jv_to_list(vm, c->self, &all));
    TRY(jv_list_new(vm, JV_LIST, 0, &rows));
    struct jv row = {.kind = JV_ABSENT};
    for (uint32_t i = 0; i < all->n; i++) {
        if (row.kind == JV_ABSENT || row.list->n == size) {
            TRY(jv_list_new(vm, JV_LIST, 0, &row));
            TRY(jv_list_add(vm, rows.list, row));
        }
        TRY(jv_list_add(vm, row.list, all->at[i]));
    }
    bool fill = row.kind != JV_ABSENT && jcall_given(c->arg[1]);
    while (fill && row.list->n < size) {
        TRY(jvm_pay(vm, 1));
        TRY(jv_list_add(vm, row.list, c->arg[1]));
    }
    return jv_gen_new(vm, rows.list, out);
}

enum err jfilter_slice(struct jvm *vm, struct jcall *c, struct jv *out) /* slices fill_with */
{
    int64_t n;
    struct jv_list *all;
    struct jv rows;
    TRY(jcall_int(vm, c->arg[0], "slice", &n));
    TRY(jv_to_list(vm, c->self, &all));
    if (n <= 0) {
        return jvm_fail(vm, "slice expects a positive number of slices");
    }
    TRY(jvm_pay(vm, (uint64_t)n));
    TRY(jv_list_new(vm, JV_LIST, 0, &rows));
    uint32_t at = 0;
    int64_t longer = all->n % n;
    bool fill = jcall_given(c->arg[1]);
    for (int64_t i = 0; i < n; i++) {
        struct jv row;
        TRY(jv_list_new(vm, JV_LIST, 0, &row));
        TRY(jv_list_add(vm, rows.list, row));
        for (int64_t k = all->n / n + (i < longer); k > 0; k--) {
            TRY(jv_list_add(vm, row.list, all->at[at++]));
        }
        if (fill && i >= longer) {
            TRY(jv_list_add(vm, row.list, c->arg[1]));
        }
    }
    return jv_gen_new(vm, rows.list, out);
}

enum err jfilter_sum(struct jvm *vm, struct jcall *c, struct jv *out) /* attribute start */
{
    struct jv_iter it = {.of = c->self};
    struct jv item;
    *out = c->arg[1].kind == JV_ABSENT ? jv_int(0) : c->arg[1];
    if (jv_is_str(*out)) {
        return jvm_fail(vm, "sum adds no strings; use join");
    }
    while (jv_iter_next(vm, &it, &item)) {
        if (c->arg[0].kind != JV_ABSENT) {
            TRY(getter(vm, item, c->arg[0], &item));
        }
        TRY(jop_binary(vm, JB_ADD, *out, item, out));
    }
    return it.err;
}

enum err jfilter_extreme(struct jvm *vm, struct jcall *c, struct jv *out) /* case_sensitive attribute */
{
    int sign = c->row->how;
    struct keyed all;
    TRY(keyed(vm, c->self, c->arg[1], jcall_flag(c->arg[0], false), &all));
    const struct jv_list *items = all.items.list, *keys = all.keys.list;
    if (items->n == 0) {
        *out = jv_hint("no aggregated item, the sequence was empty");
        return ERR_OK;
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < items->n; i++) {
        int order;
        TRY(jv_order(vm, keys->at[i], keys->at[best], sign < 0 ? "<" : ">", &order));
        best = order == sign ? i : best;
    }
    *out = items->at[best];
    return ERR_OK;
}

enum err jfilter_reverse(struct jvm *vm, struct jcall *c, struct jv *out)
{
    if (jv_is_str(c->self)) {
        return jop_slice(vm, c->self, (struct jv[]){jv_none(), jv_none(), jv_int(-1)}, out);
    }
    struct jv_list *l;
    struct jv back;
    TRY(jv_to_list(vm, c->self, &l));
    TRY(jvm_pay(vm, l->n / 8));
    TRY(jv_list_new(vm, JV_LIST, l->n, &back));
    for (uint32_t i = l->n; i > 0; i--) {
        TRY(jv_list_add(vm, back.list, l->at[i - 1]));
    }
    return jv_gen_new(vm, back.list, out);
}
