/* Formatting of values: `format % args` and str.format, which share the description of a field. Source: Python 3
 * library reference, "printf-style String Formatting" and "Format Specification Mini-Language". */
#include "engine/jinja/jinja_vm.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PRECISION = 100, MAX_WIDTH = 1 << 16, NUMBER_BYTES = 512 /* 309 digits of a double, and the precision */ };

struct field {
    struct jstr fill; /* one character */
    char align;       /* '<' '>' '^' '='; 0: the type's default */
    char sign;        /* '+', ' ' or 0 */
    char group;       /* ',' or '_' between thousands; 0: none */
    char type;        /* 0: none */
    bool alternate;   /* # */
    bool escape;      /* the format is Markup: escape texts */
    bool user;        /* this part of the format is user text, so fill and signs are user text, too */
    int width;
    int precision; /* -1: none */
};

static const struct jstr space = {.p = " ", .len = 1, .chars = 1};
static const struct jstr zero = {.p = "0", .len = 1, .chars = 1};

/* --- one value into vm->tmp ------------------------------------------------------------------------------------- */

static void fill(struct jvm *vm, const struct field *f, int64_t n)
{
    for (int64_t i = 0; i < n && vm->tmp.text.err == ERR_OK; i++) {
        jtext_put(&vm->tmp, f->fill.p, f->fill.len, f->user);
    }
}

/* Writes a text of `chars` characters within its width; `put` writes the part between the fills. */
static enum err put_text(struct jvm *vm, const struct field *f, const struct jstr *s)
{
    struct jv cut = {.kind = JV_STR, .str = s};
    if (f->precision >= 0 && (uint32_t)f->precision < s->chars) {
        TRY(jop_slice(vm, cut, jv_none(), jv_int(f->precision), jv_none(), &cut));
    }
    int64_t missing = MAX_OF((int64_t)f->width - cut.str->chars, 0);
    int64_t left = f->align == '>' || f->align == '=' ? missing : f->align == '^' ? missing / 2 : 0;
    fill(vm, f, left);
    jtext_str(&vm->tmp, cut.str);
    fill(vm, f, missing - left);
    return jtext_ok(vm, &vm->tmp);
}

/* Groups the integer digits at the start of `digits` by threes, in hex, octal and binary by fours. */
static void group_digits(const char *digits, char type, char group, char out[2 * NUMBER_BYTES])
{
    size_t whole = strspn(digits, "0123456789abcdefABCDEF");
    size_t by = type == 'x' || type == 'X' || type == 'o' || type == 'b' ? 4 : 3;
    if (by == 3) {
        whole = strspn(digits, "0123456789");
    }
    size_t n = 0;
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % by == 0) {
            out[n++] = group;
        }
        out[n++] = digits[i];
    }
    memcpy(out + n, digits + whole, strlen(digits + whole) + 1);
}

/* Writes the prefix ("-", "0x") and the digits, filled to the width; '=' fills after the prefix. */
static enum err put_number(struct jvm *vm, const struct field *f, const char *prefix, const char *digits)
{
    char grouped[2 * NUMBER_BYTES];
    if (f->group != 0) {
        group_digits(digits, f->type, f->group, grouped);
        digits = grouped;
    }
    int64_t missing = MAX_OF((int64_t)f->width - (int64_t)(strlen(prefix) + strlen(digits)), 0);
    int64_t left = f->align == 0 || f->align == '>' ? missing : f->align == '^' ? missing / 2 : 0;
    int64_t inside = f->align == '=' ? missing : 0;
    fill(vm, f, left);
    jtext_put(&vm->tmp, prefix, strlen(prefix), f->user);
    fill(vm, f, inside);
    jtext_put(&vm->tmp, digits, strlen(digits), f->user);
    fill(vm, f, missing - left - inside);
    return jtext_ok(vm, &vm->tmp);
}

static const char *sign_of(const struct field *f, bool negative)
{
    return negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

static enum err put_int(struct jvm *vm, const struct field *f, int64_t v)
{
    char digits[NUMBER_BYTES] = "";
    char prefix[4];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const char *mark = "";
    switch (f->type) {
    case 'x':
        snprintf(digits, sizeof digits, "%.*llx", MAX_OF(f->precision, 1), (unsigned long long)u);
        mark = "0x";
        break;
    case 'X':
        snprintf(digits, sizeof digits, "%.*llX", MAX_OF(f->precision, 1), (unsigned long long)u);
        mark = "0X";
        break;
    case 'o':
        snprintf(digits, sizeof digits, "%.*llo", MAX_OF(f->precision, 1), (unsigned long long)u);
        mark = "0o";
        break;
    case 'b': {
        int n = u == 0 ? 1 : 64 - __builtin_clzll(u);
        for (int i = 0; i < n; i++) {
            digits[i] = (char)('0' + ((u >> (n - 1 - i)) & 1));
        }
        mark = "0b";
        break;
    }
    default:
        snprintf(digits, sizeof digits, "%.*llu", MAX_OF(f->precision, 1), (unsigned long long)u);
    }
    snprintf(prefix, sizeof prefix, "%s%s", sign_of(f, v < 0), f->alternate ? mark : "");
    return put_number(vm, f, prefix, digits);
}

/* Formats a float without a type like Python: repr, or %g with the precision and at least one digit after the point. */
static void general(const struct field *f, double v, char out[NUMBER_BYTES])
{
    if (f->precision < 0) {
        jv_float_text(v, out);
        return;
    }
    snprintf(out, NUMBER_BYTES, "%.*g", f->precision, v);
    if (strspn(out, "0123456789") == strlen(out)) {
        strncat(out, ".0", 3);
    }
}

static enum err put_float(struct jvm *vm, const struct field *f, double v)
{
    char digits[NUMBER_BYTES];
    bool negative = signbit(v) != 0 && v == v;
    double size = fabs(v);
    int precision = f->precision < 0 ? 6 : f->precision;
    switch (f->type) {
    case 'e':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*e" : "%.*e", precision, size);
        break;
    case 'E':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*E" : "%.*E", precision, size);
        break;
    case 'f':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*f" : "%.*f", precision, size);
        break;
    case 'F':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*F" : "%.*F", precision, size);
        break;
    case 'g':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*g" : "%.*g", precision, size);
        break;
    case 'G':
        snprintf(digits, sizeof digits, f->alternate ? "%#.*G" : "%.*G", precision, size);
        break;
    case '%':
        snprintf(digits, sizeof digits, "%.*f%%", precision, size * 100);
        break;
    default:
        general(f, size, digits);
    }
    return put_number(vm, f, sign_of(f, negative), digits);
}

static enum err put_char(struct jvm *vm, const struct field *f, struct jv v)
{
    char bytes[4];
    const struct span whole = {0, sizeof bytes};
    struct jstr s = {.p = bytes, .chars = 1, .user = &whole, .n_user = 1}; /* any number can come from the user */
    if (jv_is_str(v) && v.str->chars == 1) {
        return put_text(vm, f, v.str);
    }
    if (!jv_is_int(v) || jv_as_int(v) < 0 || jv_as_int(v) > 0x10FFFF) {
        return jvm_fail(vm, "%%c requires a code point or one character");
    }
    s.len = (uint32_t)utf8_encode((uint32_t)jv_as_int(v), bytes);
    return put_text(vm, f, &s);
}

/* --- %
 * ------------------------------------------------------------------------------------------------------------------ */

struct args {
    struct jv all;
    uint32_t next;
    bool is_tuple;
};

static enum err next_arg(struct jvm *vm, struct args *a, struct jv *out)
{
    uint32_t n = a->is_tuple ? a->all.list->n : 1;
    if (a->next >= n) {
        return jvm_fail(vm, "not enough arguments for format string");
    }
    *out = a->is_tuple ? a->all.list->at[a->next] : a->all;
    a->next++;
    return ERR_OK;
}

/* Reads digits, or * for the next argument; -1: neither. */
static enum err read_number(struct jvm *vm, const struct jstr *s, size_t *at, struct args *a, int limit, int *out)
{
    *out = -1;
    if (*at < s->len && s->p[*at] == '*') {
        struct jv v;
        int64_t i;
        ++*at;
        TRY(next_arg(vm, a, &v));
        TRY(jcall_int(vm, v, "*", &i));
        *out = i < 0 || i > limit ? limit + 1 : (int)i;
    }
    for (; *at < s->len && s->p[*at] >= '0' && s->p[*at] <= '9'; ++*at) {
        *out = MIN_OF(MAX_OF(*out, 0) * 10 + (s->p[*at] - '0'), limit + 1);
    }
    return *out > limit ? jvm_fail(vm, "a width or precision is larger than %d", limit) : ERR_OK;
}

static enum err put_percent(struct jvm *vm, struct field *f, struct jv v)
{
    struct jv text;
    switch (f->type) {
    case 's':
    case 'r': {
        size_t from = vm->tmp.text.len;
        TRY(f->type == 's' ? jv_write_str(vm, &vm->tmp, v) : jv_write_repr(vm, &vm->tmp, v));
        TRY(jtext_take(vm, &vm->tmp, from, &text));
        if (f->escape && !(f->type == 's' && jv_is_str(v) && v.str->safe)) {
            TRY(jv_escape(vm, text.str, &text));
        }
        return put_text(vm, f, text.str);
    }
    case 'c':
        return put_char(vm, f, v);
    default:
        break;
    }
    TRY(jvm_defined(vm, v));
    bool is_whole = f->type != 0 && strchr("diuxXo", f->type) != NULL;
    bool may_round = f->type == 'd' || f->type == 'i' || f->type == 'u';
    if (!jv_is_number(v) || (is_whole && !may_round && jv_is_float(v))) {
        return jvm_fail(vm, "%%%c format: a number is required, not %s", f->type, jv_type_name(v));
    }
    if (!is_whole) {
        return put_float(vm, f, jv_as_float(v));
    }
    if (!jv_is_int(v) && !(fabs(jv_as_float(v)) < 9.2e18)) {
        return jvm_fail(vm, "%%%c format: the number does not fit in 64 bits", f->type);
    }
    return put_int(vm, f, jv_is_int(v) ? jv_as_int(v) : (int64_t)jv_as_float(v));
}

static enum err read_flags(const struct jstr *s, size_t *at, struct field *f)
{
    for (; *at < s->len; ++*at) {
        switch (s->p[*at]) {
        case '-':
            f->align = '<';
            break;
        case '+':
            f->sign = '+';
            break;
        case ' ':
            f->sign = f->sign == '+' ? '+' : ' ';
            break;
        case '#':
            f->alternate = true;
            break;
        case '0':
            f->align = f->align == '<' ? '<' : '=';
            break;
        default:
            return ERR_OK;
        }
    }
    return ERR_OK;
}

/* Returns whether format[from..to) contains user text. */
static bool is_user_part(const struct jstr *format, size_t from, size_t to)
{
    uint32_t i = jstr_span_at(format, from);
    return i < format->n_user && format->user[i].from < to;
}

/* Formats one conversion; *at is after its %. */
static enum err conversion(struct jvm *vm, const struct jstr *s, size_t *at, struct args *a)
{
    size_t begin = *at - 1;
    struct field f = {.fill = space, .align = '>', .precision = -1, .escape = s->safe};
    struct jv v = {.kind = JV_ABSENT};
    if (*at < s->len && s->p[*at] == '(') {
        const char *end = memchr(s->p + *at, ')', s->len - *at);
        struct jv key;
        if (end == NULL || a->all.kind != JV_DICT) {
            return jvm_fail(vm, end == NULL ? "incomplete format key" : "format requires a mapping");
        }
        TRY(jv_substr(vm, s, *at + 1, (size_t)(end - s->p), &key));
        TRY(jv_dict_find(vm, a->all.dict, key, &v));
        if (v.kind == JV_ABSENT) {
            return jvm_fail(vm, "the mapping has no key '%.*s'", (int)MIN_OF(key.str->len, 80u), key.str->p);
        }
        *at = (size_t)(end - s->p) + 1;
    }
    TRY(read_flags(s, at, &f));
    f.fill = f.align == '=' ? zero : space;
    TRY(read_number(vm, s, at, a, MAX_WIDTH, &f.width));
    f.width = MAX_OF(f.width, 0);
    if (*at < s->len && s->p[*at] == '.') {
        ++*at;
        TRY(read_number(vm, s, at, a, MAX_PRECISION, &f.precision));
        f.precision = MAX_OF(f.precision, 0);
    }
    while (*at < s->len && (s->p[*at] == 'l' || s->p[*at] == 'h' || s->p[*at] == 'L')) {
        ++*at;
    }
    if (*at >= s->len) {
        return jvm_fail(vm, "incomplete format");
    }
    f.type = s->p[(*at)++];
    f.user = is_user_part(s, begin, *at);
    if (f.type == '%') {
        jtext_put(&vm->tmp, "%", 1, f.user);
        return ERR_OK;
    }
    if (f.type == '\0' || strchr("srcdiuxXoeEfFgG", f.type) == NULL) {
        return jvm_fail(vm, "unsupported format character 0x%02x at index %zu", (unsigned)(unsigned char)f.type,
                        *at - 1);
    }
    if (strchr("src", f.type) != NULL) {
        f.fill = space;
        f.align = f.align == '=' ? '>' : f.align;
    }
    if (v.kind == JV_ABSENT) {
        TRY(next_arg(vm, a, &v));
    }
    return put_percent(vm, &f, v);
}

enum err jop_format(struct jvm *vm, const struct jstr *format, struct jv args, struct jv *out)
{
    struct args a = {.all = args, .is_tuple = args.kind == JV_TUPLE};
    size_t from = vm->tmp.text.len;
    for (size_t at = 0; at < format->len;) {
        const char *p = memchr(format->p + at, '%', format->len - at);
        size_t to = p == NULL ? format->len : (size_t)(p - format->p);
        jtext_sub(&vm->tmp, format, at, to);
        at = to + 1;
        if (p != NULL) {
            TRY(jvm_pay(vm, 1));
            TRY(conversion(vm, format, &at, &a));
        }
    }
    bool may_remain = args.kind == JV_DICT || args.kind == JV_LIST; /* Python's rule: any value with items by key */
    if (!may_remain && a.next < (a.is_tuple ? args.list->n : 1)) {
        return jvm_fail(vm, "not all arguments converted during string formatting");
    }
    TRY(jtext_take(vm, &vm->tmp, from, out));
    return format->safe ? jv_mark_safe(vm, out->str, out) : ERR_OK;
}

/* --- str.format
 * ------------------------------------------------------------------------------------------------------------ */

/* Reads [[fill]align][sign][#][0][width][group][.precision][type], which must be all of s[at..end). */
static enum err read_spec(struct jvm *vm, const struct jstr *s, size_t at, size_t end, struct field *f)
{
    struct args none = {.all = {.kind = JV_NONE}};
    struct jstr spec = *s;
    uint32_t cp;
    spec.len = (uint32_t)end;
    size_t n = at < end ? utf8_decode(s->p + at, end - at, &cp, NULL) : 0;
    if (n > 0 && at + n < end && strchr("<>^=", s->p[at + n]) != NULL) {
        f->fill = (struct jstr){.p = s->p + at, .len = (uint32_t)n, .chars = 1};
        f->align = s->p[at + n];
        at += n + 1;
    } else if (at < end && strchr("<>^=", s->p[at]) != NULL) {
        f->align = s->p[at++];
    }
    if (at < end && (s->p[at] == '+' || s->p[at] == '-' || s->p[at] == ' ')) {
        f->sign = s->p[at] == '-' ? '\0' : s->p[at];
        at++;
    }
    if (at < end && s->p[at] == '#') {
        f->alternate = true;
        at++;
    }
    if (at < end && s->p[at] == '0') {
        f->fill = f->align == 0 ? zero : f->fill;
        f->align = f->align == 0 ? '=' : f->align;
        at++;
    }
    TRY(read_number(vm, &spec, &at, &none, MAX_WIDTH, &f->width));
    f->width = MAX_OF(f->width, 0);
    if (at < end && (s->p[at] == ',' || s->p[at] == '_')) {
        f->group = s->p[at++];
    }
    if (at < end && s->p[at] == '.') {
        at++;
        TRY(read_number(vm, &spec, &at, &none, MAX_PRECISION, &f->precision));
        if (f->precision < 0) {
            return jvm_fail(vm, "format specifier missing precision");
        }
    }
    f->type = at < end ? s->p[at++] : '\0';
    return at == end ? ERR_OK : jvm_fail(vm, "invalid format specifier");
}

static enum err put_field(struct jvm *vm, struct field *f, struct jv v, bool has_spec)
{
    if (f->type == 's' ||
        (f->type == 0 && (!jv_is_number(v) || ((v.kind == JV_BOOL || jv_has_digits(v)) && !has_spec)))) {
        struct jv text;
        if (!jv_is_str(v) && (f->type == 's' || has_spec)) {
            return jvm_fail(vm, "unsupported format for '%s'", jv_type_name(v));
        }
        if (f->align == '=' && f->fill.p != zero.p) {
            return jvm_fail(vm, "'=' alignment not allowed in string format specifier");
        }
        f->align = f->align == '=' ? '<' : f->align;
        TRY(jv_to_str(vm, v, &text));
        return put_text(vm, f, text.str);
    }
    if (f->type == 'c' && jv_is_int(v)) {
        return put_char(vm, f, v);
    }
    bool is_whole = f->type == 0 ? jv_is_int(v) : strchr("dxXobn", f->type) != NULL;
    bool known = f->type == 0 || strchr("dxXobneEfFgG%", f->type) != NULL;
    if (v.kind == JV_BIGINT) {
        return jvm_fail(vm, "formatting an integer that does not fit in 64 bits");
    }
    if (!known || !jv_is_number(v) || (is_whole && (jv_is_float(v) || f->precision >= 0))) {
        return jvm_fail(vm, "unknown format code for object of type '%s'", jv_type_name(v));
    }
    return is_whole ? put_int(vm, f, jv_as_int(v)) : put_float(vm, f, jv_as_float(v));
}

struct numbering {
    uint32_t next;
    bool by_hand, automatic;
};

/* Finds the argument that s[at..end) names: "", "0", "name", then .attribute and [item] parts. */
static enum err find_field(struct jvm *vm, struct jcall *c, const struct jstr *s, size_t at, size_t end,
                           struct numbering *auto_n, struct jv *out)
{
    size_t to = at;
    uint32_t i = 0;
    while (to < end && s->p[to] != '.' && s->p[to] != '[') {
        to++;
    }
    bool is_number = true;
    for (size_t k = at; k < to; k++) {
        is_number = is_number && s->p[k] >= '0' && s->p[k] <= '9' && k - at < 6;
        i = is_number ? i * 10 + (uint32_t)(s->p[k] - '0') : i;
    }
    if (is_number) {
        *(at == to ? &auto_n->automatic : &auto_n->by_hand) = true;
        i = at == to ? auto_n->next++ : i;
        if (auto_n->automatic && auto_n->by_hand) {
            return jvm_fail(vm, "cannot switch between automatic and manual field numbering");
        }
        if (i >= c->n_pos) {
            return jvm_fail(vm, "replacement index %u out of range for positional args", (unsigned)i);
        }
        *out = c->pos[i];
    } else {
        *out = jcall_keyword(c, s->p + at, to - at);
        if (out->kind == JV_ABSENT) {
            return jvm_fail(vm, "no argument '%.*s' for the format", (int)MIN_OF(to - at, (size_t)80), s->p + at);
        }
    }
    while (to < end) {
        char open = s->p[to++];
        size_t from = to;
        while (to < end && (open == '[' ? s->p[to] != ']' : s->p[to] != '.' && s->p[to] != '[')) {
            to++;
        }
        struct jv part;
        bool digits = open == '[' && to > from && to - from < 10;
        int64_t n = 0;
        for (size_t k = from; k < to; k++) {
            digits = digits && s->p[k] >= '0' && s->p[k] <= '9';
            n = digits ? n * 10 + (s->p[k] - '0') : n;
        }
        if (from == to || (open == '[' && to == end)) {
            return jvm_fail(vm, "empty or unclosed part in a format field");
        }
        TRY(jv_substr(vm, s, from, to, &part));
        TRY(open == '.' ? jop_attr(vm, *out, part, out) : jop_item(vm, *out, digits ? jv_int(n) : part, out));
        to += open == '[';
    }
    return ERR_OK;
}

/* Formats one field; *at is after its {. */
static enum err replacement(struct jvm *vm, struct jcall *c, const struct jstr *s, size_t *at, struct numbering *auto_n)
{
    size_t end = *at;
    while (end < s->len && s->p[end] != '}' && s->p[end] != '{') {
        end++;
    }
    if (end == s->len || s->p[end] == '{') {
        return jvm_fail(vm,
                        end == s->len ? "expected '}' before end of string" : "fields inside fields are not supported");
    }
    size_t name_end = *at;
    while (name_end < end && s->p[name_end] != ':' && s->p[name_end] != '!') {
        name_end++;
    }
    struct field f = {.fill = space, .precision = -1, .user = is_user_part(s, *at, end)};
    struct jv v;
    TRY(find_field(vm, c, s, *at, name_end, auto_n, &v));
    size_t spec = name_end;
    if (spec < end && s->p[spec] == '!') {
        size_t from = vm->tmp.text.len;
        char how = spec + 1 < end ? s->p[spec + 1] : '\0';
        if (how != 's' && how != 'r') {
            return jvm_fail(vm, "unknown conversion specifier in a format field");
        }
        TRY(how == 's' ? jv_write_str(vm, &vm->tmp, v) : jv_write_repr(vm, &vm->tmp, v));
        TRY(jtext_take(vm, &vm->tmp, from, &v));
        spec += 2;
        if (spec < end && s->p[spec] != ':') {
            return jvm_fail(vm, "expected ':' after conversion specifier");
        }
    }
    bool has_spec = spec + 1 < end;
    if (has_spec) {
        TRY(read_spec(vm, s, spec + 1, end, &f));
    }
    *at = end + 1;
    return put_field(vm, &f, v, has_spec);
}

enum err jcall_format(struct jvm *vm, struct jcall *c, struct jv *out)
{
    const struct jstr *s = c->self.str;
    struct numbering auto_n = {0};
    if (s->safe) {
        return jvm_fail(vm, "format on text that is marked safe is not supported");
    }
    size_t begin = vm->tmp.text.len;
    for (size_t at = 0; at < s->len;) {
        size_t from = at;
        while (at < s->len && s->p[at] != '{' && s->p[at] != '}') {
            at++;
        }
        jtext_sub(&vm->tmp, s, from, at);
        if (at == s->len) {
            break;
        }
        TRY(jvm_pay(vm, 1));
        if (at + 1 < s->len && s->p[at + 1] == s->p[at]) {
            jtext_sub(&vm->tmp, s, at, at + 1);
            at += 2;
        } else if (s->p[at++] == '}') {
            return jvm_fail(vm, "single '}' encountered in format string");
        } else {
            TRY(replacement(vm, c, s, &at, &auto_n));
        }
    }
    return jtext_take(vm, &vm->tmp, begin, out);
}
