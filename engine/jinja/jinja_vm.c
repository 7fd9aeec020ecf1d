/* The stack machine that runs a parsed template. Macro calls are frames of the machine, so no function recurses with
 * the template or its data. Steps, depth, memory and output are limited. */
#include "engine/jinja/jinja_vm.h"

#include <string.h>

/* --- stack and scopes ------------------------------------------------------------------------------------------- */

static enum err push(struct jvm *vm, struct jv v)
{
    if (vm->n_stack == JVM_STACK_VALUES) {
        return jvm_fail(vm, "more than %d values are pending", JVM_STACK_VALUES);
    }
    vm->stack[vm->n_stack++] = v;
    return ERR_OK;
}

static struct jv pop(struct jvm *vm) { return vm->stack[--vm->n_stack]; }

static struct jv *top(struct jvm *vm) { return &vm->stack[vm->n_stack - 1]; }

static enum err open_scope(struct jvm *vm, struct jscope *parent)
{
    struct jscope *s = vm->free_scopes;
    if (s != NULL) {
        vm->free_scopes = s->parent;
    } else {
        TRY(jv_alloc(vm, sizeof *s, &s));
        *s = (struct jscope){0};
    }
    s->parent = parent;
    s->n = 0;
    vm->scope = s;
    return ERR_OK;
}

static void release_scope(struct jvm *vm, struct jscope *s)
{
    if (!s->captured) {
        s->parent = vm->free_scopes;
        vm->free_scopes = s;
    }
}

static void close_scope(struct jvm *vm)
{
    struct jscope *s = vm->scope;
    vm->scope = s->parent;
    release_scope(vm, s);
}

static struct jv *find_in(struct jscope *s, uint32_t name)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->at[i].name == name) {
            return &s->at[i].value;
        }
    }
    return NULL;
}

static enum err store(struct jvm *vm, uint32_t name, struct jv v)
{
    struct jscope *s = vm->scope;
    struct jv *old = find_in(s, name);
    if (old != NULL) {
        *old = v;
        return ERR_OK;
    }
    if (s->n == s->cap) {
        TRY(jv_grow(vm, &s->at, &s->cap, sizeof *s->at, 8));
    }
    s->at[s->n++] = (struct jvar){.name = name, .value = v};
    return ERR_OK;
}

static struct jv load(struct jvm *vm, struct jscope *from, uint32_t name)
{
    for (struct jscope *s = from; s != NULL; s = s->parent) {
        struct jv *v = find_in(s, name);
        if (v != NULL && v->kind == JV_ABSENT) {
            return (struct jv){.kind = JV_UNDEF, .sub = JU_PARAM, .name = vm->prog->names[name]};
        }
        if (v != NULL) {
            return *v;
        }
    }
    if (vm->globals[name].kind != JV_ABSENT) {
        return vm->globals[name];
    }
    return (struct jv){.kind = JV_UNDEF, .sub = JU_NAME, .name = vm->prog->names[name]};
}

static enum err do_load(struct jvm *vm, const struct jins *in)
{
    struct jv v = load(vm, in->n == 1 ? vm->scope->parent : vm->scope, (uint32_t)in->a);
    if (v.kind == JV_LOOP && vm->prog->code[vm->pc + 1].op != JI_ATTR) {
        v.loop->escaped = true; /* any use except loop.x: the loop can be kept */
    }
    return push(vm, v);
}

static enum err do_store_attr(struct jvm *vm, const struct jins *in)
{
    struct jv ns = load(vm, vm->scope, (uint32_t)in->a);
    struct jv name = vm->prog->consts[in->b];
    if (ns.kind != JV_NAMESPACE) {
        return jvm_fail(vm, "cannot assign attribute on non-namespace object");
    }
    if (name.str->len > 0 && name.str->p[0] == '_') {
        return jvm_fail(vm, "a namespace has no attributes that begin with an underscore");
    }
    struct jv v = pop(vm);
    return jv_dict_put(vm, ns.dict, name, v);
}

static enum err do_unpack(struct jvm *vm, const struct jins *in)
{
    if (in->n == 0) {
        return ERR_OK;
    }
    struct jv_list *l;
    TRY(jv_to_list(vm, pop(vm), &l));
    if (l->n != in->n) {
        return jvm_fail(vm, "%s values to unpack (expected %u, got %u)", l->n > in->n ? "too many" : "not enough",
                        (unsigned)in->n, (unsigned)l->n);
    }
    for (uint32_t i = l->n; i > 0; i--) {
        TRY(push(vm, l->at[i - 1]));
    }
    return ERR_OK;
}

/* --- loops
 * ----------------------------------------------------------------------------------------------------------------- */

static enum err do_for(struct jvm *vm, const struct jins *in)
{
    struct jv of = pop(vm);
    if (of.kind != JV_RANGE && of.kind != JV_DICT && of.kind != JV_VIEW && !jv_is_seq(of)) {
        struct jv_list *l;
        TRY(jv_to_list(vm, of, &l));
        of = (struct jv){.kind = JV_LIST, .list = l};
    }
    struct jv_loop *l = vm->free_loops;
    if (l != NULL) {
        vm->free_loops = l->outer;
    } else {
        TRY(jv_alloc(vm, sizeof *l, &l));
    }
    *l = (struct jv_loop){
        .outer = vm->loop, .of = of, .n = (uint32_t)jv_len(of), .scope = vm->scope, .index = UINT32_MAX};
    l->changed = (struct jv){.kind = JV_ABSENT};
    vm->loop = l;
    if (in->n != 0) {
        struct jv kept;
        TRY(jv_list_new(vm, JV_LIST, 0, &kept));
        l->kept = kept.list;
    }
    return open_scope(vm, vm->scope);
}

static enum err do_for_next(struct jvm *vm, const struct jins *in, uint32_t *next)
{
    struct jv_loop *l = vm->loop;
    uint32_t i = l->index + 1;
    if (i >= l->n) {
        *next = (uint32_t)in->a;
        return ERR_OK;
    }
    l->index = i;
    if (vm->scope->captured) {
        TRY(open_scope(vm, l->scope));
    } else {
        vm->scope->n = 0;
    }
    TRY(store(vm, JNAME_LOOP, (struct jv){.kind = JV_LOOP, .loop = l}));
    return push(vm, jv_at(l->of, i));
}

static void end_loop(struct jvm *vm)
{
    struct jv_loop *l = vm->loop;
    release_scope(vm, vm->scope);
    vm->scope = l->scope;
    vm->loop = l->outer;
    if (!l->escaped) {
        l->outer = vm->free_loops;
        vm->free_loops = l;
    }
}

/* --- calls
 * ------------------------------------------------------------------------------------------------------------------ */

/* Returns the arguments of a call, which are on top of the stack; the value that it applies to is before them. */
static struct jcall arguments(const struct jvm *vm, const struct jins *in)
{
    struct jcall c = {.n_pos = in->n};
    if (in->b >= 0) {
        const struct jv_list *names = vm->prog->consts[in->b].list;
        c.kw_names = names->at;
        c.n_kw = names->n;
    }
    c.pos = vm->stack + vm->n_stack - c.n_pos - c.n_kw;
    c.kw = c.pos + c.n_pos;
    c.self = c.pos[-1];
    return c;
}

static enum err bind_macro(struct jvm *vm, const struct jmacro_code *code, const struct jcall *c)
{
    const struct jstr *name = vm->prog->names[code->name];
    if (c->n_pos > code->n_params) {
        return jvm_fail(vm, "macro '%.*s' takes not more than %u argument(s)", (int)MIN_OF(name->len, 80u), name->p,
                        (unsigned)code->n_params);
    }
    for (uint32_t i = 0; i < code->n_params; i++) {
        TRY(store(vm, code->params[i], i < c->n_pos ? c->pos[i] : (struct jv){.kind = JV_ABSENT}));
    }
    for (uint32_t k = 0; k < c->n_kw; k++) {
        const struct jstr *key = c->kw_names[k].str;
        uint32_t i = 0;
        while (i < code->n_params && jstr_cmp(vm->prog->names[code->params[i]], key) != 0) {
            i++;
        }
        if (i < c->n_pos || i == code->n_params) {
            return jvm_fail(vm, "macro '%.*s' %s '%.*s'", (int)MIN_OF(name->len, 80u), name->p,
                            i < c->n_pos ? "got multiple values for argument" : "takes no keyword argument",
                            (int)MIN_OF(key->len, 80u), key->p);
        }
        TRY(store(vm, code->params[i], c->kw[k]));
    }
    return ERR_OK;
}

static enum err call_macro(struct jvm *vm, const struct jcall *c, uint32_t *next)
{
    if (vm->n_frames == JINJA_MAX_DEPTH) {
        return jvm_fail(vm, "macro calls are nested more than %d levels deep", JINJA_MAX_DEPTH);
    }
    const struct jv_macro *m = c->self.macro;
    struct jframe *f = &vm->frames[vm->n_frames++];
    *f = (struct jframe){.return_to = *next, .scope = vm->scope, .loop = vm->loop};
    TRY(open_scope(vm, m->closure));
    TRY(bind_macro(vm, m->code, c));
    vm->n_stack -= c->n_pos + c->n_kw + 1;
    vm->captures[vm->n_captures++] = vm->out.text.len;
    *next = m->code->entry;
    return ERR_OK;
}

static enum err do_return(struct jvm *vm, uint32_t *next)
{
    struct jframe *f = &vm->frames[--vm->n_frames];
    struct jv text;
    TRY(jtext_take(vm, &vm->out, vm->captures[--vm->n_captures], &text));
    close_scope(vm);
    vm->scope = f->scope;
    vm->loop = f->loop;
    *next = f->return_to;
    return push(vm, text);
}

static enum err do_macro(struct jvm *vm, const struct jins *in)
{
    struct jv_macro *m;
    TRY(jv_alloc(vm, sizeof *m, &m));
    *m = (struct jv_macro){.code = &vm->prog->macros[in->a], .closure = vm->scope};
    for (struct jscope *s = vm->scope; s != NULL && !s->captured; s = s->parent) {
        s->captured = true;
    }
    for (struct jv_loop *l = vm->loop; l != NULL && !l->escaped; l = l->outer) {
        l->escaped = true; /* the scopes refer to it */
    }
    return store(vm, m->code->name, (struct jv){.kind = JV_MACRO, .macro = m});
}

/* Replaces the value on top of the stack and the call's arguments after it with what the builtin returns. */
static enum err run_builtin(struct jvm *vm, const struct jbuiltin *fn, struct jcall *c)
{
    struct jv out;
    TRY(jcall_run(vm, fn, c, &out));
    vm->n_stack -= c->n_pos + c->n_kw;
    *top(vm) = out;
    return ERR_OK;
}

static enum err do_call(struct jvm *vm, const struct jins *in, uint32_t *next)
{
    struct jcall c = arguments(vm, in);
    struct jv f = c.self;
    switch (f.kind) {
    case JV_MACRO:
        return call_macro(vm, &c, next);
    case JV_FUNC:
        return run_builtin(vm, f.func, &c);
    case JV_METHOD:
        c.self = f.method->self;
        return run_builtin(vm, f.method->fn, &c);
    case JV_JOINER: /* returns its separator from the second call on */
        if (c.n_pos + c.n_kw != 0) {
            return jvm_fail(vm, "a joiner takes no arguments");
        }
        *top(vm) = f.gen->items->at[f.gen->pos];
        f.gen->pos = 1;
        return ERR_OK;
    case JV_UNDEF:
        return jvm_fail_undefined(vm, f);
    default:
        return jvm_fail(vm, "'%s' object is not callable", jv_type_name(f));
    }
}

static enum err do_filter(struct jvm *vm, const struct jins *in)
{
    if (in->a < 0) {
        const struct jstr *name = vm->prog->consts[in->c].str;
        return jvm_fail(vm, "no %s named '%.*s'", in->op == JI_FILTER ? "filter" : "test", (int)MIN_OF(name->len, 80u),
                        name->p);
    }
    struct jcall c = arguments(vm, in);
    return run_builtin(vm, (in->op == JI_FILTER ? jinja_filters : jinja_tests) + in->a, &c);
}

/* --- values
 * ------------------------------------------------------------------------------------------------------------------ */

static enum err do_concat(struct jvm *vm, const struct jins *in)
{
    vm->n_stack -= in->n;
    const struct jv *at = vm->stack + vm->n_stack;
    struct jv sum;
    TRY(jv_to_str(vm, at[0], &sum));
    for (uint32_t i = 1; i < in->n; i++) {
        struct jv next;
        TRY(jv_to_str(vm, at[i], &next));
        TRY(jv_concat(vm, sum.str, next.str, &sum));
    }
    if (sum.str->safe) { /* ~ yields a plain string */
        struct jstr plain = *sum.str;
        plain.safe = false;
        TRY(jv_str_new(vm, plain, &sum));
    }
    return push(vm, sum);
}

static enum err do_sequence(struct jvm *vm, const struct jins *in)
{
    struct jv v;
    struct jv seq;
    switch (in->op) {
    case JI_SEQ_NEW:
        TRY(jv_list_new(vm, (enum jv_kind)in->n, 0, &seq));
        return push(vm, seq);
    case JI_SEQ_START:
        TRY(jv_list_new(vm, JV_TUPLE, 2, &seq));
        TRY(jv_list_add(vm, seq.list, pop(vm)));
        return push(vm, seq);
    case JI_SEQ_ADD:
        v = pop(vm);
        return jv_list_add(vm, top(vm)->list, v);
    case JI_DICT_NEW:
        TRY(jv_dict_new(vm, JV_DICT, 0, &seq));
        return push(vm, seq);
    default: { /* JI_DICT_PUT */
        v = pop(vm);
        struct jv key = pop(vm);
        return jv_dict_put(vm, top(vm)->dict, key, v);
    }
    }
}

static enum err do_operator(struct jvm *vm, const struct jins *in, uint32_t *next)
{
    struct jv b = pop(vm);
    bool r;
    switch (in->op) {
    case JI_NOT:
        return push(vm, jv_bool(!jv_truth(b)));
    case JI_NEG:
        TRY(jop_negate(vm, b, &b));
        return push(vm, b);
    case JI_POS:
        TRY(jvm_defined(vm, b));
        if (!jv_is_number(b)) {
            return jvm_fail(vm, "bad operand type for unary +: '%s'", jv_type_name(b));
        }
        return push(vm, b.kind == JV_BOOL ? jv_int(b.b) : b);
    case JI_BINARY:
        return jop_binary(vm, (enum jbin)in->n, *top(vm), b, top(vm));
    case JI_ITEM:
        return jop_item(vm, *top(vm), b, top(vm));
    case JI_COMPARE:
        TRY(jop_compare(vm, (enum jcmp)in->n, *top(vm), b, &r));
        *top(vm) = jv_bool(r);
        return ERR_OK;
    default: /* JI_COMPARE_NEXT */
        TRY(jop_compare(vm, (enum jcmp)in->n, *top(vm), b, &r));
        *top(vm) = r ? b : jv_bool(false);
        *next = r ? *next : (uint32_t)in->a;
        return ERR_OK;
    }
}

/* --- the machine
 * ------------------------------------------------------------------------------------------------------------- */

static enum err print(struct jvm *vm, const struct jins *in)
{
    if (in->n == 1 && !jv_is_str(*top(vm))) {
        return jvm_fail(vm, "the filters of the block gave '%s', not a string", jv_type_name(*top(vm)));
    }
    TRY(jv_write_str(vm, &vm->out, pop(vm)));
    return jtext_ok(vm, &vm->out);
}

/* Runs the instructions for output, scopes and loops. */
static enum err block_step(struct jvm *vm, const struct jins *in, uint32_t *next)
{
    struct jv v;
    switch (in->op) {
    case JI_FOR:
        return do_for(vm, in);
    case JI_FOR_NEXT:
        return do_for_next(vm, in, next);
    case JI_FOR_RAN:
        vm->loop->ran = true;
        return ERR_OK;
    case JI_FOR_END:
        *next = vm->loop->ran ? (uint32_t)in->a : *next;
        end_loop(vm);
        return ERR_OK;
    case JI_SIFT_KEEP:
        return jv_truth(pop(vm)) ? jv_list_add(vm, vm->loop->kept, jv_at(vm->loop->of, vm->loop->index)) : ERR_OK;
    case JI_SIFT_END:
        v = (struct jv){.kind = JV_LIST, .list = vm->loop->kept};
        end_loop(vm);
        return push(vm, v);
    case JI_SCOPE:
        return open_scope(vm, vm->scope);
    case JI_SCOPE_END:
        close_scope(vm);
        return ERR_OK;
    case JI_CAPTURE:
        vm->captures[vm->n_captures++] = vm->out.text.len;
        return ERR_OK;
    case JI_CAPTURE_END:
        TRY(jtext_take(vm, &vm->out, vm->captures[--vm->n_captures], &v));
        return push(vm, v);
    case JI_CAPTURE_DROP:
        jtext_cut(&vm->out, vm->captures[--vm->n_captures]);
        return ERR_OK;
    case JI_MACRO:
        return do_macro(vm, in);
    case JI_DEFAULT:
        *next = find_in(vm->scope, (uint32_t)in->b)->kind != JV_ABSENT ? (uint32_t)in->a : *next;
        return ERR_OK;
    default: /* JI_RETURN */
        return do_return(vm, next);
    }
}

static enum err step(struct jvm *vm, const struct jins *in, uint32_t *next)
{
    struct jv v;
    switch (in->op) {
    case JI_JUMP:
        *next = (uint32_t)in->a;
        return ERR_OK;
    case JI_JUMP_FALSE:
        *next = jv_truth(pop(vm)) ? *next : (uint32_t)in->a;
        return ERR_OK;
    case JI_JUMP_TRUE:
        *next = jv_truth(pop(vm)) ? (uint32_t)in->a : *next;
        return ERR_OK;
    case JI_AND:
    case JI_OR:
        if (jv_truth(*top(vm)) == (in->op == JI_OR)) {
            *next = (uint32_t)in->a;
        } else {
            vm->n_stack--;
        }
        return ERR_OK;
    case JI_TEXT:
        jtext_str(&vm->out, vm->prog->consts[in->a].str);
        return jtext_ok(vm, &vm->out);
    case JI_PRINT:
        return print(vm, in);
    case JI_CONST:
        return push(vm, vm->prog->consts[in->a]);
    case JI_UNDEF:
        return push(vm, jv_hint("the inline if-expression evaluated to false and no else section was defined"));
    case JI_LOAD:
        return do_load(vm, in);
    case JI_STORE:
        v = pop(vm);
        return store(vm, (uint32_t)in->a, v);
    case JI_STORE_ATTR:
        return do_store_attr(vm, in);
    case JI_UNPACK:
        return do_unpack(vm, in);
    case JI_POP:
        vm->n_stack--;
        return ERR_OK;
    case JI_ATTR:
        return jop_attr(vm, *top(vm), vm->prog->consts[in->a], top(vm));
    case JI_SLICE:
        vm->n_stack -= 3;
        return jop_slice(vm, *top(vm), top(vm) + 1, top(vm));
    case JI_SEQ_NEW:
    case JI_SEQ_START:
    case JI_SEQ_ADD:
    case JI_DICT_NEW:
    case JI_DICT_PUT:
        return do_sequence(vm, in);
    case JI_CONCAT:
        return do_concat(vm, in);
    case JI_NOT:
    case JI_NEG:
    case JI_POS:
    case JI_BINARY:
    case JI_ITEM:
    case JI_COMPARE:
    case JI_COMPARE_NEXT:
        return do_operator(vm, in, next);
    case JI_CALL:
        return do_call(vm, in, next);
    case JI_FILTER:
    case JI_TEST:
        return do_filter(vm, in);
    default:
        return block_step(vm, in, next);
    }
}

enum err jvm_run(struct jvm *vm)
{
    TRY(open_scope(vm, NULL));
    uint32_t next = 0;
    for (;;) {
        const struct jins *in = &vm->prog->code[next];
        vm->pc = next++;
        if (in->op == JI_END) {
            return ERR_OK;
        }
        if (in->op != JI_JUMP && in->op != JI_CONST && in->op != JI_UNPACK) {
            TRY(jvm_pay(vm, 1)); /* the others are nearly free, and no loop consists only of them */
        }
        TRY(step(vm, in, &next));
    }
}
