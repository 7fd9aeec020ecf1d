/* The global functions, the loop variable and its methods. A new function needs a function and a row. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

#include <string.h>
#include <time.h>

enum { MAX_RAISED_BYTES = 256 }; /* of a template's own message, which can quote user text */

/* --- functions -------------------------------------------------------------------------------------------------- */

static enum err fn_range(struct jvm *vm, struct jcall *c, struct jv *out) /* start stop step */
{
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < 3 && c->arg[i].kind != JV_ABSENT; i++) {
        TRY(jcall_int(vm, c->arg[i], "range", &v[i]));
    }
    if (c->arg[1].kind == JV_ABSENT) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0) {
        return jvm_fail(vm, "range() arg 3 must not be zero");
    }
    bool is_empty = v[2] > 0 ? v[0] >= v[1] : v[0] <= v[1];
    uint64_t span = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
    uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
    uint64_t n = is_empty ? 0 : (span - 1) / step + 1;
    if (n > JVM_MAX_RANGE) {
        return jvm_fail(vm, "range too big; the limit is %d", JVM_MAX_RANGE);
    }
    return jv_range_new(vm, (struct jv_range){.start = v[0], .stop = v[1], .step = v[2], .n = (uint32_t)n}, out);
}

/* Adds keys and values of a dict, or pairs of a sequence, to d. */
static enum err add_pairs(struct jvm *vm, struct jv from, struct jv_dict *d)
{
    if (from.kind == JV_DICT) {
        for (uint32_t i = 0; i < from.dict->n; i++) {
            TRY(jv_dict_put(vm, d, from.dict->at[i].key, from.dict->at[i].value));
        }
        return jvm_pay(vm, from.dict->n);
    }
    struct jv_iter it = {.of = from};
    struct jv item;
    while (jv_iter_next(vm, &it, &item)) {
        struct jv_list *pair;
        TRY(jv_to_list(vm, item, &pair));
        if (pair->n != 2) {
            return jvm_fail(vm, "a dict is made of pairs, not of %u items", (unsigned)pair->n);
        }
        TRY(jv_dict_put(vm, d, pair->at[0], pair->at[1]));
    }
    return it.err;
}

static enum err fn_dict(struct jvm *vm, struct jcall *c, struct jv *out)
{
    if (c->n_pos > 1) {
        return jvm_fail(vm, "expected at most 1 positional argument, got %u", (unsigned)c->n_pos);
    }
    TRY(jv_dict_new(vm, (enum jv_kind)c->row->how, c->n_kw, out));
    if (c->n_pos == 1) {
        TRY(add_pairs(vm, c->pos[0], out->dict));
    }
    for (uint32_t i = 0; i < c->n_kw; i++) {
        TRY(jv_dict_put(vm, out->dict, c->kw_names[i], c->kw[i]));
    }
    return ERR_OK;
}

static enum err fn_raise_exception(struct jvm *vm, struct jcall *c, struct jv *out) /* message */
{
    struct jv text;
    (void)out;
    TRY(jv_to_str(vm, c->arg[0], &text));
    size_t n = MIN_OF(text.str->len, (uint32_t)MAX_RAISED_BYTES);
    n -= n < text.str->len ? utf8_incomplete_tail(text.str->p, n) : 0;
    enum err err = jvm_fail(vm, "%.*s%s", (int)n, text.str->p, n < text.str->len ? "..." : "");
    if (vm->info != NULL) {
        vm->info->offset = vm->prog->code[vm->pc].pos;
    }
    return err;
}

/* Python's strftime of the render's `now`, in UTC. If the format contains user text, all of the result is user text. */
static enum err fn_strftime_now(struct jvm *vm, struct jcall *c, struct jv *out) /* format */
{
    const struct jstr *format;
    TRY(jcall_str(vm, c->arg[0], "strftime_now", &format));
    char pattern[256];
    char text[1024];
    if (format->len + 2 > sizeof pattern || memchr(format->p, '\0', format->len) != NULL) {
        return jvm_fail(vm, "the format of strftime_now is longer than %zu bytes or holds a NUL", sizeof pattern - 2);
    }
    memcpy(pattern, format->p, format->len);
    memcpy(pattern + format->len, "|", 2); /* distinguishes an empty result from one that does not fit */
    struct tm tm;
    time_t now = (time_t)vm->now;
    if (gmtime_r(&now, &tm) == NULL) {
        return jvm_fail(vm, "the clock is out of range");
    }
    size_t n = strftime(text, sizeof text, pattern, &tm);
    if (n == 0) {
        return jvm_fail(vm, "the result of strftime_now is longer than %zu bytes", sizeof text);
    }
    jtext_put(&vm->tmp, text, n - 1, format->n_user > 0); /* the source of each byte is unknown after formatting */
    return jtext_take(vm, &vm->tmp, 0, out);
}

static enum err cycler_of(struct jvm *vm, enum jv_kind kind, const struct jv *items, uint32_t n, struct jv *out)
{
    struct jv list;
    TRY(jv_list_of(vm, JV_LIST, items, n, &list));
    TRY(jv_gen_new(vm, list.list, out));
    out->kind = (uint8_t)kind;
    return ERR_OK;
}

static enum err fn_cycler(struct jvm *vm, struct jcall *c, struct jv *out)
{
    if (c->n_pos == 0 || c->n_kw != 0) {
        return jvm_fail(vm, "cycler expects at least one item");
    }
    return cycler_of(vm, JV_CYCLER, c->pos, c->n_pos, out);
}

static enum err fn_joiner(struct jvm *vm, struct jcall *c, struct jv *out) /* sep */
{
    struct jv items[2];
    TRY(jv_borrow(vm, "", 0, false, &items[0]));
    TRY(jv_borrow(vm, ", ", 2, false, &items[1]));
    items[1] = c->arg[0].kind == JV_ABSENT ? items[1] : c->arg[0];
    return cycler_of(vm, JV_JOINER, items, 2, out);
}

const struct jbuiltin jinja_functions[] = {
    {"cycler", fn_cycler, "*", 0, 0},
    {"dict", fn_dict, "*", 0, JV_DICT},
    {"joiner", fn_joiner, "sep", 0, 0},
    {"namespace", fn_dict, "*", 0, JV_NAMESPACE},
    {"raise_exception", fn_raise_exception, "message", 1, 0},
    {"range", fn_range, "start stop step", 1, 0},
    {"strftime_now", fn_strftime_now, "format", 1, 0},
    {NULL, NULL, NULL, 0, 0},
};

/* --- cycler ----------------------------------------------------------------------------------------------------- */

static enum err cycler_next(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv_gen *g = c->self.gen;
    (void)vm;
    *out = g->items->at[g->pos];
    g->pos = (g->pos + 1) % g->items->n;
    return ERR_OK;
}

static enum err cycler_reset(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
    c->self.gen->pos = 0;
    *out = jv_none();
    return ERR_OK;
}

const struct jbuiltin jinja_cycler_methods[] = {
    {"next", cycler_next, "", 0, 0},
    {"reset", cycler_reset, "", 0, 0},
    {NULL, NULL, NULL, 0, 0},
};

/* --- the loop variable
 * ------------------------------------------------------------------------------------------------ */

static enum err loop_cycle(struct jvm *vm, struct jcall *c, struct jv *out)
{
    if (c->n_pos == 0 || c->n_kw != 0) {
        return jvm_fail(vm, "no items for cycling given");
    }
    *out = c->pos[c->self.loop->index % c->n_pos];
    return ERR_OK;
}

static enum err loop_changed(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv_loop *l = c->self.loop;
    struct jv args;
    bool same = false;
    if (c->n_kw != 0) {
        return jvm_fail(vm, "changed takes no named arguments");
    }
    TRY(jv_list_of(vm, JV_TUPLE, c->pos, c->n_pos, &args));
    if (l->changed.kind != JV_ABSENT) {
        TRY(jv_equal(vm, l->changed, args, &same));
    }
    l->changed = args;
    *out = jv_bool(!same);
    return ERR_OK;
}

const struct jbuiltin jinja_loop_methods[] = {
    {"changed", loop_changed, "*", 0, 0},
    {"cycle", loop_cycle, "*", 0, 0},
    {NULL, NULL, NULL, 0, 0},
};

bool jloop_attr(const struct jv_loop *l, const struct jstr *name, struct jv *out)
{
    int64_t i = l->index;
    int64_t n = l->n;
    const struct {
        const char *name;
        struct jv value;
    } rows[] = {
        {"index", jv_int(i + 1)},
        {"index0", jv_int(i)},
        {"revindex", jv_int(n - i)},
        {"revindex0", jv_int(n - i - 1)},
        {"first", jv_bool(i == 0)},
        {"last", jv_bool(i == n - 1)},
        {"length", jv_int(n)},
        {"depth", jv_int(1)}, /* only recursive loops are deeper, and these are rejected */
        {"depth0", jv_int(0)},
        {"previtem", i > 0 ? jv_at(l->of, (uint32_t)i - 1) : jv_hint("there is no previous item")},
        {"nextitem", i + 1 < n ? jv_at(l->of, (uint32_t)i + 1) : jv_hint("there is no next item")},
    };
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        if (jstr_is(name, rows[k].name)) {
            *out = rows[k].value;
            return true;
        }
    }
    return false;
}
