/* Operators and comparisons, by Python's rules for mixed types. */
#include "engine/jinja/jinja_vm.h"

#include <math.h>
#include <string.h>

/* --- arithmetic ------------------------------------------------------------------------------------------------- */

/* Returns false if the result does not fit. */
static bool int_power(int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(*out, base, out)) {
            return false;
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            return false;
        }
    }
    return true;
}

static enum err int_op(struct jvm *vm, enum jbin op, int64_t a, int64_t b, struct jv *out)
{
    int64_t r = 0;
    bool fits = true;
    switch (op) {
    case JB_ADD:
        fits = !__builtin_add_overflow(a, b, &r);
        break;
    case JB_SUB:
        fits = !__builtin_sub_overflow(a, b, &r);
        break;
    case JB_MUL:
        fits = !__builtin_mul_overflow(a, b, &r);
        break;
    case JB_POW:
        fits = int_power(a, b, &r); /* b >= 0 */
        break;
    default: /* JB_FLOORDIV, JB_MOD: towards minus infinity */
        if (b == 0) {
            return jvm_fail(vm, "integer division or modulo by zero");
        }
        if (b == -1) { /* INT64_MIN / -1 overflows */
            fits = op == JB_MOD || !__builtin_sub_overflow(0, a, &r);
        } else if (op == JB_MOD) {
            r = a % b;
            r += r != 0 && (r < 0) != (b < 0) ? b : 0;
        } else {
            r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        }
    }
    *out = jv_int(r);
    return fits ? ERR_OK : jvm_fail(vm, "the result does not fit in 64 bits");
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
        double whole = floor(quotient); /* the quotient is an integer up to rounding */
        whole += quotient - whole > 0.5 ? 1 : 0;
        whole = quotient == 0 ? copysign(0, a / b) : whole;
        r = op == JB_MOD ? mod : whole;
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
    jv_list_append(out->list, a.list->at, a.list->n);
    jv_list_append(out->list, b.list->at, b.list->n);
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
        jv_list_append(out->list, v.list->at, v.list->n);
    }
    return ERR_OK;
}

/* Markup's +: escapes text that is not safe; the sum is safe. */
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
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
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
    return jvm_fail(vm, "unsupported operand type(s) for %s: '%s' and '%s'", names[op], jv_type_name(a),
                    jv_type_name(b));
}

enum err jop_negate(struct jvm *vm, struct jv v, struct jv *out)
{
    TRY(jvm_defined(vm, v));
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
        struct jv found;
        TRY(jv_dict_find(vm, in.dict, item, &found));
        *out = found.kind != JV_ABSENT;
        return ERR_OK;
    }
    struct jv_iter it = {.of = in};
    struct jv v;
    if (in.kind == JV_NONE || jv_is_number(in)) {
        return jvm_fail(vm, "argument of type '%s' is not iterable", jv_type_name(in));
    }
    while (!*out && jv_iter_next(vm, &it, &v)) {
        TRY(jv_equal(vm, v, item, out));
    }
    return it.err;
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
        c = op == JC_LT || op == JC_LE || c == -2 ? c : -c; /* a > b is b < a */
        *out = c == -1 || (c == 0 && (op == JC_LE || op == JC_GE));
        return ERR_OK;
    }
}
