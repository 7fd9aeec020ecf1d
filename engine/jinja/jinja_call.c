/* Binds a call's arguments to the parameters of a builtin; also functions that many builtins share. */
#include "engine/jinja/jinja_vm.h"

#include <string.h>

int jbuiltin_find(const struct jbuiltin *table, const char *name, size_t n)
{
    for (int i = 0; table[i].name != NULL; i++) {
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) {
            return i;
        }
    }
    return -1;
}

/* Returns the index of the parameter called `name` in the space-separated list, or -1; *count: their number. */
static int parameter(const char *params, const struct jstr *name, uint32_t *count)
{
    int at = -1;
    *count = 0;
    while (*params != '\0') {
        size_t n = strcspn(params, " ");
        if (name != NULL && name->len == n && memcmp(params, name->p, n) == 0) {
            at = (int)*count;
        }
        ++*count;
        params += n + (params[n] == ' ');
    }
    return at;
}

enum err jcall_run(struct jvm *vm, const struct jbuiltin *fn, struct jcall *c, struct jv *out)
{
    c->row = fn;
    if (strcmp(fn->params, "*") == 0) {
        return fn->fn(vm, c, out);
    }
    uint32_t n_params;
    parameter(fn->params, NULL, &n_params);
    if (c->n_pos > n_params) {
        return jvm_fail(vm, "%s takes at most %u argument(s), %u were given", fn->name, (unsigned)n_params,
                        (unsigned)c->n_pos);
    }
    for (uint32_t i = 0; i < JCALL_PARAMS; i++) {
        c->arg[i] = i < c->n_pos ? c->pos[i] : (struct jv){.kind = JV_ABSENT};
    }
    for (uint32_t i = 0; i < c->n_kw; i++) {
        const struct jstr *name = c->kw_names[i].str;
        int at = parameter(fn->params, name, &n_params);
        if (at < 0 || c->arg[at].kind != JV_ABSENT) {
            return jvm_fail(vm, "%s got an unexpected argument '%.*s'", fn->name, (int)MIN_OF(name->len, 80u), name->p);
        }
        c->arg[at] = c->kw[i];
    }
    for (uint32_t i = 0; i < fn->required; i++) {
        if (c->arg[i].kind == JV_ABSENT) {
            return jvm_fail(vm, "%s needs at least %u argument(s)", fn->name, (unsigned)fn->required);
        }
    }
    return fn->fn(vm, c, out);
}

enum err jcall_str(struct jvm *vm, struct jv v, const char *what, const struct jstr **out)
{
    if (v.kind == JV_ABSENT) {
        return ERR_OK;
    }
    TRY(jvm_defined(vm, v));
    if (!jv_is_str(v)) {
        return jvm_fail(vm, "%s expects a string, not '%s'", what, jv_type_name(v));
    }
    *out = v.str;
    return ERR_OK;
}

enum err jcall_int(struct jvm *vm, struct jv v, const char *what, int64_t *out)
{
    if (v.kind == JV_ABSENT) {
        return ERR_OK;
    }
    TRY(jvm_defined(vm, v));
    if (!jv_is_int(v)) {
        return jvm_fail(vm, "%s expects an integer, not '%s'", what, jv_type_name(v));
    }
    *out = jv_as_int(v);
    return ERR_OK;
}

struct jv jcall_keyword(const struct jcall *c, const char *name, size_t n)
{
    struct jv found = {.kind = JV_ABSENT};
    for (uint32_t i = 0; i < c->n_kw; i++) {
        const struct jstr *s = c->kw_names[i].str;
        found = s->len == n && memcmp(s->p, name, n) == 0 ? c->kw[i] : found;
    }
    return found;
}

bool jcall_flag(struct jv v, bool otherwise) { return v.kind == JV_ABSENT ? otherwise : jv_truth(v); }

static enum err key_order(struct jvm *vm, struct jv a, struct jv b, bool equal_first, int *out)
{
    bool same = false;
    *out = 0;
    TRY(jvm_pay(vm, 1));
    if (equal_first) {
        TRY(jv_equal(vm, a, b, &same));
    }
    return same ? ERR_OK : jv_order(vm, a, b, "<", out);
}

enum err jv_sort(struct jvm *vm, struct jv_list *keys, struct jv_list *items, bool reverse, bool equal_first)
{
    uint32_t n = items->n;
    struct jv *buffer;
    TRY(jv_alloc(vm, (size_t)n * 2 * sizeof *buffer, &buffer));
    struct jv *keys_to = buffer;
    struct jv *items_to = buffer + n;
    for (uint32_t width = 1; width < n; width *= 2) { /* bottom-up merge sort */
        for (uint32_t from = 0; from < n; from += 2 * width) {
            uint32_t a = from;
            uint32_t mid = MIN_OF(from + width, n);
            uint32_t b = mid;
            uint32_t end = MIN_OF(from + 2 * width, n);
            for (uint32_t to = from; to < end; to++) {
                bool take_b = a == mid;
                if (!take_b && b < end) {
                    int c;
                    TRY(key_order(vm, keys->at[a], keys->at[b], equal_first, &c));
                    take_b = reverse ? c == -1 : c == 1; /* equal items keep their order */
                }
                uint32_t k = take_b ? b++ : a++;
                keys_to[to] = keys->at[k];
                items_to[to] = items->at[k];
            }
        }
        memcpy(keys->at, keys_to, n * sizeof *keys_to);
        memcpy(items->at, items_to, n * sizeof *items_to);
    }
    return ERR_OK;
}
