/* String operations that filters and methods share. Every byte keeps its user mark. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <string.h>

enum err jv_mark_safe(struct jvm *vm, const struct jstr *s, struct jv *out)
{
    struct jstr safe = *s;
    safe.safe = true;
    return jv_str_new(vm, safe, out);
}

enum err jv_escape(struct jvm *vm, const struct jstr *s, struct jv *out)
{
    static const char *const entities[UINT8_MAX + 1] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['\''] = "&#39;", ['"'] = "&#34;"};
    uint32_t span = 0;
    size_t from = vm->tmp.text.len;
    for (size_t i = 0; i < s->len; i++) {
        const char *e = entities[(unsigned char)s->p[i]];
        bool user = jstr_user_at(s, i, &span);
        jtext_put(&vm->tmp, e != NULL ? e : s->p + i, e != NULL ? strlen(e) : 1, user);
    }
    return jtext_take(vm, &vm->tmp, from, out);
}

enum err jstr_case(struct jvm *vm, const struct jstr *s, enum jstr_case how, struct jv *out)
{
    static const struct {
        enum ju_to first, rest; /* case of a word's characters */
    } maps[] = {
        [JCASE_LOWER] = {JU_LOWER, JU_LOWER},      [JCASE_UPPER] = {JU_UPPER, JU_UPPER},
        [JCASE_CAPITALIZE] = {JU_TITLE, JU_LOWER}, [JCASE_WORDS] = {JU_UPPER, JU_LOWER},
        [JCASE_TITLE] = {JU_TITLE, JU_LOWER},      [JCASE_SWAP] = {JU_UPPER, JU_LOWER},
    };
    uint32_t span = 0, cp, mapped[3];
    size_t from = vm->tmp.text.len;
    bool begins = true, is_cased = false;
    for (size_t i = 0, n; i < s->len; i += n) {
        n = utf8_decode(s->p + i, s->len - i, &cp, NULL);
        if (how == JCASE_TITLE || how == JCASE_SWAP) {
            bool is_upper = ju_is_upper(cp), is_title = ju_is_title(cp);
            begins = how == JCASE_SWAP ? !is_upper : !is_cased;
            is_cased = is_upper || ju_is_lower(cp) || (is_title && how == JCASE_TITLE);
        }
        mapped[0] = cp;
        size_t k = how == JCASE_SWAP && !is_cased ? 1 : ju_map(cp, begins ? maps[how].first : maps[how].rest, mapped);
        bool user = jstr_user_at(s, i, &span);
        for (size_t m = 0; m < k; m++) {
            jtext_cp(&vm->tmp, mapped[m], user);
        }
        begins = how == JCASE_WORDS && (ju_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<');
    }
    return jtext_take(vm, &vm->tmp, from, out);
}

enum err jcall_case(struct jvm *vm, struct jcall *c, struct jv *out)
{
    enum jstr_case how = (enum jstr_case)c->row->how;
    TRY(jv_to_str(vm, c->self, out));
    if (how == JCASE_TITLE || how == JCASE_SWAP) {
        TRY(jvm_pay_read(vm, out->str->len));
    }
    return jstr_case(vm, out->str, how, out);
}

enum err jstr_case_is(struct jvm *vm, const struct jstr *s, bool upper, struct jv *out)
{
    TRY(jvm_pay_read(vm, s->len));
    bool some = false, other = false;
    for (size_t i = 0; i < s->len && !other;) {
        uint32_t cp;
        i += utf8_decode(s->p + i, s->len - i, &cp, NULL);
        some = some || (upper ? ju_is_upper(cp) : ju_is_lower(cp));
        other = ju_is_title(cp) || (upper ? ju_is_lower(cp) : ju_is_upper(cp));
    }
    *out = jv_bool(some && !other);
    return ERR_OK;
}

static bool stripped(uint32_t cp, const struct jstr *chars)
{
    if (chars == NULL) {
        return ju_space(cp);
    }
    for (size_t i = 0; i < chars->len;) {
        uint32_t c;
        i += utf8_decode(chars->p + i, chars->len - i, &c, NULL);
        if (c == cp) {
            return true;
        }
    }
    return false;
}

enum err jcall_strip(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *chars = NULL; /* to remove instead of white space */
    int sides = c->row->how;
    if (c->arg[0].kind != JV_NONE) {
        TRY(jcall_str(vm, c->arg[0], c->row->name, &chars));
    }
    TRY(jv_to_str(vm, c->self, out));
    const struct jstr *s = out->str;
    size_t from = 0;
    size_t to = s->len;
    uint32_t cp;
    while ((sides & JSIDE_LEFT) != 0 && from < to) {
        size_t n = utf8_decode(s->p + from, to - from, &cp, NULL);
        if (!stripped(cp, chars)) {
            break;
        }
        from += n;
    }
    while ((sides & JSIDE_RIGHT) != 0 && to > from) {
        size_t last = to - 1;
        while (last > from && ((unsigned char)s->p[last] & 0xC0) == 0x80) {
            last--;
        }
        utf8_decode(s->p + last, to - last, &cp, NULL);
        if (!stripped(cp, chars)) {
            break;
        }
        to = last;
    }
    TRY(jvm_pay_read(vm, (s->len - (to - from)) * (1 + (size_t)(chars == NULL ? 0 : chars->len))));
    return jv_substr(vm, s, from, to, out);
}

enum err jcall_replace(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct jv text[3]; /* self old new */
    int64_t count = -1;
    for (int i = 0; i < 3; i++) {
        struct jv v = i == 0 ? c->self : c->arg[i - 1];
        const struct jstr *checked;
        if (c->row->how) {
            TRY(jcall_str(vm, v, "replace", &checked));
        }
        TRY(jv_to_str(vm, v, &text[i]));
    }
    if (c->row->how || c->arg[2].kind != JV_NONE) {
        TRY(jcall_int(vm, c->arg[2], "replace", &count));
    }
    const struct jstr *s = text[0].str, *from = text[1].str, *to = text[2].str;
    size_t at = 0;
    TRY(jvm_pay_bytes(vm, s->len));
    while (count != 0 && at <= s->len && vm->tmp.text.err == ERR_OK) {
        size_t hit = at;
        if (from->len != 0) {
            const char *p = memmem(s->p + at, s->len - at, from->p, from->len);
            if (p == NULL) {
                break;
            }
            hit = (size_t)(p - s->p);
        }
        jtext_sub(&vm->tmp, s, at, hit);
        jtext_str(&vm->tmp, to);
        at = hit + from->len;
        count -= count > 0;
        if (from->len == 0) { /* an empty text matches before every character and at the end */
            if (at == s->len) {
                at = s->len + 1;
                break;
            }
            uint32_t cp;
            size_t n = utf8_decode(s->p + at, s->len - at, &cp, NULL);
            jtext_sub(&vm->tmp, s, at, at + n);
            at += n;
        }
    }
    if (at < s->len) {
        jtext_sub(&vm->tmp, s, at, s->len);
    }
    return jtext_take(vm, &vm->tmp, 0, out);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

enum err jstr_lines(struct jvm *vm, const struct jstr *s, bool keep_ends, struct jv *out)
{
    TRY(jv_list_new(vm, JV_LIST, 0, out));
    TRY(jvm_pay_read(vm, s->len));
    size_t begin = 0;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        size_t end = i;
        i += utf8_decode(s->p + i, s->len - i, &cp, NULL);
        if (!is_line_end(cp) && i < s->len) {
            continue;
        }
        if (!is_line_end(cp)) {
            end = i; /* the last line has no line end */
        } else if (cp == '\r' && i < s->len && s->p[i] == '\n') {
            i++;
        }
        struct jv line;
        TRY(jv_substr(vm, s, begin, keep_ends ? i : end, &line));
        TRY(jv_list_add(vm, out->list, line));
        begin = i;
    }
    return ERR_OK;
}

enum err jstr_pad(struct jvm *vm, const struct jstr *s, int64_t width, const struct jstr *fill, int sides,
                  struct jv *out)
{
    if (width > JINJA_MAX_OUTPUT_BYTES) {
        return jvm_fail(vm, "a text is longer than %d bytes", JINJA_MAX_OUTPUT_BYTES);
    }
    int64_t missing = width > s->chars ? width - s->chars : 0;
    int64_t left = sides == JSIDE_LEFT ? missing : sides == JSIDE_RIGHT ? 0 : missing / 2 + (missing & width & 1);
    for (int64_t i = 0; i < missing; i++) {
        if (i == left) {
            jtext_str(&vm->tmp, s);
        }
        jtext_str(&vm->tmp, fill);
    }
    if (left == missing) {
        jtext_str(&vm->tmp, s);
    }
    return jtext_take(vm, &vm->tmp, 0, out);
}
