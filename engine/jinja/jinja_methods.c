/* Methods of strings, dicts and lists, with Python's behavior. A new method needs a function and a row. A row without a
 * function is a method that changes its object: it is undefined here, as in jinja2's immutable sandbox. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <string.h>

/* --- strings: width -------------------------------------------------------------------------------------------- */

static enum err str_pad(struct jvm *vm, struct jcall *c, struct jv *out) /* width fill; how: enum jstr_side */
{
    int64_t width;
    struct jstr space = {.p = " ", .len = 1, .chars = 1};
    const struct jstr *fill = &space;
    TRY(jcall_int(vm, c->arg[0], "a width", &width));
    TRY(jcall_str(vm, c->arg[1], "the fill character", &fill));
    if (fill->chars != 1) {
        return jvm_fail(vm, "the fill character must be exactly one character long");
    }
    return jstr_pad(vm, c->self.str, width, fill, c->row->how, out);
}

static enum err str_zfill(struct jvm *vm, struct jcall *c, struct jv *out) /* width */
{
    int64_t width;
    const struct jstr *s = c->self.str;
    struct jstr zero = {.p = "0", .len = 1, .chars = 1};
    TRY(jcall_int(vm, c->arg[0], "zfill", &width));
    if (s->len == 0 || (s->p[0] != '-' && s->p[0] != '+')) {
        return jstr_pad(vm, s, width, &zero, JSIDE_LEFT, out);
    }
    struct jv sign;
    struct jv rest;
    TRY(jv_substr(vm, s, 0, 1, &sign));
    TRY(jv_substr(vm, s, 1, s->len, &rest));
    TRY(jstr_pad(vm, rest.str, width > 0 ? width - 1 : 0, &zero, JSIDE_LEFT, &rest));
    return jv_concat(vm, sign.str, rest.str, out);
}

/* --- strings: questions
 * ------------------------------------------------------------------------------------------------- */

static bool is_ascii(uint32_t cp) { return cp < 0x80; }

/* Properties of characters. From IS_ASCII on, the empty string also has them. */
enum { IS_ALPHA, IS_ALNUM, IS_DIGIT, IS_SPACE, IS_NUMERIC, IS_ASCII, IS_PRINTABLE };
static bool (*const properties[])(uint32_t cp) = {ju_alpha,   ju_alnum, ju_digit,    ju_space,
                                                  ju_numeric, is_ascii, ju_printable};

/* Checks whether all characters have the property. */
static enum err str_all_are(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *s = c->self.str;
    TRY(jvm_pay_read(vm, s->len));
    bool all = s->len > 0 || c->row->how >= IS_ASCII;
    for (size_t i = 0; i < s->len && all;) {
        uint32_t cp;
        i += utf8_decode(s->p + i, s->len - i, &cp, NULL);
        all = properties[c->row->how](cp);
    }
    *out = jv_bool(all);
    return ERR_OK;
}

static enum err str_case_is(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return jstr_case_is(vm, c->self.str, c->row->how, out);
}

/* Checks for upper case only at the beginning of words, lower case only inside, and at least one word. */
static enum err str_istitle(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *s = c->self.str;
    bool inside = false;
    bool some = false;
    bool ok = true;
    for (size_t i = 0; i < s->len && ok;) {
        uint32_t cp;
        i += utf8_decode(s->p + i, s->len - i, &cp, NULL);
        bool upper = ju_is_upper(cp) || ju_is_title(cp);
        bool lower = !upper && ju_is_lower(cp);
        ok = upper ? !inside : !lower || inside;
        inside = upper || lower;
        some = some || inside;
    }
    *out = jv_bool(ok && some);
    return jvm_pay_read(vm, s->len);
}

/* --- strings: finding
 * ------------------------------------------------------------------------------------------------------ */

/* A part of a string to search. */
struct window {
    const struct jstr *s;
    int64_t start; /* its first code point */
    bool exists;   /* it does not start after the end of the string */
};

/* Returns self[start:end], by arguments 1 and 2. */
static enum err window(struct jvm *vm, struct jcall *c, struct window *w)
{
    struct jv from = c->arg[1].kind == JV_ABSENT ? jv_none() : c->arg[1];
    struct jv to = c->arg[2].kind == JV_ABSENT ? jv_none() : c->arg[2];
    struct jv part = c->self;
    int64_t n = c->self.str->chars;
    w->start = 0;
    if (from.kind != JV_NONE || to.kind != JV_NONE) {
        TRY(jop_slice(vm, c->self, (struct jv[]){from, to, jv_none()}, &part));
        w->start = from.kind == JV_NONE ? 0 : jv_as_int(from);
        w->start = w->start < 0 ? MAX_OF(w->start, -n) + n : w->start;
    }
    w->exists = w->start <= n;
    w->s = part.str;
    return jvm_pay_bytes(vm, part.str->len);
}

static const char *last_match(const struct jstr *s, const struct jstr *what)
{
    for (size_t at = s->len - what->len + 1; what->len <= s->len && at-- > 0;) {
        if (memcmp(s->p + at, what->p, what->len) == 0) {
            return s->p + at;
        }
    }
    return NULL;
}

enum { FROM_RIGHT = 1, MUST_BE_FOUND = 2 }; /* how */

/* Returns the index of the first or last match in code points, -1 if there is none. */
static enum err str_find(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *what;
    struct window w;
    TRY(jcall_str(vm, c->arg[0], "find", &what));
    TRY(window(vm, c, &w));
    const struct jstr *s = w.s;
    const char *p = NULL;
    if (w.exists && (c->row->how & FROM_RIGHT) != 0) {
        TRY(jvm_pay_read(vm, (size_t)s->len * (size_t)(what->len / 64 + 1)));
        p = last_match(s, what);
    } else if (w.exists) {
        p = what->len == 0 ? s->p : memmem(s->p, s->len, what->p, what->len);
    }
    if (p == NULL && (c->row->how & MUST_BE_FOUND) != 0) {
        return jvm_fail(vm, "substring not found");
    }
    *out = jv_int(p == NULL ? -1 : w.start + (int64_t)jstr_count(s->p, (size_t)(p - s->p)));
    return ERR_OK;
}

static enum err str_count(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *what;
    struct window w;
    TRY(jcall_str(vm, c->arg[0], "count", &what));
    TRY(window(vm, c, &w));
    const struct jstr *s = w.s;
    int64_t n = what->len == 0 && w.exists ? (int64_t)s->chars + 1 : 0;
    TRY(jvm_pay_read(vm, s->len)); /* because matches can be short */
    for (size_t at = 0; what->len > 0 && at < s->len;) {
        const char *p = memmem(s->p + at, s->len - at, what->p, what->len);
        if (p == NULL) {
            break;
        }
        n++;
        at = (size_t)(p - s->p) + what->len;
    }
    *out = jv_int(n);
    return ERR_OK;
}

static bool has_affix(const struct jstr *s, const struct jstr *affix, int how)
{
    return affix->len <= s->len &&
           memcmp(s->p + (how == FROM_RIGHT ? s->len - affix->len : 0), affix->p, affix->len) == 0;
}

/* The argument is a string or a tuple of strings. */
static enum err str_has_affix(struct jvm *vm, struct jcall *c, struct jv *out)
{
    struct window w;
    TRY(window(vm, c, &w));
    struct jv one = c->arg[0];
    uint32_t n = one.kind == JV_TUPLE ? one.list->n : 1;
    *out = jv_bool(false);
    for (uint32_t i = 0; i < n; i++) {
        const struct jstr *what;
        TRY(jcall_str(vm, one.kind == JV_TUPLE ? one.list->at[i] : one, c->row->name, &what));
        TRY(jvm_pay(vm, 1 + what->len / JVM_BYTES_PER_STEP));
        out->b = out->b || (w.exists && has_affix(w.s, what, c->row->how));
    }
    return ERR_OK;
}

/* --- strings: parts
 * ----------------------------------------------------------------------------------------------------------- */

static enum err str_remove(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *s = c->self.str, *what;
    TRY(jcall_str(vm, c->arg[0], c->row->name, &what));
    TRY(jvm_pay_bytes(vm, what->len));
    size_t n = has_affix(s, what, c->row->how) ? what->len : 0;
    return c->row->how == FROM_RIGHT ? jv_substr(vm, s, 0, s->len - n, out) : jv_substr(vm, s, n, s->len, out);
}

static enum err str_splitlines(struct jvm *vm, struct jcall *c, struct jv *out) /* keepends */
{
    return jstr_lines(vm, c->self.str, jcall_flag(c->arg[0], false), out);
}

static enum err add_part(struct jvm *vm, const struct jstr *s, size_t from, size_t to, struct jv_list *l)
{
    struct jv part;
    TRY(jv_substr(vm, s, from, to, &part));
    return jv_list_add(vm, l, part);
}

/* Returns the length of white space at `at`, before `end`; 0 if there is none. */
static size_t space_at(const struct jstr *s, size_t at, size_t end)
{
    uint32_t cp;
    size_t n = at < end ? utf8_decode(s->p + at, end - at, &cp, NULL) : 0;
    return n > 0 && ju_space(cp) ? n : 0;
}

static size_t char_before(const struct jstr *s, size_t end)
{
    size_t at = end;
    while (at > 0 && ((unsigned char)s->p[--at] & 0xC0) == 0x80) {
    }
    return end - at;
}

/* Like space_at(), but for the character that ends at `end`. */
static size_t space_before(const struct jstr *s, size_t end)
{
    size_t n = char_before(s, end);
    return space_at(s, end - n, end) == n ? n : 0;
}

/* Splits into words; after `max` words (-1: no limit) adds the rest unchanged. */
static enum err split_words(struct jvm *vm, const struct jstr *s, int64_t max, struct jv_list *l)
{
    size_t at = 0;
    for (;;) {
        size_t n;
        while ((n = space_at(s, at, s->len)) > 0) {
            at += n;
        }
        if (at == s->len) {
            return ERR_OK;
        }
        size_t from = at;
        if (max >= 0 && l->n == (uint64_t)max) {
            return add_part(vm, s, from, s->len, l);
        }
        uint32_t cp;
        while (at < s->len && space_at(s, at, s->len) == 0) {
            at += utf8_decode(s->p + at, s->len - at, &cp, NULL);
        }
        TRY(add_part(vm, s, from, at, l));
    }
}

/* Like split_words(), but from the right; the parts are in reverse order. */
static enum err rsplit_words(struct jvm *vm, const struct jstr *s, int64_t max, struct jv_list *l)
{
    size_t end = s->len;
    for (;;) {
        size_t n;
        while ((n = space_before(s, end)) > 0) {
            end -= n;
        }
        if (end == 0) {
            return ERR_OK;
        }
        size_t to = end;
        if (max >= 0 && l->n == (uint64_t)max) {
            return add_part(vm, s, 0, to, l);
        }
        while (end > 0 && space_before(s, end) == 0) {
            end -= char_before(s, end);
        }
        TRY(add_part(vm, s, end, to, l));
    }
}

static enum err split_at(struct jvm *vm, const struct jstr *s, const struct jstr *sep, int64_t max, struct jv_list *l)
{
    size_t at = 0;
    while (max < 0 || l->n < (uint64_t)max) {
        const char *p = memmem(s->p + at, s->len - at, sep->p, sep->len);
        if (p == NULL) {
            break;
        }
        TRY(add_part(vm, s, at, (size_t)(p - s->p), l));
        at = (size_t)(p - s->p) + sep->len;
    }
    return add_part(vm, s, at, s->len, l);
}

static enum err rsplit_at(struct jvm *vm, const struct jstr *s, const struct jstr *sep, int64_t max, struct jv_list *l)
{
    struct jstr rest = *s;
    while (max < 0 || l->n < (uint64_t)max) {
        const char *p = last_match(&rest, sep);
        TRY(jvm_pay_read(vm, (p == NULL ? rest.len : (size_t)(rest.p + rest.len - p)) * (sep->len / 64 + 1)));
        if (p == NULL) {
            break;
        }
        TRY(add_part(vm, s, (size_t)(p - s->p) + sep->len, rest.len, l));
        rest.len = (uint32_t)(p - s->p);
    }
    return add_part(vm, s, 0, rest.len, l);
}

static enum err str_split(struct jvm *vm, struct jcall *c, struct jv *out) /* sep maxsplit */
{
    const struct jstr *s = c->self.str;
    const struct jstr *sep = NULL;
    int64_t max = -1;
    if (c->arg[0].kind != JV_NONE) {
        TRY(jcall_str(vm, c->arg[0], "split", &sep));
    }
    if (sep != NULL && sep->len == 0) {
        return jvm_fail(vm, "empty separator");
    }
    TRY(jcall_int(vm, c->arg[1], "split", &max));
    TRY(jvm_pay_read(vm, s->len));
    TRY(jv_list_new(vm, JV_LIST, 0, out));
    if (c->row->how != FROM_RIGHT) {
        return sep == NULL ? split_words(vm, s, max, out->list) : split_at(vm, s, sep, max, out->list);
    }
    TRY(sep == NULL ? rsplit_words(vm, s, max, out->list) : rsplit_at(vm, s, sep, max, out->list));
    for (uint32_t i = 0, k = out->list->n; i + 1 < k; i++) {
        struct jv swap = out->list->at[i];
        out->list->at[i] = out->list->at[--k];
        out->list->at[k] = swap;
    }
    return ERR_OK;
}

static enum err str_partition(struct jvm *vm, struct jcall *c, struct jv *out) /* sep */
{
    bool from_right = c->row->how == FROM_RIGHT;
    const struct jstr *s = c->self.str;
    const struct jstr *sep;
    TRY(jcall_str(vm, c->arg[0], "partition", &sep));
    if (sep->len == 0) {
        return jvm_fail(vm, "empty separator");
    }
    TRY(from_right ? jvm_pay_read(vm, (size_t)s->len * (sep->len / 64 + 1)) : jvm_pay_bytes(vm, s->len));
    TRY(jv_list_new(vm, JV_TUPLE, 3, out));
    const char *p = from_right ? last_match(s, sep) : memmem(s->p, s->len, sep->p, sep->len);
    size_t at = p != NULL ? (size_t)(p - s->p) : from_right ? 0 : s->len;
    size_t n = p != NULL ? sep->len : 0;
    TRY(add_part(vm, s, 0, at, out->list));
    TRY(add_part(vm, s, at, at + n, out->list));
    return add_part(vm, s, at + n, s->len, out->list);
}

static enum err str_join(struct jvm *vm, struct jcall *c, struct jv *out) /* iterable */
{
    struct jv_iter it = {.of = c->arg[0]};
    struct jv item;
    for (bool is_first = true; jv_iter_next(vm, &it, &item); is_first = false) {
        const struct jstr *s;
        TRY(jcall_str(vm, item, "join", &s));
        if (!is_first) {
            jtext_str(&vm->tmp, c->self.str);
        }
        jtext_str(&vm->tmp, s);
    }
    TRY(it.err);
    return jtext_take(vm, &vm->tmp, 0, out);
}

const struct jbuiltin jinja_str_methods[] = {
    {"capitalize", jcall_case, "", 0, JCASE_CAPITALIZE},
    {"center", str_pad, "width fillchar", 1, JSIDE_LEFT | JSIDE_RIGHT},
    {"count", str_count, "sub start end", 1, 0},
    {"endswith", str_has_affix, "suffix start end", 1, FROM_RIGHT},
    {"find", str_find, "sub start end", 1, 0},
    {"format", jcall_format, "*", 0, 0},
    {"index", str_find, "sub start end", 1, MUST_BE_FOUND},
    {"isalnum", str_all_are, "", 0, IS_ALNUM},
    {"isalpha", str_all_are, "", 0, IS_ALPHA},
    {"isascii", str_all_are, "", 0, IS_ASCII},
    {"isdigit", str_all_are, "", 0, IS_DIGIT},
    {"islower", str_case_is, "", 0, false},
    {"isnumeric", str_all_are, "", 0, IS_NUMERIC},
    {"isprintable", str_all_are, "", 0, IS_PRINTABLE},
    {"isspace", str_all_are, "", 0, IS_SPACE},
    {"istitle", str_istitle, "", 0, 0},
    {"isupper", str_case_is, "", 0, true},
    {"join", str_join, "iterable", 1, 0},
    {"ljust", str_pad, "width fillchar", 1, JSIDE_RIGHT},
    {"lower", jcall_case, "", 0, JCASE_LOWER},
    {"lstrip", jcall_strip, "chars", 0, JSIDE_LEFT},
    {"partition", str_partition, "sep", 1, 0},
    {"removeprefix", str_remove, "prefix", 1, 0},
    {"removesuffix", str_remove, "suffix", 1, FROM_RIGHT},
    {"replace", jcall_replace, "old new count", 2, true},
    {"rfind", str_find, "sub start end", 1, FROM_RIGHT},
    {"rindex", str_find, "sub start end", 1, FROM_RIGHT | MUST_BE_FOUND},
    {"rjust", str_pad, "width fillchar", 1, JSIDE_LEFT},
    {"rpartition", str_partition, "sep", 1, FROM_RIGHT},
    {"rsplit", str_split, "sep maxsplit", 0, FROM_RIGHT},
    {"rstrip", jcall_strip, "chars", 0, JSIDE_RIGHT},
    {"split", str_split, "sep maxsplit", 0, 0},
    {"splitlines", str_splitlines, "keepends", 0, 0},
    {"startswith", str_has_affix, "prefix start end", 1, 0},
    {"strip", jcall_strip, "chars", 0, JSIDE_LEFT | JSIDE_RIGHT},
    {"swapcase", jcall_case, "", 0, JCASE_SWAP},
    {"title", jcall_case, "", 0, JCASE_TITLE},
    {"upper", jcall_case, "", 0, JCASE_UPPER},
    {"zfill", str_zfill, "width", 1, 0},
    {NULL, NULL, NULL, 0, 0},
};

/* --- dicts ------------------------------------------------------------------------------------------------------ */

static enum err dict_get(struct jvm *vm, struct jcall *c, struct jv *out) /* key default */
{
    TRY(jv_dict_find(vm, c->self.dict, c->arg[0], out));
    if (out->kind == JV_ABSENT) {
        *out = c->arg[1].kind == JV_ABSENT ? jv_none() : c->arg[1];
    }
    return ERR_OK;
}

static enum err dict_view(struct jvm *vm, struct jcall *c, struct jv *out)
{
    enum jv_view view = (enum jv_view)c->row->how;
    const struct jv_dict *d = c->self.dict;
    TRY(jvm_pay(vm, d->n / 8));
    TRY(jv_list_new(vm, JV_LIST, d->n, out));
    for (uint32_t i = 0; i < d->n; i++) {
        struct jv item = view == JV_KEYS ? d->at[i].key : d->at[i].value;
        if (view == JV_ITEMS) {
            TRY(jv_list_of(vm, JV_TUPLE, (struct jv[]){d->at[i].key, d->at[i].value}, 2, &item));
        }
        TRY(jv_list_add(vm, out->list, item));
    }
    out->kind = JV_VIEW;
    out->sub = (uint8_t)view;
    return ERR_OK;
}

/* A method of the dict class and of any dict: returns a dict of the keys, all with the same value. */
static enum err dict_fromkeys(struct jvm *vm, struct jcall *c, struct jv *out) /* iterable value */
{
    struct jv value = c->arg[1].kind == JV_ABSENT ? jv_none() : c->arg[1];
    struct jv_iter it = {.of = c->arg[0]};
    struct jv key;
    TRY(jv_dict_new(vm, JV_DICT, 0, out));
    while (jv_iter_next(vm, &it, &key)) {
        TRY(jv_dict_put(vm, out->dict, key, value));
    }
    return it.err;
}

/* Values are immutable, so sharing is copying. */
static enum err copy(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
    *out = c->self;
    return ERR_OK;
}

const struct jbuiltin jinja_dict_methods[] = {
    {"clear", NULL, "", 0, 0},
    {"copy", copy, "", 0, 0},
    {"fromkeys", dict_fromkeys, "iterable value", 1, 0},
    {"get", dict_get, "key default", 1, 0},
    {"items", dict_view, "", 0, JV_ITEMS},
    {"keys", dict_view, "", 0, JV_KEYS},
    {"pop", NULL, "", 0, 0},
    {"popitem", NULL, "", 0, 0},
    {"setdefault", NULL, "", 0, 0},
    {"update", NULL, "", 0, 0},
    {"values", dict_view, "", 0, JV_VALUES},
    {NULL, NULL, NULL, 0, 0},
};

const struct jbuiltin jinja_dict_class_methods[] = {
    {"fromkeys", dict_fromkeys, "iterable value", 1, 0},
    {NULL, NULL, NULL, 0, 0},
};

/* --- lists, tuples and ranges
 * -------------------------------------------------------------------------------------------------------- */

/* Returns the number of items that equal the value, or the index of the first. */
static enum err seq_find(struct jvm *vm, struct jcall *c, struct jv *out) /* value; how: MUST_BE_FOUND = its index */
{
    struct jv_list *l;
    int64_t n = 0;
    TRY(jv_to_list(vm, c->self, &l));
    TRY(jvm_pay(vm, l->n));
    for (uint32_t i = 0; i < l->n; i++) {
        bool same;
        TRY(jv_equal(vm, l->at[i], c->arg[0], &same));
        if (same && c->row->how == MUST_BE_FOUND) {
            *out = jv_int(i);
            return ERR_OK;
        }
        n += same;
    }
    *out = jv_int(n);
    return c->row->how == MUST_BE_FOUND ? jvm_fail(vm, "the value is not in the list") : ERR_OK;
}

const struct jbuiltin jinja_list_methods[] = {
    {"append", NULL, "", 0, 0},         {"clear", NULL, "", 0, 0},  {"copy", copy, "", 0, 0},
    {"count", seq_find, "value", 1, 0}, {"extend", NULL, "", 0, 0}, {"index", seq_find, "value", 1, MUST_BE_FOUND},
    {"insert", NULL, "", 0, 0},         {"pop", NULL, "", 0, 0},    {"remove", NULL, "", 0, 0},
    {"reverse", NULL, "", 0, 0},        {"sort", NULL, "", 0, 0},   {NULL, NULL, NULL, 0, 0},
};
