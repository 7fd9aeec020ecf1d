/* Operators, comparisons, attributes, items and slices, with Python's rules for mixed types. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <string.h>

/* --- arithmetic ------------------------------------------------------------------------------------------------- */

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "**"};

static enum err unsupported(struct jvm *vm, enum jbin op, struct jv a, struct jv b)
{
    return jvm_fail(vm, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op], jv_type_name(a),
                    jv_type_name(b));
}

static enum err overflow(struct jvm *vm) { return jvm_fail(vm, "the result does not fit in 64 bits"); }

static enum err int_power(struct jvm *vm, int64_t base, int64_t exponent, struct jv *out)
{
    int64_t r = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(r, base, &r)) {
            return overflow(vm);
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            return overflow(vm);
        }
    }
    *out = jv_int(r);
    return ERR_OK;
}

static enum err int_op(struct jvm *vm, enum jbin op, int64_t a, int64_t b, struct jv *out)
{
    int64_t r = 0;
    switch (op) {
    case JB_ADD:
        if (__builtin_add_overflow(a, b, &r)) {
            return overflow(vm);
        }
        break;
    case JB_SUB:
        if (__builtin_sub_overflow(a, b, &r)) {
            return overflow(vm);
        }
        break;
    case JB_MUL:
        if (__builtin_mul_overflow(a, b, &r)) {
            return overflow(vm);
        }
        break;
    case JB_POW:
        return int_power(vm, a, b, out); /* b >= 0 */
    default:                             /* JB_FLOORDIV, JB_MOD: towards minus infinity */
        if (b == 0) {
            return jvm_fail(vm, "integer division or modulo by zero");
        }
        if (b == -1) { /* INT64_MIN / -1 overflows */
            if (op == JB_FLOORDIV && a == INT64_MIN) {
                return overflow(vm);
            }
            r = op == JB_MOD ? 0 : -a;
        } else if (op == JB_MOD) {
            r = a % b;
            r += r != 0 && (r < 0) != (b < 0) ? b : 0;
        } else {
            r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        }
    }
    *out = jv_int(r);
    return ERR_OK;
}

static enum err float_op(struct jvm *vm, enum jbin op, double a, double b, struct jv *out)
{
    if (b == 0 && (op == JB_DIV || op == JB_FLOORDIV || op == JB_MOD || (op == JB_POW && a == 0 && b < 0))) {
        return jvm_fail(vm, "division by zero");
    }
    double r;
    switch (op) {
    case JB_ADD:
        r = a + b;
        break;
    case JB_SUB:
        r = a - b;
        break;
    case JB_MUL:
        r = a * b;
        break;
    case JB_DIV:
        r = a / b;
        break;
    case JB_POW:
        r = pow(a, b);
        if (r != r || isinf(r)) {
            return jvm_fail(vm, "the result of ** is not a finite number");
        }
        break;
    default: {
        double mod = fmod(a, b);
        double quotient = (a - mod) / b;
        if (mod == 0) {
            mod = copysign(0, b);
        } else if ((mod < 0) != (b < 0)) {
            mod += b;
            quotient -= 1;
        }
        double whole = floor(quotient); /* the quotient is whole up to rounding */
        whole += quotient - whole > 0.5 ? 1 : 0;
        r = op == JB_MOD ? mod : quotient == 0 ? copysign(0, a / b) : whole;
    }
    }
    *out = jv_float(r);
    return ERR_OK;
}

static enum err add_lists(struct jvm *vm, struct jv a, struct jv b, struct jv *out)
{
    size_t n = (size_t)a.list->n + b.list->n;
    TRY(jvm_pay(vm, n / 8));
    TRY(jv_list_new(vm, (enum jv_kind)a.kind, n, out));
    out->list->n = (uint32_t)n;
    if (a.list->n > 0) {
        memcpy(out->list->at, a.list->at, a.list->n * sizeof *a.list->at);
    }
    if (b.list->n > 0) {
        memcpy(out->list->at + a.list->n, b.list->at, b.list->n * sizeof *b.list->at);
    }
    return ERR_OK;
}

enum err jv_mark_safe(struct jvm *vm, const struct jstr *s, struct jv *out)
{
    struct jstr *copy;
    TRY(jv_alloc(vm, sizeof *copy, &copy));
    *copy = *s;
    copy->safe = true;
    *out = (struct jv){.kind = JV_STR, .str = copy};
    return ERR_OK;
}

static enum err repeat(struct jvm *vm, struct jv v, int64_t times, struct jv *out)
{
    uint64_t n = times > 0 ? (uint64_t)times : 0;
    uint64_t one = jv_is_str(v) ? v.str->len : v.list->n;
    uint64_t limit = jv_is_str(v) ? JINJA_MAX_OUTPUT_BYTES : JINJA_MAX_ARENA_BYTES / sizeof(struct jv);
    if (one != 0 && n > limit / one) {
        return jvm_fail(vm, "a repeated %s is longer than %llu", jv_type_name(v), (unsigned long long)limit);
    }
    n = one == 0 ? 0 : n;
    TRY(jvm_pay(vm, n));
    if (jv_is_str(v)) {
        for (uint64_t i = 0; i < n; i++) {
            jtext_str(&vm->tmp, v.str);
        }
        TRY(jtext_take(vm, &vm->tmp, 0, out));
        return v.str->safe ? jv_mark_safe(vm, out->str, out) : ERR_OK;
    }
    TRY(jv_list_new(vm, (enum jv_kind)v.kind, (size_t)(n * one), out));
    for (uint64_t i = 0; i < n; i++) {
        memcpy(out->list->at + out->list->n, v.list->at, v.list->n * sizeof *v.list->at);
        out->list->n += v.list->n;
    }
    return ERR_OK;
}

enum err jv_escape(struct jvm *vm, const struct jstr *s, struct jv *out)
{
    uint32_t span = 0;
    size_t from = vm->tmp.text.len;
    for (size_t i = 0; i < s->len; i++) {
        const char *e = s->p[i] == '&'    ? "&amp;"
                        : s->p[i] == '<'  ? "&lt;"
                        : s->p[i] == '>'  ? "&gt;"
                        : s->p[i] == '\'' ? "&#39;"
                        : s->p[i] == '"'  ? "&#34;"
                                          : NULL;
        bool user = jstr_user_at(s, i, &span);
        jtext_put(&vm->tmp, e != NULL ? e : s->p + i, e != NULL ? strlen(e) : 1, user);
    }
    return jtext_take(vm, &vm->tmp, from, out);
}

/* Markup's +: text that is not safe yet is escaped, and the sum is safe. */
static enum err add_strings(struct jvm *vm, struct jv a, struct jv b, struct jv *out)
{
    bool safe = a.str->safe || b.str->safe;
    if (safe && !a.str->safe) {
        TRY(jv_escape(vm, a.str, &a));
    }
    if (safe && !b.str->safe) {
        TRY(jv_escape(vm, b.str, &b));
    }
    TRY(jv_concat(vm, a.str, b.str, out));
    return safe && !out->str->safe ? jv_mark_safe(vm, out->str, out) : ERR_OK;
}

enum err jop_binary(struct jvm *vm, enum jbin op, struct jv a, struct jv b, struct jv *out)
{
    if (jv_is_number(a) && jv_is_number(b)) {
        if (a.kind == JV_BIGINT || b.kind == JV_BIGINT) {
            return jvm_fail(vm, "arithmetic on an integer that does not fit in 64 bits");
        }
        bool ints = jv_is_int(a) && jv_is_int(b);
        if (ints && op != JB_DIV && !(op == JB_POW && jv_as_int(b) < 0)) {
            return int_op(vm, op, jv_as_int(a), jv_as_int(b), out);
        }
        return float_op(vm, op, jv_as_float(a), jv_as_float(b), out);
    }
    if (op == JB_MOD && jv_is_str(a)) {
        return jop_format(vm, a.str, b, out);
    }
    if (a.kind == JV_UNDEF || b.kind == JV_UNDEF) {
        return jvm_fail_undefined(vm, a.kind == JV_UNDEF ? a : b);
    }
    if (op == JB_ADD && jv_is_str(a) && jv_is_str(b)) {
        return add_strings(vm, a, b, out);
    }
    if (op == JB_ADD && jv_is_seq(a) && a.kind == b.kind) {
        return add_lists(vm, a, b, out);
    }
    if (op == JB_MUL && (jv_is_str(a) || jv_is_seq(a)) && jv_is_int(b)) {
        return repeat(vm, a, jv_as_int(b), out);
    }
    if (op == JB_MUL && (jv_is_str(b) || jv_is_seq(b)) && jv_is_int(a)) {
        return repeat(vm, b, jv_as_int(a), out);
    }
    return unsupported(vm, op, a, b);
}

enum err jop_negate(struct jvm *vm, struct jv v, struct jv *out)
{
    if (v.kind == JV_UNDEF) {
        return jvm_fail_undefined(vm, v);
    }
    if (jv_is_float(v)) {
        *out = jv_float(-jv_as_float(v));
        return ERR_OK;
    }
    if (v.kind == JV_BIGINT) {
        return jvm_fail(vm, "arithmetic on an integer that does not fit in 64 bits");
    }
    if (!jv_is_int(v)) {
        return jvm_fail(vm, "bad operand type for unary -: '%s'", jv_type_name(v));
    }
    return int_op(vm, JB_SUB, 0, jv_as_int(v), out);
}

/* --- comparing -------------------------------------------------------------------------------------------------- */

enum err jop_contains(struct jvm *vm, struct jv item, struct jv in, bool *out)
{
    *out = false;
    if (in.kind == JV_STR) {
        if (!jv_is_str(item)) {
            return jvm_fail(vm, "'in <string>' requires string as left operand, not %s", jv_type_name(item));
        }
        TRY(jvm_pay_bytes(vm, in.str->len));
        *out = item.str->len == 0 || memmem(in.str->p, in.str->len, item.str->p, item.str->len) != NULL;
        return ERR_OK;
    }
    if (in.kind == JV_DICT) {
        struct jv *found;
        TRY(jv_dict_find(vm, in.dict, item, &found));
        *out = found != NULL;
        return ERR_OK;
    }
    struct jv_iter it;
    bool more = true;
    if (in.kind == JV_NONE || jv_is_number(in)) {
        return jvm_fail(vm, "argument of type '%s' is not iterable", jv_type_name(in));
    }
    TRY(jv_iter_init(vm, in, &it));
    while (more && !*out) {
        struct jv v;
        TRY(jv_iter_next(vm, &it, &v, &more));
        if (more) {
            TRY(jv_equal(vm, v, item, out));
        }
    }
    return ERR_OK;
}

enum err jop_compare(struct jvm *vm, enum jcmp op, struct jv a, struct jv b, bool *out)
{
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    int c;
    switch (op) {
    case JC_EQ:
    case JC_NE:
        TRY(jv_equal(vm, a, b, out));
        *out = *out == (op == JC_EQ);
        return ERR_OK;
    case JC_IN:
    case JC_NOT_IN:
        TRY(jop_contains(vm, a, b, out));
        *out = *out == (op == JC_IN);
        return ERR_OK;
    default:
        TRY(jv_order(vm, a, b, names[op], &c));
        *out = c != -2 && (op == JC_LT ? c < 0 : op == JC_LE ? c <= 0 : op == JC_GT ? c > 0 : c >= 0);
        return ERR_OK;
    }
}

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
    case JV_FUNC:
        return v.func->how == JV_DICT ? jinja_dict_class_methods : NULL;
    default:
        return NULL;
    }
}

/* The attribute proper, without a look at the items; JV_ABSENT when there is none. */
static enum err own_attr(struct jvm *vm, struct jv v, struct jv name, struct jv *out)
{
    *out = (struct jv){.kind = JV_ABSENT};
    if (v.kind == JV_NAMESPACE) {
        struct jv *found;
        TRY(jv_dict_find(vm, v.dict, name, &found));
        if (found != NULL) {
            *out = *found;
        }
        return ERR_OK;
    }
    if (v.kind == JV_LOOP) {
        return jloop_attr(vm, v.loop, name.str, out);
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
    if (v.kind == JV_UNDEF) {
        return jvm_fail_undefined(vm, v);
    }
    TRY(own_attr(vm, v, name, out));
    if (out->kind != JV_ABSENT) {
        return ERR_OK;
    }
    *out = no_attr(v, name);
    if (v.kind == JV_DICT) {
        struct jv *found;
        TRY(jv_dict_find(vm, v.dict, name, &found));
        if (found != NULL) {
            *out = *found;
        }
    }
    return ERR_OK;
}

/* Byte offset of code point i of s (i <= s->chars). */
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
    *out = v.kind == JV_RANGE ? jv_int(jv_range_at(v.range, i)) : v.list->at[i];
    return ERR_OK;
}

enum err jop_item(struct jvm *vm, struct jv v, struct jv key, struct jv *out)
{
    if (v.kind == JV_UNDEF) {
        return jvm_fail_undefined(vm, v);
    }
    if (v.kind == JV_DICT && key.kind != JV_LIST && key.kind != JV_DICT) {
        struct jv *found;
        TRY(jv_dict_find(vm, v.dict, key, &found));
        if (found != NULL) {
            *out = *found;
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
        if (out->kind == JV_ABSENT) {
            *out = no_attr(v, key);
        }
        return ERR_OK;
    }
    *out = (struct jv){.kind = JV_UNDEF, .sub = JU_ELEM, .aux = v.kind};
    return ERR_OK;
}

/* --- slices
 * ------------------------------------------------------------------------------------------------------------ */

/* One bound of a slice: an int, or none for its default. */
static enum err bound(struct jvm *vm, struct jv v, int64_t none, int64_t *out)
{
    if (v.kind == JV_NONE) {
        *out = none;
        return ERR_OK;
    }
    if (!jv_is_int(v)) {
        return v.kind == JV_UNDEF ? jvm_fail_undefined(vm, v)
                                  : jvm_fail(vm, "slice indices must be integers or None, not %s", jv_type_name(v));
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
    return i < low ? low : i > high ? high : i;
}

static enum err slice_str(struct jvm *vm, const struct jstr *s, int64_t from, int64_t step, uint32_t count,
                          struct jv *out)
{
    if (step == 1) {
        size_t a = offset_of(s, (uint32_t)from);
        size_t b = s->chars == s->len ? a + count : offset_of(s, (uint32_t)from + count);
        TRY(jvm_pay_bytes(vm, s->chars == s->len ? 0 : b));
        return jv_substr(vm, s, a, b, out);
    }
    uint32_t *offsets; /* of every code point, as strides go both ways */
    TRY(jvm_pay_bytes(vm, s->len));
    TRY(jv_alloc(vm, ((size_t)s->chars + 1) * sizeof *offsets, &offsets));
    uint32_t n = 0;
    for (uint32_t at = 0; at < s->len; at++) {
        if (((unsigned char)s->p[at] & 0xC0) != 0x80) {
            offsets[n++] = at;
        }
    }
    offsets[n] = s->len;
    for (uint32_t i = 0; i < count; i++, from += step) {
        jtext_sub(&vm->tmp, s, offsets[from], offsets[from + 1]);
    }
    return jtext_take(vm, &vm->tmp, 0, out);
}

/* Where item i of a range is or would be, -1 <= i <= n. False: not in 64 bits. */
static bool range_edge(const struct jv_range *r, int64_t i, int64_t *out)
{
    if (i > 0 && i <= r->n) { /* from the last item before, as the product may pass 64 bits where the sum does not */
        return !__builtin_add_overflow(jv_range_at(r, (uint32_t)i - 1), r->step, out);
    }
    *out = r->start;
    return i == 0 || !__builtin_sub_overflow(r->start, r->step, out);
}

/* A slice of a range is a range; its ends and step show when it is printed, and may be more than 64 bits hold. */
static enum err slice_range(struct jvm *vm, const struct jv_range *of, int64_t from, int64_t to, int64_t step,
                            int64_t count, struct jv *out)
{
    struct jv_range part = {.n = (uint32_t)count};
    if (!range_edge(of, from, &part.start) || !range_edge(of, to, &part.stop) ||
        __builtin_mul_overflow(of->step, step, &part.step)) {
        return overflow(vm);
    }
    struct jv_range *r;
    TRY(jv_alloc(vm, sizeof *r, &r));
    *r = part;
    *out = (struct jv){.kind = JV_RANGE, .range = r};
    return ERR_OK;
}

enum err jop_slice(struct jvm *vm, struct jv v, struct jv from_v, struct jv to_v, struct jv step_v, struct jv *out)
{
    if (v.kind == JV_UNDEF) {
        return jvm_fail_undefined(vm, v);
    }
    int64_t n = jv_len(v);
    if (!jv_is_str(v) && !jv_is_seq(v) && v.kind != JV_RANGE) {
        return jvm_fail(vm, "'%s' object cannot be sliced", jv_type_name(v));
    }
    int64_t step;
    int64_t from;
    int64_t to;
    TRY(bound(vm, step_v, 1, &step));
    if (step == 0) {
        return jvm_fail(vm, "slice step cannot be zero");
    }
    bool back = step < 0;
    TRY(bound(vm, from_v, back ? n - 1 : 0, &from));
    TRY(bound(vm, to_v, n, &to));
    from = from_v.kind == JV_NONE && back ? n - 1 : clamp(from, n, back);
    to = to_v.kind == JV_NONE && back ? -1 : clamp(to, n, back);
    int64_t given_step = step;
    step = step > INT32_MAX ? INT32_MAX : step < -INT32_MAX ? -INT32_MAX : step; /* longer than any sequence */
    int64_t count =
        back ? (from > to ? (from - to - step - 1) / -step : 0) : (to > from ? (to - from + step - 1) / step : 0);
    if (v.kind == JV_STR) {
        return slice_str(vm, v.str, from, step, (uint32_t)count, out);
    }
    TRY(jvm_pay(vm, (uint64_t)count / 8));
    if (v.kind == JV_RANGE) {
        return slice_range(vm, v.range, from, to, given_step, count, out);
    }
    TRY(jv_list_new(vm, (enum jv_kind)v.kind, (size_t)count, out));
    for (int64_t i = 0; i < count; i++) {
        out->list->at[i] = v.list->at[from + i * step];
    }
    out->list->n = (uint32_t)count;
    return ERR_OK;
}
