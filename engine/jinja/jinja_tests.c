/* The tests: `x is NAME`. Each has one function and one row. */
#include "engine/jinja/jinja_vm.h"

static enum err yes(struct jv *out, bool b)
{
    *out = jv_bool(b);
    return ERR_OK;
}

/* how: kinds, one bit each. */
#define BIT(kind) (1 << (kind))
_Static_assert(JV_KINDS < 31, "kinds fit in an int");

static enum err test_kind(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
    return yes(out, (c->row->how & BIT(c->self.kind)) != 0);
}

static enum err test_bool(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
    return yes(out, c->self.kind == JV_BOOL && c->self.b == c->row->how);
}

static enum err test_iterable(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
    return yes(out, jv_len(c->self) >= 0 || c->self.kind == JV_GEN);
}

static enum err test_escaped(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
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

static enum err test_parity(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return remainder_is(vm, c->self, jv_int(2), c->row->how, out);
}

static enum err test_divisibleby(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return remainder_is(vm, c->self, c->arg[0], 0, out);
}

static enum err test_compare(struct jvm *vm, struct jcall *c, struct jv *out)
{
    bool r;
    TRY(jop_compare(vm, (enum jcmp)c->row->how, c->self, c->arg[0], &r));
    return yes(out, r);
}

/* Identity. Equal scalars count as identical, as small ones do in CPython. */
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

static enum err test_case(struct jvm *vm, struct jcall *c, struct jv *out)
{
    TRY(jv_to_str(vm, c->self, out));
    return jstr_case_is(vm, out->str, c->row->how, out);
}

static enum err test_known(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *s;
    TRY(jcall_str(vm, c->self, "the test", &s));
    return yes(out, jbuiltin_find(c->row->how ? jinja_filters : jinja_tests, s->p, s->len) >= 0);
}

const struct jbuiltin jinja_tests[] = {
    {"defined", test_kind, "", 0, ~BIT(JV_UNDEF)},
    {"undefined", test_kind, "", 0, BIT(JV_UNDEF)},
    {"none", test_kind, "", 0, BIT(JV_NONE)},
    {"string", test_kind, "", 0, BIT(JV_STR)},
    {"number", test_kind, "", 0, BIT(JV_BOOL) | BIT(JV_INT) | BIT(JV_FLOAT) | BIT(JV_BIGINT) | BIT(JV_DECIMAL)},
    {"integer", test_kind, "", 0, BIT(JV_INT) | BIT(JV_BIGINT)},
    {"float", test_kind, "", 0, BIT(JV_FLOAT) | BIT(JV_DECIMAL)},
    {"boolean", test_kind, "", 0, BIT(JV_BOOL)},
    {"true", test_bool, "", 0, true},
    {"false", test_bool, "", 0, false},
    {"mapping", test_kind, "", 0, BIT(JV_DICT)},
    {"sequence", test_kind, "", 0,
     BIT(JV_STR) | BIT(JV_LIST) | BIT(JV_TUPLE) | BIT(JV_DICT) | BIT(JV_RANGE) | BIT(JV_UNDEF)},
    {"iterable", test_iterable, "", 0, 0},
    {"callable", test_kind, "", 0,
     BIT(JV_MACRO) | BIT(JV_FUNC) | BIT(JV_METHOD) | BIT(JV_JOINER) | BIT(JV_UNDEF) | BIT(JV_LOOP)},
    {"escaped", test_escaped, "", 0, 0},
    {"odd", test_parity, "", 0, 1},
    {"even", test_parity, "", 0, 0},
    {"divisibleby", test_divisibleby, "num", 1, 0},
    {"eq", test_compare, "other", 1, JC_EQ},
    {"equalto", test_compare, "other", 1, JC_EQ},
    {"==", test_compare, "other", 1, JC_EQ},
    {"ne", test_compare, "other", 1, JC_NE},
    {"!=", test_compare, "other", 1, JC_NE},
    {"lt", test_compare, "other", 1, JC_LT},
    {"lessthan", test_compare, "other", 1, JC_LT},
    {"<", test_compare, "other", 1, JC_LT},
    {"le", test_compare, "other", 1, JC_LE},
    {"<=", test_compare, "other", 1, JC_LE},
    {"gt", test_compare, "other", 1, JC_GT},
    {"greaterthan", test_compare, "other", 1, JC_GT},
    {">", test_compare, "other", 1, JC_GT},
    {"ge", test_compare, "other", 1, JC_GE},
    {">=", test_compare, "other", 1, JC_GE},
    {"in", test_compare, "seq", 1, JC_IN},
    {"sameas", test_sameas, "other", 1, 0},
    {"lower", test_case, "", 0, false},
    {"upper", test_case, "", 0, true},
    {"filter", test_known, "", 0, true},
    {"test", test_known, "", 0, false},
    {NULL, NULL, NULL, 0, 0},
};
