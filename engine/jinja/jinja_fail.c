/* Failures with a position in the template, and payment for work from the render's budget of steps. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/task.h"
#include "engine/base/utf8.h"
#include "engine/jinja/jinja_lexer.h"

#include <stdarg.h>

enum err jvm_fail(struct jvm *vm, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    enum err err = jinja_vfail_at(vm->prog->source, vm->prog->code[vm->pc].pos, vm->info, fmt, args);
    va_end(args);
    return err;
}

/* Writes a name for a message: truncated, without control characters. */
static void shown(const struct jstr *s, char *out, size_t out_bytes)
{
    size_t n = MIN_OF((size_t)s->len, out_bytes - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s->p[i];
        out[i] = c < 0x20 || c == 0x7F ? '?' : (char)c;
    }
    n -= utf8_incomplete_tail(out, n);
    out[n] = '\0';
}

enum err jvm_fail_undefined(struct jvm *vm, struct jv v)
{
    char name[80] = "";
    if (v.sub != JU_ELEM && v.sub != JU_OTHER) {
        shown(v.name, name, sizeof name);
    }
    const char *type = jv_type_name((struct jv){.kind = (uint8_t)v.aux});
    switch (v.sub) {
    case JU_NAME:
        return jvm_fail(vm, "'%s' is undefined", name);
    case JU_ATTR:
        return jvm_fail(vm, "'%s object' has no attribute '%s'", type, name);
    case JU_ELEM:
        return jvm_fail(vm, "%s object has no such element", type);
    case JU_PARAM:
        return jvm_fail(vm, "parameter '%s' was not provided", name);
    default:
        return jvm_fail(vm, "%s", v.hint);
    }
}

enum err jvm_defined(struct jvm *vm, struct jv v) { return v.kind == JV_UNDEF ? jvm_fail_undefined(vm, v) : ERR_OK; }

enum err jvm_pay(struct jvm *vm, uint64_t n)
{
    if (n > (uint64_t)vm->steps_left) {
        return jvm_fail(vm, "the template takes more than %d steps", JINJA_MAX_STEPS);
    }
    bool is_due = task_is_due((uint64_t)(JINJA_MAX_STEPS - vm->steps_left), n);
    vm->steps_left -= (int64_t)n;
    enum err stop = is_due ? task_check() : ERR_OK;
    return stop == ERR_OK ? ERR_OK : err_set(vm->info, stop, NULL, "%s", err_text(stop));
}

enum err jvm_pay_bytes(struct jvm *vm, size_t n) { return jvm_pay(vm, n / JVM_BYTES_PER_STEP); }
enum err jvm_pay_read(struct jvm *vm, size_t n) { return jvm_pay(vm, n / JVM_READ_PER_STEP); }
