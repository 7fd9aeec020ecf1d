/* The interface to the interpreter: parse once, then render with the variables of a JSON object. */
#include "engine/chat/chat_template.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/utf8.h"
#include "engine/jinja/jinja_vm.h"

#include <string.h>

enum { ARENA_CHUNK_BYTES = 64 << 10 };

struct chat_template {
    struct jprogram prog;
};

/* Newlines become \n, and a final one is dropped, as in jinja2 with keep_trailing_newline off. */
static size_t normalise(const char *s, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\r') {
            out[k++] = s[i];
        } else {
            out[k++] = '\n';
            i += i + 1 < n && s[i + 1] == '\n';
        }
    }
    return k > 0 && out[k - 1] == '\n' ? k - 1 : k;
}

enum err chat_template_new(const char *source, size_t n, struct chat_template **out, struct err_info *info)
{
    size_t bad;
    *out = NULL;
    if (n > JINJA_MAX_SOURCE_BYTES) {
        return err_set(info, ERR_TEMPLATE, NULL, "the chat template has %zu bytes; the limit is %d", n,
                       JINJA_MAX_SOURCE_BYTES);
    }
    if (!utf8_valid(source, n, &bad)) {
        return err_set(info, ERR_TEMPLATE, NULL, "the chat template is not UTF-8 at byte %zu", bad);
    }
    struct chat_template *t = mem_zalloc(sizeof *t, MEM_GENERAL);
    char *text = mem_alloc(n + 1, MEM_GENERAL);
    if (t == NULL || text == NULL) {
        mem_free(t);
        mem_free(text);
        return err_set(info, ERR_NOMEM, NULL, "no memory for the chat template");
    }
    t->prog.source = text;
    t->prog.n_source = normalise(source, n, text);
    enum err e = jprogram_parse(&t->prog, info);
    if (e != ERR_OK) {
        chat_template_free(&t);
    }
    *out = t;
    return e;
}

void chat_template_free(struct chat_template **t)
{
    if (*t != NULL) {
        jprogram_fini(&(*t)->prog);
        mem_free(*t);
        *t = NULL;
    }
}

const char *chat_template_source(const struct chat_template *t, size_t *n)
{
    *n = t->prog.n_source;
    return t->prog.source;
}

void chat_output_fini(struct chat_output *o)
{
    mem_free(o->text);
    mem_free(o->user);
    *o = (struct chat_output){0};
}

bool chat_output_has_bos(const struct chat_output *o, const char *bos)
{
    size_t n = strlen(bos);
    bool begins = n > 0 && o->len >= n && memcmp(o->text, bos, n) == 0;
    return begins && (o->n_user == 0 || o->user[0].from >= n);
}

/* --- rendering -------------------------------------------------------------------------------------------------- */

/* Adds builtin functions, then the context, which can hide them. Skips names that the template never uses. */
static enum err fill_globals(struct jvm *vm, const json_t *context)
{
    for (size_t i = 0; i < vm->prog->n_names; i++) {
        const struct jstr *name = vm->prog->names[i];
        int row = jbuiltin_find(jinja_functions, name->p, name->len);
        vm->globals[i] = (struct jv){.kind = JV_ABSENT};
        if (row >= 0) {
            vm->globals[i] = (struct jv){.kind = JV_FUNC, .func = &jinja_functions[row]};
        }
        const json_t *value = json_object_getn(context, name->p, name->len);
        if (value != NULL) { /* the client's under any name, except for the vocabulary's tokens */
            bool is_user = !jstr_is(name, "bos_token") && !jstr_is(name, "eos_token");
            TRY(jvm_from_json(vm, value, is_user, &vm->globals[i]));
        }
    }
    return ERR_OK;
}

static enum err run(struct jvm *vm, const json_t *context)
{
    TRY(jv_alloc(vm, JVM_STACK_VALUES * sizeof *vm->stack, &vm->stack));
    TRY(jv_alloc(vm, JVM_MAX_CAPTURES * sizeof *vm->captures, &vm->captures));
    TRY(jv_alloc(vm, vm->prog->n_names * sizeof *vm->globals, &vm->globals));
    TRY(fill_globals(vm, context));
    TRY(jvm_run(vm));
    if (vm->out.text.data == NULL) { /* an empty text needs its NUL, too */
        buf_append(&vm->out.text, "", 1);
        vm->out.text.len = 0;
    }
    return jtext_ok(vm, &vm->out);
}

enum err chat_template_render(const struct chat_template *t, const json_t *context, int64_t now,
                              struct chat_output *out, struct err_info *info)
{
    *out = (struct chat_output){0};
    struct jvm *vm = mem_zalloc(sizeof *vm, MEM_REQUEST);
    TRY_MEM_FOR(vm != NULL, info, "no memory to render the chat template");
    vm->prog = &t->prog;
    vm->info = info;
    vm->now = now;
    vm->hash_seed = rng_fresh_seed();
    vm->steps_left = JINJA_MAX_STEPS;
    arena_init(&vm->arena, ARENA_CHUNK_BYTES, JINJA_MAX_ARENA_BYTES, MEM_REQUEST);
    jtext_init(&vm->out);
    jtext_init(&vm->tmp);
    enum err e = run(vm, context);
    if (e == ERR_OK) { /* hands over the rope's memory */
        *out = (struct chat_output){vm->out.text.data, vm->out.text.len, vm->out.user, vm->out.n_user};
        vm->out = (struct jtext){0};
    }
    jtext_fini(&vm->out);
    jtext_fini(&vm->tmp);
    arena_fini(&vm->arena);
    mem_free(vm);
    return e;
}

void chat_template_keep_error(struct err_info *kept, const struct err_info *later)
{
    if (kept->code == ERR_OK || (!chat_template_raised(kept) && chat_template_raised(later))) {
        *kept = *later;
    }
}
