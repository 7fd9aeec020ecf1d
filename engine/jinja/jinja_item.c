/* Attributes, items and slices, by Python's rules. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

/* --- attributes and items
 * ---------------------------------------------------------------------------------------------- */

static const struct jbuiltin *methods_of(struct jv v)
{
    switch (v.kind) {
    case JV_STR:
        return jinja_str_methods;
    case JV_DICT:
        return jinja_dict_methods;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
        return jinja_list_methods;
    case JV_CYCLER:
        return jinja_cycler_methods;
    case JV_LOOP:
        return jinja_loop_methods;
    case JV_FUNC:
        return v.func->how == JV_DICT ? jinja_dict_class_methods : NULL;
    default:
        return NULL;
    }
}

/* Finds the attribute, ignoring items; JV_ABSENT if there is none. */
static enum err own_attr(struct jvm *vm, struct jv v, struct jv name, struct jv *out)
{
    *out = (struct jv){.kind = JV_ABSENT};
    if (v.kind == JV_NAMESPACE) {
        return jv_dict_find(vm, v.dict, name, out);
    }
    if (v.kind == JV_LOOP && jloop_attr(v.loop, name.str, out)) {
        return ERR_OK;
    }
    if (v.kind == JV_MACRO && jstr_is(name.str, "name")) {
        *out = (struct jv){.kind = JV_STR, .str = vm->prog->names[v.macro->code->name]};
        return ERR_OK;
    }
    if (v.kind == JV_CYCLER && jstr_is(name.str, "current")) {
        *out = v.gen->items->at[v.gen->pos];
        return ERR_OK;
    }
    const struct jbuiltin *table = methods_of(v);
    int row = table == NULL ? -1 : jbuiltin_find(table, name.str->p, name.str->len);
    if (row < 0) {
        return ERR_OK;
    }
    if (table[row].fn == NULL) {
        *out = jv_hint("this method changes its object, which templates may not do");
        return ERR_OK;
    }
    if (v.kind == JV_LOOP) {
        v.loop->escaped = true; /* the method can be kept */
    }
    struct jv_method *m;
    TRY(jv_alloc(vm, sizeof *m, &m));
    *m = (struct jv_method){.self = v, .fn = &table[row]};
    *out = (struct jv){.kind = JV_METHOD, .method = m};
    return ERR_OK;
}

static struct jv no_attr(struct jv v, struct jv name)
{
    return (struct jv){.kind = JV_UNDEF, .sub = JU_ATTR, .aux = v.kind, .name = name.str};
}

enum err jop_attr(struct jvm *vm, struct jv v, struct jv name, struct jv *out)
{
    TRY(jvm_defined(vm, v));
    TRY(own_attr(vm, v, name, out));
    if (out->kind == JV_ABSENT && v.kind == JV_DICT) {
        TRY(jv_dict_find(vm, v.dict, name, out));
    }
    *out = out->kind == JV_ABSENT ? no_attr(v, name) : *out;
    return ERR_OK;
}

/* Returns the byte offset of code point i of s (i <= s->chars). */
static size_t offset_of(const struct jstr *s, uint32_t i)
{
    if (s->chars == s->len) {
        return i;
    }
    size_t at = 0;
    for (; at < s->len; at++) {
        if (((unsigned char)s->p[at] & 0xC0) != 0x80) {
            if (i == 0) {
                break;
            }
            i--;
        }
    }
    return at;
}

static enum err element(struct jvm *vm, struct jv v, uint32_t i, struct jv *out)
{
    if (v.kind == JV_STR) {
        size_t from = offset_of(v.str, i);
        uint32_t cp;
        TRY(jvm_pay_bytes(vm, v.str->chars == v.str->len ? 0 : from));
        return jv_substr(vm, v.str, from, from + utf8_decode(v.str->p + from, v.str->len - from, &cp, NULL), out);
    }
    *out = jv_at(v, i);
    return ERR_OK;
}

enum err jop_item(struct jvm *vm, struct jv v, struct jv key, struct jv *out)
{
    TRY(jvm_defined(vm, v));
    if (v.kind == JV_DICT && key.kind != JV_LIST && key.kind != JV_DICT) {
        TRY(jv_dict_find(vm, v.dict, key, out));
        if (out->kind != JV_ABSENT) {
            return ERR_OK;
        }
    }
    bool indexable = jv_is_str(v) || jv_is_seq(v) || v.kind == JV_RANGE;
    if (indexable && jv_is_int(key)) {
        int64_t n = jv_len(v);
        int64_t i = jv_as_int(key);
        if (i < n && i >= -n) {
            return element(vm, v, (uint32_t)(i < 0 ? i + n : i), out);
        }
    }
    if (jv_is_str(key)) {
        TRY(own_attr(vm, v, key, out));
        *out = out->kind == JV_ABSENT ? no_attr(v, key) : *out;
        return ERR_OK;
    }
    *out = (struct jv){.kind = JV_UNDEF, .sub = JU_ELEM, .aux = v.kind};
    return ERR_OK;
}

/* --- slices
 * ------------------------------------------------------------------------------------------------------------ */

/* Reads one bound of a slice: an int, or none for its default. */
static enum err bound(struct jvm *vm, struct jv v, int64_t none, int64_t *out)
{
    if (v.kind == JV_NONE) {
        *out = none;
        return ERR_OK;
    }
    TRY(jvm_defined(vm, v));
    if (!jv_is_int(v)) {
        return jvm_fail(vm, "slice indices must be integers or None, not %s", jv_type_name(v));
    }
    *out = jv_as_int(v);
    return ERR_OK;
}

static int64_t clamp(int64_t i, int64_t n, bool backwards)
{
    int64_t low = backwards ? -1 : 0;
    int64_t high = backwards ? n - 1 : n;
    if (i < 0) {
        i = i < -n ? low - n : i; /* keeps i + n from overflowing */
        i += n;
    }
    return MAX_OF(MIN_OF(i, high), low);
}

/* A slice of a sequence: `count` items from index `from` on, each `step` after the last. */
struct slice {
    int64_t from, to, step, count;
};

static enum err slice_str(struct jvm *vm, const struct jstr *s, const struct slice *by, struct jv *out)
{
    if (by->step == 1) {
        uint32_t from = (uint32_t)by->from, count = (uint32_t)by->count;
        size_t a = offset_of(s, from);
        size_t b = s->chars == s->len ? a + count : offset_of(s, from + count);
        TRY(jvm_pay_bytes(vm, s->chars == s->len ? 0 : b));
        return jv_substr(vm, s, a, b, out);
    }
    uint32_t *offsets; /* of every code point, because strides can be negative */
    TRY(jvm_pay_bytes(vm, s->len));
    TRY(jv_alloc(vm, ((size_t)s->chars + 1) * sizeof *offsets, &offsets));
    uint32_t n = 0;
    for (uint32_t at = 0; at < s->len; at++) {
        if (((unsigned char)s->p[at] & 0xC0) != 0x80) {
            offsets[n++] = at;
        }
    }
    offsets[n] = s->len;
    for (int64_t i = 0; i < by->count; i++) {
        const uint32_t *at = &offsets[by->from + i * by->step];
        jtext_sub(&vm->tmp, s, at[0], at[1]);
    }
    return jtext_take(vm, &vm->tmp, 0, out);
}

/* Computes the value at index i of a range, -1 <= i <= n. False: it exceeds 64 bits. */
static bool range_edge(const struct jv_range *r, int64_t i, int64_t *out)
{
    if (i > 0 && i <= r->n) { /* from the previous item, because the product can exceed 64 bits if the sum does not */
        return !__builtin_add_overflow(jv_range_at(r, (uint32_t)i - 1), r->step, out);
    }
    *out = r->start;
    return i == 0 || !__builtin_sub_overflow(r->start, r->step, out);
}

/* A slice of a range is a range. Its bounds and step are visible when it is printed, and can exceed 64 bits. */
static enum err slice_range(struct jvm *vm, const struct jv_range *of, const struct slice *by, struct jv *out)
{
    struct jv_range part = {.n = (uint32_t)by->count};
    if (!range_edge(of, by->from, &part.start) || !range_edge(of, by->to, &part.stop) ||
        __builtin_mul_overflow(of->step, by->step, &part.step)) {
        return jvm_fail(vm, "the result does not fit in 64 bits");
    }
    return jv_range_new(vm, part, out);
}

/* Finds the items of a sequence of n that the bounds and the step choose. */
static enum err find_slice(struct jvm *vm, const struct jv by[3], int64_t n, struct slice *out)
{
    TRY(bound(vm, by[2], 1, &out->step));
    if (out->step == 0) {
        return jvm_fail(vm, "slice step cannot be zero");
    }
    bool back = out->step < 0;
    TRY(bound(vm, by[0], back ? n - 1 : 0, &out->from));
    TRY(bound(vm, by[1], n, &out->to));
    out->from = by[0].kind == JV_NONE && back ? n - 1 : clamp(out->from, n, back);
    out->to = by[1].kind == JV_NONE && back ? -1 : clamp(out->to, n, back);
    int64_t step = MIN_OF(MAX_OF(out->step, -INT32_MAX), INT32_MAX); /* longer than any sequence */
    int64_t distance = back ? out->from - out->to : out->to - out->from;
    step = back ? -step : step;
    out->count = distance > 0 ? (distance + step - 1) / step : 0;
    return ERR_OK;
}

enum err jop_slice(struct jvm *vm, struct jv v, const struct jv by[3], struct jv *out)
{
    struct slice s;
    TRY(jvm_defined(vm, v));
    if (!jv_is_str(v) && !jv_is_seq(v) && v.kind != JV_RANGE) {
        return jvm_fail(vm, "'%s' object cannot be sliced", jv_type_name(v));
    }
    TRY(find_slice(vm, by, jv_len(v), &s));
    if (v.kind == JV_STR) {
        return slice_str(vm, v.str, &s, out);
    }
    TRY(jvm_pay(vm, (uint64_t)s.count / 8));
    if (v.kind == JV_RANGE) {
        return slice_range(vm, v.range, &s, out);
    }
    TRY(jv_list_new(vm, (enum jv_kind)v.kind, (size_t)s.count, out));
    for (int64_t i = 0; i < s.count; i++) {
        out->list->at[i] = v.list->at[s.from + i * s.step];
    }
    out->list->n = (uint32_t)s.count;
    return ERR_OK;
}
