/* The text under construction, and its ranges that are user text. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

#include <string.h>

enum { MAX_SPANS = 1 << 18 }; /* 4 MiB of ranges; a text that alternates more often is rejected */

void jtext_init(struct jtext *r)
{
    *r = (struct jtext){0};
    buf_init(&r->text, JINJA_MAX_OUTPUT_BYTES, MEM_REQUEST);
}

void jtext_fini(struct jtext *r)
{
    buf_fini(&r->text);
    mem_free(r->user);
    r->user = NULL;
    r->n_user = r->cap_user = 0;
}

static void mark(struct jtext *r, size_t from, size_t to)
{
    if (from == to || r->err != ERR_OK) {
        return;
    }
    if (r->n_user > 0 && r->user[r->n_user - 1].to == from) {
        r->user[r->n_user - 1].to = to;
        return;
    }
    r->err = r->n_user < MAX_SPANS ? mem_grow(&r->user, r->n_user, &r->cap_user, sizeof *r->user, MEM_REQUEST)
                                   : ERR_TOO_LARGE;
    if (r->err == ERR_OK) {
        r->user[r->n_user++] = (struct span){from, to};
    }
}

void jtext_put(struct jtext *r, const char *p, size_t n, bool user)
{
    size_t from = r->text.len;
    buf_append(&r->text, p, n);
    if (user && r->text.len == from + n) {
        mark(r, from, from + n);
    }
}

void jtext_puts(struct jtext *r, const char *s) { buf_puts(&r->text, s); }

void jtext_cp(struct jtext *r, uint32_t cp, bool user)
{
    char s[4];
    size_t n = utf8_encode(cp, s);
    jtext_put(r, s, n, user);
}

void jtext_str(struct jtext *r, const struct jstr *s) { jtext_sub(r, s, 0, s->len); }

void jtext_sub(struct jtext *r, const struct jstr *s, size_t from, size_t to)
{
    size_t at = r->text.len;
    buf_append(&r->text, s->p + from, to - from);
    if (r->text.len != at + (to - from)) {
        return;
    }
    for (uint32_t i = jstr_span_at(s, from); i < s->n_user && s->user[i].from < to; i++) {
        mark(r, at + MAX_OF(s->user[i].from, from) - from, at + MIN_OF(s->user[i].to, to) - from);
    }
}

void jtext_fill(struct jtext *r, char c, size_t n)
{
    char block[64];
    memset(block, c, sizeof block);
    while (n > 0 && r->text.err == ERR_OK) {
        size_t k = MIN_OF(n, sizeof block);
        buf_append(&r->text, block, k);
        n -= k;
    }
}

void jtext_cut(struct jtext *r, size_t len)
{
    if (len < r->text.len) {
        r->text.len = len;
        r->text.data[len] = '\0'; /* it can be everything that is printed */
    }
    while (r->n_user > 0 && r->user[r->n_user - 1].to > len) {
        if (r->user[r->n_user - 1].from >= len) {
            r->n_user--;
        } else {
            r->user[r->n_user - 1].to = len;
        }
    }
}

enum err jtext_ok(struct jvm *vm, const struct jtext *r)
{
    enum err e = buf_ok(&r->text) != ERR_OK ? buf_ok(&r->text) : r->err;
    if (e == ERR_TOO_LARGE) {
        return r->err == ERR_TOO_LARGE
                   ? jvm_fail(vm, "the text alternates between template and user more than %d times", MAX_SPANS)
                   : jvm_fail(vm, "a text is longer than %d bytes", JINJA_MAX_OUTPUT_BYTES);
    }
    return e == ERR_OK ? ERR_OK : err_set(vm->info, e, NULL, "no memory to render the chat template");
}

enum err jtext_take(struct jvm *vm, struct jtext *r, size_t from, struct jv *out)
{
    TRY(jtext_ok(vm, r));
    size_t n = r->text.len - from;
    TRY(jvm_pay_bytes(vm, n));
    char *p;
    TRY(jv_alloc(vm, n + 1, &p));
    if (n != 0) {
        memcpy(p, r->text.data + from, n);
    }
    struct jstr s = {.p = p, .len = (uint32_t)n, .chars = jstr_count(p, n)};
    size_t first = r->n_user;
    while (first > 0 && r->user[first - 1].to > from) {
        first--;
    }
    if (first < r->n_user) {
        struct span *spans;
        s.n_user = (uint32_t)(r->n_user - first);
        TRY(jv_alloc(vm, s.n_user * sizeof *spans, &spans));
        for (uint32_t i = 0; i < s.n_user; i++) {
            struct span u = r->user[first + i];
            spans[i] = (struct span){MAX_OF(u.from, from) - from, u.to - from};
        }
        s.user = spans;
    }
    jtext_cut(r, from);
    return jv_str_new(vm, s, out);
}
