/* Methods of strings, dicts and lists, with Python's behaviour. To add one: a function and a row. A row without
 * function is a method that changes its object: it is undefined here, as in jinja2's immutable sandbox. */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"
#include "engine/jinja/jinja_unicode.h"

#include <string.h>

/* --- strings: case, white space, width
 * -------------------------------------------------------------------------------- */

static enum err str_upper(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return jstr_case(vm, c->self.str, JU_UPPER, out);
}

static enum err str_lower(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return jstr_case(vm, c->self.str, JU_LOWER, out);
}

static enum err str_capitalize(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return jstr_capitalize(vm, c->self.str, out);
}

/* title(): a word begins after any character without case. swapcase(): each changes to the other case. */
static enum err recase(struct jvm *vm, const struct jstr *s, bool is_title, struct jv *out)
{
    uint32_t span = 0;
    bool in_word = false;
    TRY(jvm_pay_read(vm, s->len));
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        uint32_t mapped[3];
        size_t n = utf8_decode(s->p + i, s->len - i, &cp, NULL);
        bool is_upper = ju_is_upper(cp);
        bool has_case = is_upper || ju_is_lower(cp) || ju_is_title(cp);
        enum ju_to to = is_title ? (in_word ? JU_LOWER : JU_TITLE) : is_upper ? JU_LOWER : JU_UPPER;
        size_t k = 1;
        if (is_title || (has_case && !ju_is_title(cp))) {
            k = ju_map(cp, to, mapped);
        } else {
            mapped[0] = cp;
        }
        bool user = jstr_user_at(s, i, &span);
        for (size_t m = 0; m < k; m++) {
            jtext_cp(&vm->tmp, mapped[m], user);
        }
        in_word = has_case;
        i += n;
    }
    return jtext_take(vm, &vm->tmp, 0, out);
}

static enum err str_title(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return recase(vm, c->self.str, true, out);
}
static enum err str_swapcase(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return recase(vm, c->self.str, false, out);
}

static enum err strip(struct jvm *vm, struct jcall *c, int sides, const char *what, struct jv *out)
{
    const struct jstr *chars = NULL;
    if (c->arg[0].kind != JV_ABSENT && c->arg[0].kind != JV_NONE) {
        TRY(jcall_str(vm, c->arg[0], what, &chars));
    }
    return jstr_strip(vm, c->self.str, chars, sides, out);
}

static enum err str_strip(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return strip(vm, c, JSIDE_LEFT | JSIDE_RIGHT, "strip", out);
}
static enum err str_lstrip(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return strip(vm, c, JSIDE_LEFT, "lstrip", out);
}
static enum err str_rstrip(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return strip(vm, c, JSIDE_RIGHT, "rstrip", out);
}

static enum err pad(struct jvm *vm, struct jcall *c, int sides, struct jv *out) /* width fill */
{
    int64_t width;
    struct jstr space = {.p = " ", .len = 1, .chars = 1};
    const struct jstr *fill = &space;
    TRY(jcall_int(vm, c->arg[0], "a width", &width));
    if (c->arg[1].kind != JV_ABSENT) {
        TRY(jcall_str(vm, c->arg[1], "the fill character", &fill));
        if (fill->chars != 1) {
            return jvm_fail(vm, "the fill character must be exactly one character long");
        }
    }
    return jstr_pad(vm, c->self.str, width, fill, sides, out);
}

static enum err str_center(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return pad(vm, c, JSIDE_LEFT | JSIDE_RIGHT, out);
}
static enum err str_rjust(struct jvm *vm, struct jcall *c, struct jv *out) { return pad(vm, c, JSIDE_LEFT, out); }
static enum err str_ljust(struct jvm *vm, struct jcall *c, struct jv *out) { return pad(vm, c, JSIDE_RIGHT, out); }

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

/* True for a string of at least one character that all satisfy `is`. */
static enum err all_are(struct jvm *vm, struct jcall *c, bool (*is)(uint32_t), struct jv *out)
{
    const struct jstr *s = c->self.str;
    TRY(jvm_pay_read(vm, s->len));
    bool all = s->len > 0;
    for (size_t i = 0; i < s->len && all;) {
        uint32_t cp;
        i += utf8_decode(s->p + i, s->len - i, &cp, NULL);
        all = is(cp);
    }
    *out = jv_bool(all);
    return ERR_OK;
}

/* True when some characters have the case and none another. */
static enum err case_is(struct jvm *vm, struct jcall *c, bool (*is)(uint32_t), bool (*is_not)(uint32_t), struct jv *out)
{
    const struct jstr *s = c->self.str;
    TRY(jvm_pay_read(vm, s->len));
    bool some = false;
    bool other = false;
    for (size_t i = 0; i < s->len && !other;) {
        uint32_t cp;
        i += utf8_decode(s->p + i, s->len - i, &cp, NULL);
        some = some || is(cp);
        other = is_not(cp) || ju_is_title(cp);
    }
    *out = jv_bool(some && !other);
    return ERR_OK;
}

#define QUESTION(name, is)                                                                                             \
    static enum err name(struct jvm *vm, struct jcall *c, struct jv *out) { return all_are(vm, c, is, out); }
QUESTION(str_isalpha, ju_alpha)
QUESTION(str_isalnum, ju_alnum)
QUESTION(str_isdigit, ju_digit)
QUESTION(str_isspace, ju_space)
QUESTION(str_isnumeric, ju_numeric)
#undef QUESTION

static enum err str_isascii(struct jvm *vm, struct jcall *c, struct jv *out)
{
    *out = jv_bool(true);
    return c->self.str->len == 0 ? ERR_OK : all_are(vm, c, is_ascii, out);
}

static enum err str_isprintable(struct jvm *vm, struct jcall *c, struct jv *out)
{
    *out = jv_bool(true);
    return c->self.str->len == 0 ? ERR_OK : all_are(vm, c, ju_printable, out);
}

/* Upper case only at the beginning of words, lower case only inside of them, and at least one word. */
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

static enum err str_isupper(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return case_is(vm, c, ju_is_upper, ju_is_lower, out);
}

static enum err str_islower(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return case_is(vm, c, ju_is_lower, ju_is_upper, out);
}

/* --- strings: finding
 * ------------------------------------------------------------------------------------------------------ */

/* self[start:end] for arguments `at` and at+1, and the code point where it begins; *exists is false when start lies
 * behind the end of the string. */
static enum err window(struct jvm *vm, struct jcall *c, int at, const struct jstr **out, int64_t *start, bool *exists)
{
    struct jv from = c->arg[at].kind == JV_ABSENT ? jv_none() : c->arg[at];
    struct jv to = c->arg[at + 1].kind == JV_ABSENT ? jv_none() : c->arg[at + 1];
    struct jv part = c->self;
    int64_t n = c->self.str->chars;
    *start = 0;
    if (from.kind != JV_NONE || to.kind != JV_NONE) {
        TRY(jop_slice(vm, c->self, from, to, jv_none(), &part));
        *start = from.kind == JV_NONE ? 0 : jv_as_int(from);
        *start = *start < -n ? 0 : *start < 0 ? *start + n : *start;
    }
    *exists = *start <= n;
    *out = part.str;
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

/* Index of the first or last match in code points, -1 when there is none. */
static enum err find(struct jvm *vm, struct jcall *c, bool is_last, int64_t *out)
{
    const struct jstr *what;
    const struct jstr *s;
    int64_t start;
    bool exists;
    TRY(jcall_str(vm, c->arg[0], "find", &what));
    TRY(window(vm, c, 1, &s, &start, &exists));
    const char *p = NULL;
    if (exists && is_last) {
        TRY(jvm_pay_read(vm, (size_t)s->len * (size_t)(what->len / 64 + 1)));
        p = last_match(s, what);
    } else if (exists) {
        p = what->len == 0 ? s->p : memmem(s->p, s->len, what->p, what->len);
    }
    *out = p == NULL ? -1 : start + (int64_t)jstr_count(s->p, (size_t)(p - s->p));
    return ERR_OK;
}

static enum err str_find(struct jvm *vm, struct jcall *c, struct jv *out)
{
    *out = jv_int(0);
    return find(vm, c, false, &out->i);
}

static enum err str_rfind(struct jvm *vm, struct jcall *c, struct jv *out)
{
    *out = jv_int(0);
    return find(vm, c, true, &out->i);
}

static enum err str_index(struct jvm *vm, struct jcall *c, struct jv *out)
{
    TRY(str_find(vm, c, out));
    return out->i < 0 ? jvm_fail(vm, "substring not found") : ERR_OK;
}

static enum err str_rindex(struct jvm *vm, struct jcall *c, struct jv *out)
{
    TRY(str_rfind(vm, c, out));
    return out->i < 0 ? jvm_fail(vm, "substring not found") : ERR_OK;
}

static enum err str_count(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *what;
    const struct jstr *s;
    int64_t start;
    bool exists;
    TRY(jcall_str(vm, c->arg[0], "count", &what));
    TRY(window(vm, c, 1, &s, &start, &exists));
    int64_t n = 0;
    if (what->len == 0) {
        n = exists ? (int64_t)s->chars + 1 : 0;
    }
    TRY(jvm_pay_read(vm, s->len)); /* as matches may be short */
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

static bool has_affix(const struct jstr *s, const struct jstr *affix, bool at_end)
{
    return affix->len <= s->len && memcmp(s->p + (at_end ? s->len - affix->len : 0), affix->p, affix->len) == 0;
}

/* The argument is one string or a tuple of them. */
static enum err affix(struct jvm *vm, struct jcall *c, bool at_end, struct jv *out)
{
    const struct jstr *s;
    int64_t start;
    bool exists;
    TRY(window(vm, c, 1, &s, &start, &exists));
    struct jv one = c->arg[0];
    uint32_t n = one.kind == JV_TUPLE ? one.list->n : 1;
    *out = jv_bool(false);
    for (uint32_t i = 0; i < n; i++) {
        const struct jstr *what;
        TRY(jcall_str(vm, one.kind == JV_TUPLE ? one.list->at[i] : one, at_end ? "endswith" : "startswith", &what));
        TRY(jvm_pay(vm, 1 + what->len / JVM_BYTES_PER_STEP));
        out->b = out->b || (exists && has_affix(s, what, at_end));
    }
    return ERR_OK;
}

static enum err str_startswith(struct jvm *vm, struct jcall *c, struct jv *out) { return affix(vm, c, false, out); }
static enum err str_endswith(struct jvm *vm, struct jcall *c, struct jv *out) { return affix(vm, c, true, out); }

/* --- strings: parts
 * ----------------------------------------------------------------------------------------------------------- */

static enum err str_removeprefix(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *what;
    TRY(jcall_str(vm, c->arg[0], "removeprefix", &what));
    TRY(jvm_pay_bytes(vm, what->len));
    return jv_substr(vm, c->self.str, has_affix(c->self.str, what, false) ? what->len : 0, c->self.str->len, out);
}

static enum err str_removesuffix(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *what;
    TRY(jcall_str(vm, c->arg[0], "removesuffix", &what));
    TRY(jvm_pay_bytes(vm, what->len));
    const struct jstr *s = c->self.str;
    return jv_substr(vm, s, 0, s->len - (has_affix(s, what, true) ? what->len : 0), out);
}

static enum err str_replace(struct jvm *vm, struct jcall *c, struct jv *out) /* old new count */
{
    const struct jstr *from;
    const struct jstr *to;
    int64_t count = -1;
    TRY(jcall_str(vm, c->arg[0], "replace", &from));
    TRY(jcall_str(vm, c->arg[1], "replace", &to));
    if (c->arg[2].kind != JV_ABSENT) {
        TRY(jcall_int(vm, c->arg[2], "replace", &count));
    }
    return jstr_replace(vm, c->self.str, from, to, count, out);
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

/* Bytes of white space at `at`, before `end`; 0 when there is none. */
static size_t space_at(const struct jstr *s, size_t at, size_t end)
{
    uint32_t cp;
    size_t n = at < end ? utf8_decode(s->p + at, end - at, &cp, NULL) : 0;
    return n > 0 && ju_space(cp) ? n : 0;
}

/* The same for the character that ends at `end`. */
static size_t space_before(const struct jstr *s, size_t end)
{
    size_t at = end;
    while (at > 0 && ((unsigned char)s->p[--at] & 0xC0) == 0x80) {
    }
    return at < end && space_at(s, at, end) == end - at ? end - at : 0;
}

static size_t char_before(const struct jstr *s, size_t end)
{
    size_t at = end;
    while (at > 0 && ((unsigned char)s->p[--at] & 0xC0) == 0x80) {
    }
    return end - at;
}

/* Words; after `max` of them (-1: no limit) the rest as it stands. */
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

/* The same from the right; parts come in reverse. */
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

static enum err split(struct jvm *vm, struct jcall *c, bool from_right, struct jv *out) /* sep maxsplit */
{
    const struct jstr *s = c->self.str;
    const struct jstr *sep = NULL;
    int64_t max = -1;
    if (c->arg[0].kind != JV_ABSENT && c->arg[0].kind != JV_NONE) {
        TRY(jcall_str(vm, c->arg[0], "split", &sep));
        if (sep->len == 0) {
            return jvm_fail(vm, "empty separator");
        }
    }
    if (c->arg[1].kind != JV_ABSENT) {
        TRY(jcall_int(vm, c->arg[1], "split", &max));
    }
    TRY(jvm_pay_read(vm, s->len));
    TRY(jv_list_new(vm, JV_LIST, 0, out));
    if (!from_right) {
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

static enum err str_split(struct jvm *vm, struct jcall *c, struct jv *out) { return split(vm, c, false, out); }
static enum err str_rsplit(struct jvm *vm, struct jcall *c, struct jv *out) { return split(vm, c, true, out); }

static enum err partition(struct jvm *vm, struct jcall *c, bool from_right, struct jv *out) /* sep */
{
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

static enum err str_partition(struct jvm *vm, struct jcall *c, struct jv *out) { return partition(vm, c, false, out); }
static enum err str_rpartition(struct jvm *vm, struct jcall *c, struct jv *out) { return partition(vm, c, true, out); }

static enum err str_join(struct jvm *vm, struct jcall *c, struct jv *out) /* iterable */
{
    struct jv_iter it;
    TRY(jv_iter_init(vm, c->arg[0], &it));
    for (bool is_first = true;; is_first = false) {
        struct jv item;
        bool more;
        const struct jstr *s;
        TRY(jv_iter_next(vm, &it, &item, &more));
        if (!more) {
            return jtext_take(vm, &vm->tmp, 0, out);
        }
        TRY(jcall_str(vm, item, "join", &s));
        if (!is_first) {
            jtext_str(&vm->tmp, c->self.str);
        }
        jtext_str(&vm->tmp, s);
    }
}

const struct jbuiltin jinja_str_methods[] = {
    {"capitalize", str_capitalize, "", 0},
    {"center", str_center, "width fillchar", 1},
    {"count", str_count, "sub start end", 1},
    {"endswith", str_endswith, "suffix start end", 1},
    {"find", str_find, "sub start end", 1},
    {"format", jcall_format, "*", 0},
    {"index", str_index, "sub start end", 1},
    {"isalnum", str_isalnum, "", 0},
    {"isalpha", str_isalpha, "", 0},
    {"isascii", str_isascii, "", 0},
    {"isdigit", str_isdigit, "", 0},
    {"islower", str_islower, "", 0},
    {"isnumeric", str_isnumeric, "", 0},
    {"isprintable", str_isprintable, "", 0},
    {"isspace", str_isspace, "", 0},
    {"istitle", str_istitle, "", 0},
    {"isupper", str_isupper, "", 0},
    {"join", str_join, "iterable", 1},
    {"ljust", str_ljust, "width fillchar", 1},
    {"lower", str_lower, "", 0},
    {"lstrip", str_lstrip, "chars", 0},
    {"partition", str_partition, "sep", 1},
    {"removeprefix", str_removeprefix, "prefix", 1},
    {"removesuffix", str_removesuffix, "suffix", 1},
    {"replace", str_replace, "old new count", 2},
    {"rfind", str_rfind, "sub start end", 1},
    {"rindex", str_rindex, "sub start end", 1},
    {"rjust", str_rjust, "width fillchar", 1},
    {"rpartition", str_rpartition, "sep", 1},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"rstrip", str_rstrip, "chars", 0},
    {"split", str_split, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"startswith", str_startswith, "prefix start end", 1},
    {"strip", str_strip, "chars", 0},
    {"swapcase", str_swapcase, "", 0},
    {"title", str_title, "", 0},
    {"upper", str_upper, "", 0},
    {"zfill", str_zfill, "width", 1},
    {NULL, NULL, NULL, 0},
};

/* --- dicts ------------------------------------------------------------------------------------------------------ */

static enum err dict_get(struct jvm *vm, struct jcall *c, struct jv *out) /* key default */
{
    struct jv *found;
    TRY(jv_dict_find(vm, c->self.dict, c->arg[0], &found));
    *out = found != NULL ? *found : c->arg[1].kind != JV_ABSENT ? c->arg[1] : jv_none();
    return ERR_OK;
}

static enum err dict_view(struct jvm *vm, struct jcall *c, enum jv_view view, struct jv *out)
{
    const struct jv_dict *d = c->self.dict;
    TRY(jvm_pay(vm, d->n / 8));
    TRY(jv_list_new(vm, JV_LIST, d->n, out));
    for (uint32_t i = 0; i < d->n; i++) {
        struct jv item = view == JV_KEYS ? d->at[i].key : d->at[i].value;
        if (view == JV_ITEMS) {
            TRY(jv_pair(vm, d->at[i].key, d->at[i].value, &item));
        }
        TRY(jv_list_add(vm, out->list, item));
    }
    out->kind = JV_VIEW;
    out->sub = (uint8_t)view;
    return ERR_OK;
}

static enum err dict_keys(struct jvm *vm, struct jcall *c, struct jv *out) { return dict_view(vm, c, JV_KEYS, out); }
static enum err dict_values(struct jvm *vm, struct jcall *c, struct jv *out)
{
    return dict_view(vm, c, JV_VALUES, out);
}
static enum err dict_items(struct jvm *vm, struct jcall *c, struct jv *out) { return dict_view(vm, c, JV_ITEMS, out); }

/* Values never change, so sharing is copying. */
static enum err copy(struct jvm *vm, struct jcall *c, struct jv *out)
{
    (void)vm;
    *out = c->self;
    return ERR_OK;
}

const struct jbuiltin jinja_dict_methods[] = {
    {"clear", NULL, "", 0},         {"copy", copy, "", 0},       {"get", dict_get, "key default", 1},
    {"items", dict_items, "", 0},   {"keys", dict_keys, "", 0},  {"pop", NULL, "", 0},
    {"popitem", NULL, "", 0},       {"setdefault", NULL, "", 0}, {"update", NULL, "", 0},
    {"values", dict_values, "", 0}, {NULL, NULL, NULL, 0},
};

/* --- lists, tuples and ranges
 * -------------------------------------------------------------------------------------------------------- */

static enum err seq_count(struct jvm *vm, struct jcall *c, struct jv *out) /* value */
{
    struct jv_list *l;
    int64_t n = 0;
    TRY(jv_to_list(vm, c->self, &l));
    TRY(jvm_pay(vm, l->n));
    for (uint32_t i = 0; i < l->n; i++) {
        bool same;
        TRY(jv_equal(vm, l->at[i], c->arg[0], &same));
        n += same;
    }
    *out = jv_int(n);
    return ERR_OK;
}

static enum err seq_index(struct jvm *vm, struct jcall *c, struct jv *out) /* value */
{
    struct jv_list *l;
    TRY(jv_to_list(vm, c->self, &l));
    TRY(jvm_pay(vm, l->n));
    for (uint32_t i = 0; i < l->n; i++) {
        bool same;
        TRY(jv_equal(vm, l->at[i], c->arg[0], &same));
        if (same) {
            *out = jv_int(i);
            return ERR_OK;
        }
    }
    return jvm_fail(vm, "the value is not in the list");
}

const struct jbuiltin jinja_list_methods[] = {
    {"append", NULL, "", 0},          {"clear", NULL, "", 0},  {"copy", copy, "", 0},
    {"count", seq_count, "value", 1}, {"extend", NULL, "", 0}, {"index", seq_index, "value", 1},
    {"insert", NULL, "", 0},          {"pop", NULL, "", 0},    {"remove", NULL, "", 0},
    {"reverse", NULL, "", 0},         {"sort", NULL, "", 0},   {NULL, NULL, NULL, 0},
};
