/* The tests: `x is NAME`. One function and one row each. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <string.h>

static enum err yes(struct jv *out, bool b)
{
    *out = jv_bool(b);
    return ERR_OK;
}

#define UNUSED_VM (void)vm

static enum err test_defined(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind != JV_UNDEF);
}

static enum err test_undefined(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_UNDEF);
}

static enum err test_none(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_NONE);
}

static enum err test_string(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_STR);
}

static enum err test_number(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, jv_is_number(c->self));
}

static enum err test_integer(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_INT);
}

static enum err test_float(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_FLOAT);
}

static enum err test_boolean(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_BOOL);
}

static enum err test_true(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_BOOL && c->self.b);
}

static enum err test_false(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_BOOL && !c->self.b);
}

static enum err test_mapping(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, c->self.kind == JV_DICT);
}

static enum err test_sequence(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, jv_is_str(c->self) || jv_is_seq(c->self) || c->self.kind == JV_DICT || c->self.kind == JV_RANGE ||
                        c->self.kind == JV_UNDEF);
}

static enum err test_iterable(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, jv_len(c->self) >= 0 || c->self.kind == JV_GEN);
}

static enum err test_callable(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    int k = c->self.kind;
    return yes(out, k == JV_MACRO || k == JV_FUNC || k == JV_METHOD || k == JV_JOINER || k == JV_UNDEF || k == JV_LOOP);
}

static enum err test_escaped(struct jvm *vm, struct jcall *c, struct jv *out)
{
    UNUSED_VM;
    return yes(out, jv_is_str(c->self) && c->self.str->safe);
}

static enum err remainder_is(struct jvm *vm, struct jv v, struct jv by, int64_t want, struct jv *out)
{
    struct jv r;
    TRY(jop_binary(vm, JB_MOD, v, by, &r));
    bool same;
    TRY(jv_equal(vm, r, jv_int(want), &same));
    return yes(out, same);
}

static enum err test_odd(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return remainder_is(vm, c->self, jv_int(2), 1, out);
}

static enum err test_even(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return remainder_is(vm, c->self, jv_int(2), 0, out);
}

static enum err test_divisibleby(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return remainder_is(vm, c->self, c->arg[0], 0, out);
}

static enum err compare(struct jvm *vm, enum jcmp op, struct jcall *c, struct jv *out)
{
    bool r;
    TRY(jop_compare(vm, op, c->self, c->arg[0], &r));
    return yes(out, r);
}

static enum err test_eq(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_EQ, c, out); }
static enum err test_ne(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_NE, c, out); }
static enum err test_lt(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_LT, c, out); }
static enum err test_le(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_LE, c, out); }
static enum err test_gt(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_GT, c, out); }
static enum err test_ge(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_GE, c, out); }
static enum err test_in(struct jvm *vm, struct jcall *c, struct jv *out) { return compare(vm, JC_IN, c, out); }

/* Identity; equal scalars count as identical, as small ones are in CPython. */
static enum err test_sameas(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv a = c->self;
    struct jv b = c->arg[0];
    bool same = a.kind == b.kind;
    if (same && (jv_is_number(a) || a.kind == JV_NONE)) {
        TRY(jv_equal(vm, a, b, &same));
    } else if (same) {
        same = a.str == b.str;
    }
    return yes(out, same);
}

/* str.islower / isupper: at least one cased character and none of the other case. */
static enum err has_case(struct jvm *vm, struct jv v, bool lower, struct jv *out)
{
    TRY(jv_to_str(vm, v, &v));
    bool any = false;
    TRY(jvm_pay_read(vm, v.str->len));
    for (size_t i = 0; i < v.str->len;) {
        uint32_t cp;
        i += utf8_decode(v.str->p + i, v.str->len - i, &cp, NULL);
        if (ju_is_title(cp) || (lower ? ju_is_upper(cp) : ju_is_lower(cp))) {
            return yes(out, false);
        }
        any = any || (lower ? ju_is_lower(cp) : ju_is_upper(cp));
    }
    return yes(out, any);
}

static enum err test_lower(struct jvm *vm, struct jcall *c, struct jv *out) { return has_case(vm, c->self, true, out); }
static enum err test_upper(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return has_case(vm, c->self, false, out);
}

static enum err known(struct jvm *vm, const struct jbuiltin *table, struct jv name, struct jv *out)
{
    const struct jstr *s;
    TRY(jcall_str(vm, name, "the test", &s));
    return yes(out, jbuiltin_find(table, s->p, s->len) >= 0);
}

static enum err test_filter(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return known(vm, jinja_filters, c->self, out);
}
static enum err test_test(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return known(vm, jinja_tests, c->self, out);
}

const struct jbuiltin jinja_tests[] = {
    {"defined", test_defined, "", 0},    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},          {"string", test_string, "", 0},
    {"number", test_number, "", 0},      {"integer", test_integer, "", 0},
    {"float", test_float, "", 0},        {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},          {"false", test_false, "", 0},
    {"mapping", test_mapping, "", 0},    {"sequence", test_sequence, "", 0},
    {"iterable", test_iterable, "", 0},  {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},          {"divisibleby", test_divisibleby, "num", 1},
    {"eq", test_eq, "other", 1},         {"equalto", test_eq, "other", 1},
    {"==", test_eq, "other", 1},         {"ne", test_ne, "other", 1},
    {"!=", test_ne, "other", 1},         {"lt", test_lt, "other", 1},
    {"lessthan", test_lt, "other", 1},   {"<", test_lt, "other", 1},
    {"le", test_le, "other", 1},         {"<=", test_le, "other", 1},
    {"gt", test_gt, "other", 1},         {"greaterthan", test_gt, "other", 1},
    {">", test_gt, "other", 1},          {"ge", test_ge, "other", 1},
    {">=", test_ge, "other", 1},         {"in", test_in, "seq", 1},
    {"sameas", test_sameas, "other", 1}, {"lower", test_lower, "", 0},
    {"upper", test_upper, "", 0},        {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},          {NULL, NULL, NULL, 0},
};
